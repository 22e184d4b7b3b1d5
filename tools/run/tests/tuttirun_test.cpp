// SPDX-License-Identifier: Apache-2.0
//
// Runs the program tuttirun on small shell scripts.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using Words = std::vector<std::string>;
using Clock = std::chrono::steady_clock;

const std::string kQuoted = "'" + std::string(TUTTIRUN) + "'";  // for a shell

class Tuttirun : public ::testing::Test {
 protected:
  Tuttirun() {
    char name[] = "/tmp/tuttirun-test-XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  ~Tuttirun() override { std::filesystem::remove_all(folder_); }

  // Starts tuttirun with its output in files.
  void start(Words arguments, const std::string& input = "") {
    write("in", input);
    arguments.insert(arguments.begin(), TUTTIRUN);
    pid_ = ::fork();
    ASSERT_GE(pid_, 0);
    if (pid_ != 0) return;
    const auto open = [&](const char* name, int flags, int as) {
      ::dup2(::open((folder_ + "/" + name).c_str(), flags | O_CREAT, 0600), as);
    };
    open("in", O_RDONLY, 0);
    open("out", O_WRONLY | O_TRUNC | O_APPEND, 1);
    open("err", O_WRONLY | O_TRUNC | O_APPEND, 2);
    std::vector<char*> argv;
    for (auto& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(99);
  }
  // Starts it by a shell, which reads `arguments` and redirections in the folder.
  void start_by_shell(const std::string& arguments) {
    const std::string command = "cd " + folder_ + "; exec " + kQuoted + " " + arguments;
    pid_ = ::fork();
    ASSERT_GE(pid_, 0);
    if (pid_ != 0) return;
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(99);
  }
  bool exists(const char* name) const { return std::filesystem::exists(folder_ + "/" + name); }
  // As a shell tells it.
  int wait() {
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  int run(Words arguments, const std::string& input = "") {
    start(std::move(arguments), input);
    return wait();
  }

  std::string file(const char* name) const {
    std::ifstream in(folder_ + "/" + name);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  void write(const char* name, const std::string& text) const { std::ofstream(folder_ + "/" + name) << text; }
  std::string out() const { return file("out"); }
  std::string err() const { return file("err"); }
  std::multiset<std::string> lines() const {
    std::multiset<std::string> found;
    std::istringstream text(out());
    for (std::string line; std::getline(text, line);) found.insert(line);
    return found;
  }
  static bool eventually(const std::function<bool()>& what) {
    for (const auto end = Clock::now() + 60s; Clock::now() < end; std::this_thread::sleep_for(5ms))
      if (what()) return true;
    return what();
  }
  // Alive and no zombie.
  static bool running(pid_t pid) {
    std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    std::getline(in, text);
    const size_t name = text.rfind(')');
    return name != std::string::npos && name + 2 < text.size() && text[name + 2] != 'Z';
  }
  std::vector<pid_t> printed_pids(size_t n) {
    EXPECT_TRUE(eventually([&] { return lines().size() >= n; })) << out() << err();
    std::vector<pid_t> pids;
    for (const auto& line : lines()) pids.push_back(std::stoi(line.substr(line.find(' '))));
    return pids;
  }
  static bool none_runs(const std::vector<pid_t>& pids) { return std::none_of(pids.begin(), pids.end(), running); }
  static bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

  std::string folder_;
  pid_t pid_ = -1;
};

TEST_F(Tuttirun, TellsRanksWhoTheyAre) {
  ASSERT_EQ(run({"-n", "3", "--env", "A=1=2", "--env", "B=", "sh", "-c",
                 "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR ${#TUTTI_SECRET} $A [${B-unset}]"}),
            0)
      << err();
  EXPECT_EQ(lines(), (std::multiset<std::string>{"[0] 0/3 0/3 127.0.0.1 64 1=2 []", "[1] 1/3 1/3 127.0.0.1 64 1=2 []",
                                                 "[2] 2/3 2/3 127.0.0.1 64 1=2 []"}));
  EXPECT_EQ(err(), "");
  ASSERT_EQ(run({"-n", "4", "--no-label", "sh", "-c", "echo $MASTER_PORT $TUTTI_SECRET $TUTTI_JOB"}), 0);
  const auto all = lines();
  EXPECT_EQ(all.count(*all.begin()), 4u) << "all ranks share port, secret and job";
  ASSERT_EQ(run({"-n", "1", "--", "sh", "-c", "echo $TUTTI_SECRET"}), 0);
  EXPECT_FALSE(has(*all.begin(), out().substr(4, 64))) << "each job has a secret of its own";
}

TEST_F(Tuttirun, LoudVariablesOfOthersAreLeftOut) {
  ::setenv("TUTTI_RANK", "7", 1);
  ::setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
  const int status = run({"-n", "1", "sh", "-c", "echo ${TUTTI_RANK-none} ${TORCHELASTIC_USE_AGENT_STORE-none} $RANK"});
  ::unsetenv("TUTTI_RANK");
  ::unsetenv("TORCHELASTIC_USE_AGENT_STORE");
  EXPECT_EQ(status, 0);
  EXPECT_EQ(out(), "[0] none none 0\n");
}

TEST_F(Tuttirun, LinesStayWholeHoweverTheyAreWritten) {
  ASSERT_EQ(run({"-n", "4", "sh", "-c",
                 "for i in 1 2 3 4 5; do printf 'begin-'; sleep 0.01; printf '%s-end\\n' $RANK; done; "
                 "echo to-err >&2; printf unfinished"}),
            0);
  std::multiset<std::string> expected;
  for (const std::string rank : {"0", "1", "2", "3"}) {
    for (int i = 0; i < 5; ++i) expected.insert("[" + rank + "] begin-" + rank + "-end");
    expected.insert("[" + rank + "] unfinished");
  }
  EXPECT_EQ(lines(), expected);
  EXPECT_TRUE(has(err(), "[3] to-err\n")) << err();
}

TEST_F(Tuttirun, LongLinesAndMuchOutput) {
  ASSERT_EQ(run({"-n", "2", "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; echo; seq 1 20000"}), 0);
  const auto all = lines();
  EXPECT_EQ(all.size(), 40002u);
  for (const std::string label : {"[0] ", "[1] "}) {
    EXPECT_EQ(all.count(label + std::string(3000000, 'x')), 1u);
    EXPECT_EQ(all.count(label + "20000"), 1u);
  }
}

TEST_F(Tuttirun, InputGoesToRankZeroOnly) {
  ASSERT_EQ(run({"-n", "2", "--stdin", "rank0", "cat"}, "hello\n"), 0);
  EXPECT_EQ(out(), "[0] hello\n");
  ASSERT_EQ(run({"-n", "2", "cat"}, "hello\n"), 0);
  EXPECT_EQ(out(), "");
}

TEST_F(Tuttirun, AFailingRankEndsAllAndGivesItsStatus) {
  const auto before = Clock::now();
  EXPECT_EQ(run({"-n", "3", "sh", "-c", "if [ $RANK = 1 ]; then echo last words; exit 7; fi; sleep 60"}), 7);
  EXPECT_LT(Clock::now() - before, 60s);  // of a rank that is not ended
  EXPECT_TRUE(has(err(), "tuttirun: rank 1 (process ")) << err();
  EXPECT_TRUE(has(err(), "ended with exit status 7; ending the other 2")) << err();
  EXPECT_TRUE(has(out(), "[1] last words"));
}

TEST_F(Tuttirun, ASignalIsNamed) {
  EXPECT_EQ(run({"-n", "2", "sh", "-c", "[ $RANK = 0 ] || kill -USR1 $$; sleep 60"}), 128 + SIGUSR1);
  EXPECT_TRUE(has(err(), "rank 1 (process ")) << err();
  EXPECT_TRUE(has(err(), "was killed by SIGUSR1")) << err();
}

TEST_F(Tuttirun, RealTimeWhoIgnoresSigtermIsKilledAfterTheGrace) {
  const auto before = Clock::now();
  EXPECT_EQ(run({"-n", "2", "--grace", "0.3", "sh", "-c",
                 "if [ $RANK = 1 ]; then sleep 0.2; exit 3; fi; trap '' TERM; while :; do sleep 0.05; done"}),
            3);
  EXPECT_GT(Clock::now() - before, 300ms);
}

TEST_F(Tuttirun, SignalsReachAllRanks) {
  start({"-n", "2", "sh", "-c", "trap 'echo got-it; exit 0' INT; echo ready; while :; do sleep 0.02; done"});
  ASSERT_TRUE(eventually([&] { return lines().size() == 2; })) << err();
  ::kill(pid_, SIGINT);
  EXPECT_EQ(wait(), 128 + SIGINT);
  EXPECT_TRUE(has(out(), "[0] got-it") && has(out(), "[1] got-it")) << out();
  EXPECT_TRUE(has(err(), "SIGINT received")) << err();
  start({"-n", "2", "sh", "-c", "trap 'echo got-it; exit 0' USR2; echo ready; while :; do sleep 0.02; done"});
  ASSERT_TRUE(eventually([&] { return lines().size() == 2; })) << err();
  ::kill(pid_, SIGUSR2);
  EXPECT_EQ(wait(), 0) << "a signal that ends no job is passed on and nothing else";
  EXPECT_TRUE(has(out(), "[0] got-it") && has(out(), "[1] got-it")) << out();
}

TEST_F(Tuttirun, RealTimeSurvivorsGoOn) {
  // The others end half a second after rank 1 has come to its end.
  const std::string script = "if [ $RANK = 1 ]; then echo $$ > " + folder_ + "/pid.new; mv " + folder_ + "/pid.new " +
                             folder_ + "/pid; kill -9 $$; fi; while [ ! -e " + folder_ +
                             "/pid ]; do sleep 0.02; done; sleep 0.5; echo survived; ";
  EXPECT_EQ(run({"-n", "3", "--survive", "sh", "-c", script}), 0) << err();
  EXPECT_EQ(lines(), (std::multiset<std::string>{"[0] survived", "[2] survived"}));
  EXPECT_TRUE(has(err(), "rank 1 (process ")) << err();
  EXPECT_TRUE(has(err(), "was killed by SIGKILL (Killed); still running: 2 (--survive)\n")) << err();
  EXPECT_TRUE(has(err(), "2 of 3 ranks ended with status 0; rank 1 was killed by SIGKILL (Killed)\n")) << err();
  EXPECT_EQ(run({"-n", "3", "--survive", "sh", "-c", script + "[ $RANK = 0 ] || exit 5"}), 5) << err();
  EXPECT_TRUE(has(err(),
                  "1 of 3 ranks ended with status 0; rank 1 was killed by SIGKILL (Killed); "
                  "rank 2 ended with exit status 5\n"))
      << err();
}

TEST_F(Tuttirun, RealTimeSurvivingHasTheStatusOfWhatHappened) {
  EXPECT_EQ(run({"-n", "2", "--survive", "true"}), 0);
  EXPECT_EQ(err(), "");
  EXPECT_EQ(run({"-n", "2", "--survive", "sh", "-c", "kill -9 $$"}), 128 + SIGKILL);
  EXPECT_TRUE(has(err(), "0 of 2 ranks ended with status 0; ")) << err();
  EXPECT_EQ(run({"-n", "2", "--survive", "sh", "-c", "exit $((RANK * 4))"}), 4);
  EXPECT_EQ(run({"-n", "2", "--survive", "--timeout", "0.4", "sh", "-c", "[ $RANK = 1 ] && kill -9 $$; sleep 60"}),
            124);
  EXPECT_TRUE(has(err(), "still running: rank 0\n")) << err();
  EXPECT_TRUE(has(err(), "0 of 2 ranks ended with status 0; rank 1 was killed by SIGKILL")) << err();
  EXPECT_EQ(run({"-n", "2", "--survive", "no-such-program-here"}), 127);
  start({"-n", "2", "--survive", "sh", "-c", "echo $$; sleep 60"});
  const auto pids = printed_pids(2);
  ::kill(pid_, SIGTERM);
  EXPECT_EQ(wait(), 128 + SIGTERM) << "tuttirun's own signals end all";
  EXPECT_TRUE(none_runs(pids));
}

TEST_F(Tuttirun, RealTimeATimeoutNamesWhoStillRan) {
  EXPECT_EQ(run({"-n", "3", "--timeout", "0.4", "sh", "-c", "[ $RANK = 1 ] && exit 0; sleep 60"}), 124);
  EXPECT_TRUE(has(err(), "within 0.4 s (--timeout); still running: rank 0, 2")) << err();
}

TEST_F(Tuttirun, ProgramsThatCannotRun) {
  EXPECT_EQ(run({"-n", "2", "no-such-program-here"}), 127);
  EXPECT_TRUE(has(err(), "cannot run \"no-such-program-here\": No such file")) << err();
  write("plain", "text");
  EXPECT_EQ(run({"-n", "2", folder_ + "/plain"}), 126);
  EXPECT_TRUE(has(err(), "Permission denied")) << err();
}

TEST_F(Tuttirun, WrongUsage) {
  const struct {
    Words arguments;
    const char* word;
  } cases[] = {
      {{}, "ranks"},
      {{"-n", "2"}, "PROGRAM"},
      {{"true"}, "ranks"},
      {{"-n", "0", "true"}, "0"},
      {{"-n", "-3", "true"}, "-3"},
      {{"-n", "x", "true"}, "x"},
      {{"-n", "5000", "true"}, "4096"},
      {{"-n", "2", "--frobnicate", "true"}, "frobnicate"},
      {{"-n", "2", "--timeout", "-1", "true"}, "-1"},
      {{"-n", "2", "--timeout", "0", "true"}, "\"0\" is not a number of seconds above 0"},
      {{"-n", "2", "--timeout", "inf", "true"}, "inf"},
      {{"-n", "2", "--grace", "-1", "true"}, "\"-1\" is not a number of seconds, 0 or above"},
      {{"-n", "2", "--grace", "nan", "true"}, "nan"},
      {{"-np", "4", "true"}, "-np: the number of ranks is -n N"},
      {{"--nosuch"}, "nosuch"},
      {{"-n", "2", "--env", "NOTHING", "true"}, "NAME=VALUE"},
      {{"-n", "2", "--stdin", "all", "true"}, "all"},
      {{"-n", "2", "--hosts-as-netns", "3", "true"}, "3 hosts for 2 ranks"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(run(c.arguments), 2) << c.word << err();
    EXPECT_TRUE(has(err(), c.word)) << err();
    EXPECT_TRUE(has(err(), "--help")) << err();
  }
  EXPECT_EQ(run({"--help"}), 0);
  EXPECT_TRUE(has(out(), "--hosts-as-netns")) << out();
  EXPECT_TRUE(has(out(), "Usage: tuttirun -n N [OPTIONS] PROGRAM")) << out();
}

TEST_F(Tuttirun, FlagsAfterTheProgramAreTheProgramsOwn) {
  ASSERT_EQ(run({"-n", "1", "echo", "-n", "5", "--timeout", "x"}), 0) << err();
  EXPECT_EQ(out(), "[0] 5 --timeout x\n");
}

TEST_F(Tuttirun, NoOrphansOfARankThatLeavesChildren) {
  start({"-n", "2", "sh", "-c", "sleep 100 & echo $!"});
  const auto pids = printed_pids(2);
  EXPECT_EQ(wait(), 0);
  EXPECT_TRUE(eventually([&] { return none_runs(pids); }));
}

TEST_F(Tuttirun, NoOrphansWhenItIsKilled) {
  start({"-n", "2", "sh", "-c", "sleep 100 & echo $!; echo $$; wait"});
  const auto pids = printed_pids(4);
  for (const pid_t pid : pids) EXPECT_TRUE(running(pid));
  ::kill(pid_, SIGKILL);
  EXPECT_EQ(wait(), 128 + SIGKILL);
  EXPECT_TRUE(eventually([&] { return none_runs(pids); }));
}

TEST_F(Tuttirun, AFullDiskIsAnError) {
  write("in", "");
  for (const char* job : {"echo once", "while sleep 0.05; do echo more; done"}) {
    const std::string command =
        kQuoted + " -n 2 --timeout 60 --grace 2 sh -c '" + job + "' > /dev/full 2> " + folder_ + "/err";
    const int status = std::system(command.c_str());
    EXPECT_EQ(WEXITSTATUS(status), 1) << job << err();
    EXPECT_TRUE(has(err(), "standard output cannot be written: No space left on device")) << job << err();
  }
}

TEST_F(Tuttirun, ClosedStandardDescriptorsStayClosed) {
  for (const char* closed : {"<&- 2> err", ">&- 2> err", "> out 2>&-", "<&- >&- 2>&-"}) {
    start_by_shell(std::string("-n 1 sh -c 'echo > ready; exec sleep 100' ") + closed);
    ASSERT_TRUE(eventually([&] { return exists("ready"); })) << closed << err();
    ::kill(pid_, SIGTERM);
    EXPECT_EQ(wait(), 128 + SIGTERM) << closed << err();
    std::filesystem::remove(folder_ + "/ready");
  }
  start_by_shell("-n 1 echo hi > out 2>&-");
  EXPECT_EQ(wait(), 0);
  EXPECT_EQ(out(), "[0] hi\n");
  start_by_shell("-n 1 true >&- 2> err");
  EXPECT_EQ(wait(), 0) << err();
  start_by_shell("-n 1 echo hi >&- 2> err");
  EXPECT_EQ(wait(), 1);
  EXPECT_TRUE(has(err(), "standard output cannot be written: Bad file descriptor")) << err();
}

TEST_F(Tuttirun, OutputThatNobodyReadsWaitsForTheSecondSignalOnly) {
  ASSERT_EQ(::mkfifo((folder_ + "/pipe").c_str(), 0600), 0);
  const int reader = ::open((folder_ + "/pipe").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  start_by_shell("-n 1 --grace 1e10 sh -c 'head -c 1000000 /dev/zero; echo > ready' > pipe 2> err");
  ASSERT_TRUE(eventually([&] { return exists("ready"); })) << err();
  ::kill(pid_, SIGTERM);
  ASSERT_TRUE(eventually([&] { return has(err(), "SIGTERM received"); })) << err();
  int status = 0;
  ASSERT_TRUE(eventually([&] {
    ::kill(pid_, SIGINT);
    return ::waitpid(pid_, &status, WNOHANG) == pid_;
  })) << err();
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
  EXPECT_TRUE(has(err(), " bytes of the ranks' output were not read")) << err();
  ::close(reader);
}

TEST_F(Tuttirun, RealTimeOutputThatNobodyReadsWaitsForTheGraceOnly) {
  ASSERT_EQ(::mkfifo((folder_ + "/pipe").c_str(), 0600), 0);
  const int reader = ::open((folder_ + "/pipe").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  start_by_shell("-n 1 --timeout 0.5 --grace 0.3 sh -c 'head -c 1000000 /dev/zero' > pipe 2> err");
  EXPECT_EQ(wait(), 124) << err();
  EXPECT_TRUE(has(err(), "were not read within 0.3 s (--grace) and are lost")) << err();
  ::close(reader);
}

TEST_F(Tuttirun, ATimeoutBeyondTheClockIsNone) { EXPECT_EQ(run({"-n", "2", "--timeout", "10000000000", "true"}), 0) << err(); }

TEST_F(Tuttirun, AReaderThatGoesAwayEndsTheJob) {
  const std::string command = kQuoted + " -n 2 sh -c 'while :; do echo y; done' | head -n 3 >/dev/null";
  EXPECT_EQ(::system(("timeout 60 sh -c \"" + command + "\"").c_str()), 0);
}

// ---- network namespaces ----

class RealTimeNamespaces : public Tuttirun {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
    if (::system("ip netns add tuttirun-test-probe 2>/dev/null && ip netns delete tuttirun-test-probe") != 0)
      GTEST_SKIP() << "network namespaces cannot be made here (ip netns add failed)";
  }
  // Those of the tuttirun that was last started.
  bool any_left() const {
    return ::system(("ip netns list | grep -q '^tutti-" + std::to_string(pid_) + "-'").c_str()) == 0;
  }
};

TEST_F(RealTimeNamespaces, RanksAreSpreadAndReachEachOther) {
  ASSERT_EQ(run({"-n", "3", "--hosts-as-netns", "2", "sh", "-c",
                 "ip -o -4 address show eth0 | sed -E \"s|.*inet ([0-9.]*)/.*|$RANK $LOCAL_RANK/$LOCAL_WORLD_SIZE "
                 "$MASTER_ADDR \\1|\"; readlink /proc/self/ns/net >&2"}),
            0)
      << err();
  EXPECT_EQ(lines(), (std::multiset<std::string>{"[0] 0 0/1 10.77.0.1 10.77.0.1", "[1] 1 0/2 10.77.0.1 10.77.0.2",
                                                 "[2] 2 1/2 10.77.0.1 10.77.0.2"}))
      << err();
  EXPECT_FALSE(any_left());
}

TEST_F(RealTimeNamespaces, EachHasCoresOfItsOwn) {
  ASSERT_EQ(run({"-n", "4", "--hosts-as-netns", "2", "sh", "-c", "echo cores $(taskset -cp $$ | sed 's/.*: //')"}), 0);
  std::set<std::string> shares;
  std::istringstream lines(out());
  for (std::string line; std::getline(lines, line);)
    if (has(line, "cores ")) shares.insert(line.substr(line.find("cores ")));
  EXPECT_EQ(shares.size(), std::min(2u, std::thread::hardware_concurrency())) << out() << err();
}

TEST_F(RealTimeNamespaces, TheyAreRemovedAfterFailuresAndSignals) {
  EXPECT_EQ(run({"-n", "2", "--hosts-as-netns", "2", "false"}), 1);
  EXPECT_FALSE(any_left());
  start({"-n", "2", "--hosts-as-netns", "2", "sh", "-c", "echo $$; sleep 60"});
  printed_pids(2);
  EXPECT_TRUE(any_left());
  ::kill(pid_, SIGTERM);
  EXPECT_EQ(wait(), 128 + SIGTERM);
  EXPECT_FALSE(any_left());
  start({"-n", "2", "--hosts-as-netns", "2", "sh", "-c", "echo $$; sleep 60"});
  printed_pids(2);
  ::kill(pid_, SIGKILL);
  wait();
  EXPECT_TRUE(eventually([&] { return !any_left(); })) << "the keeper removes them";
}

TEST_F(RealTimeNamespaces, LeftoversOfDeadProcessesAreSwept) {
  const pid_t dead = ::fork();
  if (dead == 0) ::_exit(0);
  ::waitpid(dead, nullptr, 0);
  const std::string name = "tutti-" + std::to_string(dead) + "-0";
  ASSERT_EQ(::system(("ip netns add " + name).c_str()), 0);
  EXPECT_EQ(run({"-n", "1", "--hosts-as-netns", "1", "true"}), 0) << err();
  EXPECT_NE(::system(("ip netns list | grep -q '^" + name + "'").c_str()), 0) << name << " is left";
}

TEST_F(Tuttirun, NamespacesWithoutRootAreAnError) {
  if (::geteuid() != 0) {
    EXPECT_EQ(run({"-n", "1", "--hosts-as-netns", "1", "true"}), 1);
    EXPECT_TRUE(has(err(), "needs root")) << err();
    return;
  }
  // As nobody, who may read the program only where its folder allows it.
  const std::string command =
      "setpriv --reuid 65534 --clear-groups " + kQuoted + " -n 1 --hosts-as-netns 1 true 2>" + folder_ + "/err";
  if (::system(("setpriv --reuid 65534 --clear-groups test -x " + kQuoted).c_str()) != 0)
    GTEST_SKIP() << "an ordinary user cannot reach " << TUTTIRUN;
  EXPECT_NE(::system(command.c_str()), 0);
  EXPECT_TRUE(has(err(), "needs root")) << err();
}

}  // namespace
