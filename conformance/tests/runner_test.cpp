// SPDX-License-Identifier: Apache-2.0
//
// The runner against cases that do everything a case must not do. This program is its own worker.
#include "runner.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "suites.hpp"
#include "worker.hpp"

namespace tutti::conformance {
namespace {

struct Misdeed {
  const char* name;
  uint32_t processes;
  Outcome (*run)(const Place&);
};

// The end of a process's shared state, after its last case.
struct AtEnd {
  void (*action)();
  ~AtEnd() { action(); }
};
Outcome at_end(const Place& place, void (*action)()) {
  place.shared = std::shared_ptr<AtEnd>(new AtEnd{action});
  return Outcome::pass();
}

const Misdeed misdeeds[] = {
    {"pass", 1, [](const Place&) { return Outcome::pass(); }},
    {"pass_of_three", 3, [](const Place& p) { return p.nranks == 3 ? Outcome::pass() : Outcome::fail("not three"); }},
    {"fail", 1, [](const Place&) { return Outcome::fail("four, expected five", "T-99"); }},
    {"fail_of_rank_2", 3, [](const Place& p) { return p.rank == 2 ? Outcome::fail("wrong") : Outcome::pass(); }},
    {"throw", 1, [](const Place&) -> Outcome { throw std::runtime_error("thrown"); }},
    {"segfault", 1,
     [](const Place&) -> Outcome {
       std::fputs("the last words\n", stderr);
       std::raise(SIGSEGV);
       return {};
     }},
    {"abort_of_rank_1", 2,
     [](const Place& p) -> Outcome {
       if (p.rank == 1) std::abort();
       std::this_thread::sleep_for(std::chrono::hours(1));
       return {};
     }},
    {"exit", 1, [](const Place&) -> Outcome { std::_Exit(3); }},
    {"hang_of_rank_1", 3,
     [](const Place& p) -> Outcome {
       if (p.rank == 1) std::this_thread::sleep_for(std::chrono::hours(1));
       return {};
     }},
    {"others_hang_after_a_fail", 2,
     [](const Place& p) -> Outcome {
       if (p.rank == 0) return Outcome::fail("seen by rank 0");
       std::this_thread::sleep_for(std::chrono::hours(1));
       return {};
     }},
    {"hang_for_a_while", 1,
     [](const Place& p) {
       std::this_thread::sleep_for(std::chrono::milliseconds(1500));
       return p.patience == 10 ? Outcome::pass() : Outcome::fail("it was not told of the patience");
     }},
    {"ignores_signals_and_hangs", 1,
     [](const Place&) -> Outcome {
       for (const int s : {SIGTERM, SIGINT, SIGHUP}) std::signal(s, SIG_IGN);
       std::this_thread::sleep_for(std::chrono::hours(1));
       return {};
     }},
    {"crash_at_end", 1, [](const Place& p) { return at_end(p, [] { std::abort(); }); }},
    {"status_at_end", 1, [](const Place& p) { return at_end(p, [] { std::_Exit(9); }); }},
    {"leaves_a_child", 1,
     [](const Place&) -> Outcome {
       if (fork() == 0) {
         std::this_thread::sleep_for(std::chrono::hours(1));
         std::_Exit(0);
       }
       return {};
     }},
    {"not_supported", 2, [](const Place&) { return Outcome::not_supported("no such wire"); }},
    {"not_supported_by_one", 2,
     [](const Place& p) { return p.rank == 0 ? Outcome::not_supported("no such wire") : Outcome::pass(); }},
    {"warning", 1, [](const Place&) { return Outcome::warning("slow"); }},
    {"long_message", 2, [](const Place&) { return Outcome::fail(std::string(3'000'000, 'x') + "end"); }},
    {"much_output", 1,
     [](const Place&) {
       for (int i = 0; i < 200'000; ++i) std::puts("a line that nobody reads while the case runs");
       return Outcome::pass();
     }},
    {"no_utf8", 1, [](const Place&) { return Outcome::fail("\xff\xfe bytes"); }},
    {"environment", 2,
     [](const Place& p) {
       const char* value = std::getenv("CONFORM_TEST");
       const bool right =
           value && std::string(value) == "rank " + std::to_string(p.rank) && !std::getenv("TUTTI_TRANSPORT");
       return right ? Outcome::pass() : Outcome::fail(value ? value : "unset");
     }},
    {"folder", 2,
     [](const Place& p) {
       std::ofstream(p.folder + "/rank" + std::to_string(p.rank)) << p.seed;
       for (int i = 0; i < 60'000; ++i) {
         if (std::ifstream(p.folder + "/rank" + std::to_string(1 - p.rank))) return Outcome::pass();
         std::this_thread::sleep_for(std::chrono::milliseconds(1));
       }
       return Outcome::fail("the other's file does not come");
     }},
    {"needs_memory", 1, [](const Place&) { return Outcome::fail("it must not run"); }},
    // Three cases of one job: the second fails, so the third must run in another process.
    {"job_a", 1,
     [](const Place& p) {
       p.shared = std::make_shared<int>(static_cast<int>(getpid()));
       return Outcome::pass();
     }},
    {"job_b", 1,
     [](const Place& p) {
       const bool same = p.shared && *static_cast<int*>(p.shared.get()) == static_cast<int>(getpid());
       return Outcome::fail(same ? "the same process" : "another process");
     }},
    {"job_c", 1, [](const Place& p) { return p.shared ? Outcome::fail("a bad process went on") : Outcome::pass(); }},
};

Case case_of(const Misdeed& misdeed) {
  Case one;
  one.id = std::string("misdeed/") + misdeed.name;
  one.processes = misdeed.processes;
  one.run = misdeed.run;
  one.deadline_ms = 60'000;
  const std::string name = misdeed.name;
  if (name.find("hang") != std::string::npos && name.find("after") == std::string::npos) one.deadline_ms = 700;
  if (name.rfind("job_", 0) == 0) one.job = "job";
  if (name == "needs_memory") one.needs.free_memory = uint64_t{1} << 60;
  if (name == "environment")
    one.environment = [](uint32_t rank) {
      return std::vector<std::string>{"CONFORM_TEST=rank " + std::to_string(rank)};
    };
  return one;
}

Suite misdeed_suite() {
  return {"misdeed", "cases that do what they must not",
          [](const Selection&, std::vector<Case>& cases) {
            for (const Misdeed& misdeed : misdeeds) cases.push_back(case_of(misdeed));
          },
          nullptr};
}

std::vector<Result> run(const std::vector<std::string>& names, RunnerOptions options = {}) {
  std::vector<Case> cases;
  for (const std::string& name : names)
    for (const Misdeed& misdeed : misdeeds)
      if (name == misdeed.name) cases.push_back(case_of(misdeed));
  EXPECT_EQ(cases.size(), names.size());
  return run_cases(cases, options);
}
Result run(const std::string& name) { return run(std::vector<std::string>{name})[0]; }

struct Expectation {
  const char* name;
  Verdict verdict;
  const char* says;
};
const Expectation expectations[] = {
    {"pass", Verdict::pass, ""},
    {"pass_of_three", Verdict::pass, ""},
    {"fail", Verdict::fail, "four, expected five"},
    {"fail_of_rank_2", Verdict::fail, "rank 2: wrong"},
    {"throw", Verdict::fail, "thrown"},
    {"segfault", Verdict::crash, "signal 11"},
    {"abort_of_rank_1", Verdict::crash, "process 1 was killed by signal 6"},
    {"exit", Verdict::crash, "exited with status 3"},
    {"others_hang_after_a_fail", Verdict::fail, "seen by rank 0"},
    {"crash_at_end", Verdict::crash, "after the case"},
    {"status_at_end", Verdict::crash, "status 9"},
    {"leaves_a_child", Verdict::fail, "left 1 processes behind"},
    {"not_supported", Verdict::not_supported, "no such wire"},
    {"not_supported_by_one", Verdict::fail, "not supported"},
    {"warning", Verdict::warning, "slow"},
    {"long_message", Verdict::fail, "xxxend"},
    {"much_output", Verdict::pass, ""},
    {"no_utf8", Verdict::fail, "bytes"},
    {"environment", Verdict::pass, ""},
    {"folder", Verdict::pass, ""},
    {"needs_memory", Verdict::not_run, "free memory"},
};
const Expectation hanging[] = {
    {"hang_of_rank_1", Verdict::timeout, "silent: 1"},
    {"ignores_signals_and_hangs", Verdict::timeout, "within 0.7 s"},
};

class Runner : public testing::TestWithParam<Expectation> {};

void expect_verdict(const Expectation& expected) {
  setenv("TUTTI_TRANSPORT", "of the caller", 1);
  const Result result = run(expected.name);
  EXPECT_EQ(result.outcome.verdict, expected.verdict) << verdict_name(result.outcome.verdict);
  const std::string& message = result.outcome.message;
  const std::string shown = message.size() > 500 ? message.substr(message.size() - 500) : message;
  EXPECT_NE(message.find(expected.says), std::string::npos) << shown;
  // Nothing is left: neither children nor zombies.
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
}
TEST_P(Runner, GivesTheVerdict) { expect_verdict(GetParam()); }
INSTANTIATE_TEST_SUITE_P(Misdeeds, Runner, testing::ValuesIn(expectations),
                         [](const auto& each) { return std::string(each.param.name); });

using RealTimeRunner = Runner;
TEST_P(RealTimeRunner, GivesTheVerdict) { expect_verdict(GetParam()); }
INSTANTIATE_TEST_SUITE_P(Misdeeds, RealTimeRunner, testing::ValuesIn(hanging),
                         [](const auto& each) { return std::string(each.param.name); });

TEST(RunnerResult, TellsClauseOutputAndReproducer) {
  EXPECT_EQ(run("fail").outcome.clause, "T-99");
  EXPECT_NE(run("segfault").outcome.message.find("the last words"), std::string::npos);
  RunnerOptions options;
  options.seed = 0x1234;
  options.plugins = {};
  const Result result = run(std::vector<std::string>{"fail"}, options)[0];
  EXPECT_EQ(result.reproduce, "tutti-conform --reproduce 'misdeed/fail@1234'");
  EXPECT_EQ(result.seed, case_seed(0x1234, "misdeed/fail"));
  EXPECT_NE(result.seed, case_seed(0x1235, "misdeed/fail"));
  EXPECT_NE(result.seed, case_seed(0x1234, "misdeed/pass"));
}

// The effect of tutti-conform --patience: the case sleeps longer than its limit and less than ten times that.
TEST(RunnerResult, RealTimePatienceMakesLimitsLonger) {
  EXPECT_EQ(run("hang_for_a_while").outcome.verdict, Verdict::timeout);
  RunnerOptions options;
  options.patience = 10;
  const Result result = run(std::vector<std::string>{"hang_for_a_while"}, options)[0];
  EXPECT_EQ(result.outcome.verdict, Verdict::pass) << result.outcome.message;
  EXPECT_NE(result.reproduce.find(" --patience 10"), std::string::npos) << result.reproduce;
}

TEST(RunnerJobs, ShareAProcessUntilSomethingIsWrong) {
  const std::vector<Result> results = run(std::vector<std::string>{"job_a", "pass", "job_b", "job_c"});
  EXPECT_EQ(results[0].outcome.verdict, Verdict::pass);
  EXPECT_NE(results[2].outcome.message.find("the same process"), std::string::npos) << results[2].outcome.message;
  EXPECT_EQ(results[3].outcome.verdict, Verdict::pass) << results[3].outcome.message;
}

TEST(RunnerJobs, StopAtTheFirstBadOne) {
  RunnerOptions options;
  options.stop_at_first_bad = true;
  std::vector<std::string> told;
  options.on_result = [&](const Result& result) { told.push_back(result.id); };
  const std::vector<Result> results = run({"pass", "fail", "pass_of_three"}, options);
  EXPECT_EQ(results[1].outcome.verdict, Verdict::fail);
  EXPECT_EQ(results[2].outcome.verdict, Verdict::not_run);
  EXPECT_EQ(told, (std::vector<std::string>{"misdeed/pass", "misdeed/fail"}));
}

TEST(RunnerPrograms, OneThatCannotBeStartedIsACrash) {
  RunnerOptions options;
  options.program = "/no/such/program";
  const Result result = run({"pass"}, options)[0];
  EXPECT_EQ(result.outcome.verdict, Verdict::crash);
  EXPECT_NE(result.outcome.message.find("/no/such/program"), std::string::npos) << result.outcome.message;
}

TEST(Patterns, StarsStandForAnything) {
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("a/*/c", "a/b/b/c"));
  EXPECT_TRUE(matches("*ring*", "matrix/ring/shm"));
  EXPECT_TRUE(matches("a*b*c", "abbbc"));
  EXPECT_FALSE(matches("a*b*c", "abbb"));
  EXPECT_FALSE(matches("ring", "rings"));
}

}  // namespace
}  // namespace tutti::conformance

int main(int argc, char** argv) {
  tutti::conformance::add_suite(tutti::conformance::misdeed_suite());
  if (argc > 1 && std::strcmp(argv[1], tutti::conformance::worker_argument) == 0)
    return tutti::conformance::run_worker();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
