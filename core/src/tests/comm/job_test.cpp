// SPDX-License-Identifier: Apache-2.0
//
// Two ranks that are processes with variables of their own, seen from outside. The job's secret: with one, it is in
// nothing that they write; without one, they listen at MASTER_ADDR only and say so once. A plugin that one of them
// cannot load: both are told at once.
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "../../../tests/harness/ranks.hpp"

namespace tutti::test {
namespace {

namespace fs = std::filesystem;
constexpr char kSecret[] = "5ec2e700112233445566778899aabbccddeeff102132435465768798a9bacbdc";

// Looking at sockets that other threads close is a race of descriptors.
#if defined(__SANITIZE_THREAD__)
constexpr bool looks = false;
#else
constexpr bool looks = true;
#endif

// ---- A rank: tells what it has seen on standard output.

// Where this process listens for TCP connections.
std::set<std::string> listening() {
  std::set<std::string> all;
  DIR* folder = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    int accepts = 0;
    socklen_t size = sizeof accepts;
    sockaddr_storage at{};
    socklen_t length = sizeof at;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &size) != 0 || !accepts ||
        getsockname(fd, reinterpret_cast<sockaddr*>(&at), &length) != 0)
      continue;
    char text[INET6_ADDRSTRLEN] = "";
    if (at.ss_family == AF_INET)
      inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&at)->sin_addr, text, sizeof text);
    if (at.ss_family == AF_INET6)
      inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(&at)->sin6_addr, text, sizeof text);
    if (*text) all.insert(text);
  }
  closedir(folder);
  return all;
}

int rank_main(int communicators) {
  std::set<std::string> seen;
  const auto look = [&] {
    for (const std::string& address : listening()) seen.insert(address);
  };
  std::atomic<bool> over{false};
  std::thread watcher([&] {
    while (looks && !over) {
      look();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  try {
    for (int i = 0; i < communicators; ++i) {
      tutti_comm_config config{};
      config.struct_size = sizeof config;
      Communicator world(config);
      int32_t x = 1;
      world.all_reduce<int32_t>({&x, 1}, {&x, 1}, Op::sum);
      if (looks)
        for (const std::string& address : listening()) std::printf("listens %s\n", address.c_str());
      // An error with all that it says, at the end of the last one.
      if (i + 1 == communicators && world.rank() == 1) tutti_comm_abort(world.handle(), "enough");
      world.barrier();
    }
  } catch (const Error& error) {
    std::printf("error %s\n", error.what());
  }
  over = true;
  watcher.join();
  for (const std::string& address : seen) std::printf("listens %s\n", address.c_str());
  return 0;
}

// ---- The job.

// A port that nobody else gets while the object lives: held for all addresses, not listening.
class HeldPort {
 public:
  HeldPort() {
    for (const int family : {AF_INET6, AF_INET}) {
      socket_ = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const int on = 1, off = 0;
      sockaddr_in6 any{};  // the unspecified address of both families
      any.sin6_family = static_cast<sa_family_t>(family);
      socklen_t size = family == AF_INET6 ? sizeof any : sizeof(sockaddr_in);
      setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      if (family == AF_INET6) setsockopt(socket_, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
      if (socket_ >= 0 && bind(socket_, reinterpret_cast<sockaddr*>(&any), size) == 0 &&
          getsockname(socket_, reinterpret_cast<sockaddr*>(&any), &size) == 0) {
        port_ = ntohs(any.sin6_port);  // at the same place in both families
        return;
      }
      if (socket_ >= 0) close(socket_);
    }
    ADD_FAILURE() << "no port can be had";
  }
  ~HeldPort() { close(socket_); }
  int port() const { return port_; }

 private:
  int socket_ = -1, port_ = 0;
};

using Variables = std::map<std::string, std::string>;

// Two ranks with these variables, and those of its own for each; what they write is in FOLDER/rank-N.out and .err.
void run_job(const std::string& folder, const Variables& all, const std::vector<Variables>& own, int communicators) {
  const HeldPort port;
  pid_t child[2];
  for (int rank = 0; rank < 2; ++rank) {
    child[rank] = fork();
    if (child[rank] != 0) continue;
    Variables variables = all;
    for (const auto& [name, value] : own.empty() ? Variables() : own[static_cast<size_t>(rank)])
      variables[name] = value;
    unsetenv("TUTTI_SECRET");
    setenv("RANK", std::to_string(rank).c_str(), 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", std::to_string(port.port()).c_str(), 1);
    setenv("TUTTI_TRANSPORT", "tcp", 1);
    if (TUTTI_RECORD) setenv("TUTTI_RECORDER_DIR", folder.c_str(), 1);
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    const std::string stem = folder + "/rank-" + std::to_string(rank);
    dup2(open((stem + ".out").c_str(), O_WRONLY | O_CREAT, 0600), 1);
    dup2(open((stem + ".err").c_str(), O_WRONLY | O_CREAT, 0600), 2);
    execl("/proc/self/exe", "job_test", "rank", std::to_string(communicators).c_str(), nullptr);
    _exit(127);
  }
  for (const pid_t id : child) {
    int status = 0;
    waitpid(id, &status, 0);
    EXPECT_EQ(status, 0);
  }
}

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / "tutti-secret-XXXXXX") { EXPECT_NE(mkdtemp(path_.data()), nullptr); }
  ~Folder() { fs::remove_all(path_); }
  const std::string& path() const { return path_; }
  std::string text(const std::string& name) const { return text_of(path_ + "/" + name); }

 private:
  std::string path_;
};

// Neither as it is given nor as the bytes that it means.
void expect_no_secret(const Folder& folder) {
  std::string bytes;
  for (size_t i = 0; kSecret[i]; i += 2)
    bytes += static_cast<char>(std::stoi(std::string(kSecret + i, 2), nullptr, 16));
  size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
    if (!entry.is_regular_file()) continue;
    ++files;
    const std::string text = text_of(entry.path());
    EXPECT_EQ(text.find(kSecret), std::string::npos) << entry.path();
    EXPECT_EQ(text.find(bytes), std::string::npos) << entry.path();
    EXPECT_EQ(text.find(bytes.substr(0, 8)), std::string::npos) << entry.path();
  }
  EXPECT_GE(files, 4u + TUTTI_RECORD) << "output, log and flight record";
}

TEST(Secret, IsInNoLogErrorOrRecord) {
  const Folder folder;
  run_job(folder.path(), {{"TUTTI_SECRET", kSecret}, {"TUTTI_LOG", "trace"}}, {}, 1);
  EXPECT_NE(folder.text("rank-0.err").find("rank 0 of 2"), std::string::npos) << "the log is not at its most talkative";
  EXPECT_NE(folder.text("rank-0.out").find("error rank 1 aborted: enough"), std::string::npos)
      << folder.text("rank-0.out");
  expect_no_secret(folder);
}

TEST(Secret, RealTimeIsNotInTheErrorOfAnotherOne) {
  const Folder folder;
  std::string other = kSecret;
  other.back() = 'd';
  run_job(folder.path(), {{"TUTTI_SECRET", kSecret}, {"TUTTI_LOG", "trace"}, {"TUTTI_CONNECT_TIMEOUT", "2"}},
          {{}, {{"TUTTI_SECRET", other}}}, 1);
  EXPECT_NE(folder.text("rank-1.out").find("does not know this rank's secret"), std::string::npos);
  expect_no_secret(folder);
}

TEST(Plugin, OneThatARankCannotLoadEndsAll) {
  const Folder folder;
  const std::string file = folder.path() + "/libtutti-text.so";
  std::ofstream(file) << "this is no shared library";
  run_job(folder.path(), {{"TUTTI_SECRET", kSecret}, {"TUTTI_CONNECT_TIMEOUT", "30"}},
          {{}, {{"TUTTI_PLUGIN_PATH", file}}}, 1);
  for (const char* rank : {"rank-0", "rank-1"}) {
    const std::string said = folder.text(std::string(rank) + ".out");
    EXPECT_EQ(said.find("error "), 0u) << said;
    EXPECT_NE(said.find(file), std::string::npos) << said;
    EXPECT_TRUE(rank[5] == '1' || said.find("rank 1") != std::string::npos) << said;
  }
}

// A plugin may read schedules from a file: ranks that read different ones are told so before anything runs.
TEST(Plugin, ThatReadDifferentFilesIsTold) {
  for (const bool same : {true, false}) {
    const Folder folder;
    std::ofstream(folder.path() + "/one") << "a schedule";
    std::ofstream(folder.path() + "/two") << (same ? "a schedule" : "another schedule");
    run_job(folder.path(), {{"TUTTI_SECRET", kSecret}, {"TUTTI_PLUGIN_PATH", TUTTI_FILE_PLUGIN}},
            {{{"SAMPLE_FILE", folder.path() + "/one"}}, {{"SAMPLE_FILE", folder.path() + "/two"}}}, 1);
    for (const char* rank : {"rank-0", "rank-1"}) {
      const std::string said = folder.text(std::string(rank) + ".out");
      const bool differ =
          said.find("algorithm from-file comes from plugin \"from-file 1.0.0 with digest ") != said.npos;
      EXPECT_EQ(differ, !same) << said;
    }
  }
}

TEST(Secret, WithoutOneOnlyMasterAddrIsListenedAt) {
  if (!looks) GTEST_SKIP() << "looking at the sockets of other threads is a race for the thread sanitizer";
  const Folder folder;
  run_job(folder.path(), {}, {}, 2);
  size_t told = 0;
  for (const char* rank : {"rank-0", "rank-1"}) {
    std::set<std::string> places;
    std::istringstream lines(folder.text(std::string(rank) + ".out"));
    for (std::string word, address; lines >> word;)
      if (word == "listens" && lines >> address) places.insert(address);
    EXPECT_EQ(places, std::set<std::string>{"127.0.0.1"}) << rank;
    const std::string log = folder.text(std::string(rank) + ".err");
    for (size_t at = 0; (at = log.find("there is no TUTTI_SECRET", at)) != std::string::npos; ++at) ++told;
  }
  EXPECT_EQ(told, 1u) << folder.text("rank-0.err");
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "rank") == 0) return tutti::test::rank_main(std::atoi(argv[2]));
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
