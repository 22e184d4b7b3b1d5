// SPDX-License-Identifier: Apache-2.0
//
// One rank of a job of processes has too little of something: descriptors, address space. Wherever it runs out, while
// the communicator is made, in the first call or at the end, no rank hangs or crashes: all of them work, or every one
// gets an error, long before its deadline.
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <tutti/registry.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "../../../tests/harness/ranks.hpp"
#include "../../../tests/harness/sanitized.hpp"

namespace tutti::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kRanks = 3, kStarved = 1;
constexpr uint64_t kDeadlineNs = 120'000'000'000;
// Nobody may have waited for a deadline ...
constexpr auto kSoon = std::chrono::seconds(60);
// ... but for this one, when the starved rank cannot even come to the meeting.
constexpr uint64_t kMeetingNs = 2'000'000'000;

enum class Moment { creation, first_call };

struct Starvation {
  const char* what;
  int limit;
  Moment moment;
  const char* transports;
  bool meets = true;
};

rlim_t in_use(int limit) {
  if (limit == RLIMIT_AS) {
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  }
  rlim_t most = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(folder))
    if (std::atoi(entry->d_name) != dirfd(folder))
      most = std::max(most, static_cast<rlim_t>(std::atoi(entry->d_name)) + 1);
  closedir(folder);
  return most;
}

void starve(const Starvation& s, rlim_t more) {
  const rlim_t value = in_use(s.limit) + more;
  const rlimit bound{value, value};
  if (setrlimit(s.limit, &bound) != 0) _exit(3);
}

// A rank's life; what it says ends with "good" or begins with "error".
void live(const Starvation& s, uint32_t rank, rlim_t more, const std::string& place, int out) {
  static char text[8192];  // where no memory is needed to tell what happened
  const auto say = [&](const char* what, const char* why) {
    const int n = std::snprintf(text, sizeof text, "%s %s\n", what, why);
    (void)!write(out, text, static_cast<size_t>(std::min<int>(n, sizeof text - 1)));
  };
  if (rank == kStarved && s.moment == Moment::creation) starve(s, more);
  static char error[4096];
  tutti_comm_config config = config_of(place, rank, kRanks);
  config.transports = s.transports;
  config.timeout_ns = kDeadlineNs;
  config.connect_timeout_ns = s.meets ? kDeadlineNs : kMeetingNs;
  config.error = error;
  config.error_bytes = sizeof error;
  tutti_comm* comm = nullptr;
  if (tutti_comm_create(&config, &comm) < 0) return say("error", error);
  if (rank == kStarved && s.moment == Moment::first_call) starve(s, more);
  static int32_t data[100000];
  const auto failed = [&](tutti_status status) {
    if (status < 0) say("error", tutti_comm_error(comm));
    return status < 0;
  };
  if (failed(tutti_all_reduce(comm, data, data, std::size(data), TUTTI_INT32, TUTTI_SUM, nullptr, nullptr)) ||
      failed(tutti_barrier(comm, nullptr, nullptr))) {
    tutti_comm_destroy(comm);
    return;
  }
  if (const tutti_status status = tutti_comm_destroy(comm); status < 0) return say("error", tutti_comm_error(comm));
  say("good", "");
}

struct Outcome {
  bool good[kRanks] = {};
  std::string said[kRanks];
};

// One job; adds failures of the test for whatever must not be.
Outcome run(const Starvation& s, rlim_t more) {
  const std::string trace = std::string(s.what) + (s.moment == Moment::creation ? ", creation" : ", first call") +
                            " over " + s.transports + ", " + std::to_string(more) + " more";
  std::string folder = std::filesystem::temp_directory_path() / "tutti-starved-XXXXXX";
  EXPECT_NE(mkdtemp(folder.data()), nullptr);
  const auto start = Clock::now();
  pid_t child[kRanks];
  int out[kRanks];
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    child[rank] = fork();
    if (child[rank] == 0) {
      // So that the numbers of descriptors have no holes.
      if (dup2(ends[1], 3) != 3 || close_range(4, ~0u, 0) != 0) _exit(4);
      live(s, rank, more, "file:" + folder, 3);
      _exit(0);
    }
    close(ends[1]);
    out[rank] = ends[0];
  }
  Outcome outcome;
  bool ended = true;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    pollfd waiting{out[rank], POLLIN, 0};
    char bytes[4096];
    while (true) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(start + kSoon - Clock::now()).count();
      if (poll(&waiting, 1, static_cast<int>(std::max<int64_t>(left, 0))) != 1) {
        ADD_FAILURE() << trace << ": rank " << rank << " has waited for " << kSoon.count() << " s";
        kill(child[rank], SIGKILL);
        ended = false;
        break;
      }
      const ssize_t n = read(out[rank], bytes, sizeof bytes);
      if (n <= 0) break;
      outcome.said[rank].append(bytes, static_cast<size_t>(n));
    }
    close(out[rank]);
    int status = 0;
    waitpid(child[rank], &status, 0);
    EXPECT_TRUE(!ended || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
        << trace << ": rank " << rank << " ended with wait status " << status << " after " << outcome.said[rank];
    outcome.good[rank] = outcome.said[rank].starts_with("good");
  }
  std::filesystem::remove_all(folder);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    const std::string& said = outcome.said[rank];
    EXPECT_EQ(outcome.good[rank], outcome.good[kStarved])
        << trace << ": rank " << rank << " said " << said << ", the starved one " << outcome.said[kStarved];
    EXPECT_TRUE(outcome.good[rank] ||
                (said.starts_with("error ") && (rank == kStarved || said.find("rank 1") != std::string::npos)))
        << trace << ": rank " << rank << " said " << said;
  }
  return outcome;
}

TEST(StarvedRank, Descriptors) {
  if (sanitized) GTEST_SKIP() << "sanitizers need descriptors and threads after fork";
  list_transports();  // plugins are loaded before the limit
  run({"descriptors", RLIMIT_NOFILE, Moment::creation, "shm", false}, 0);
  for (const char* transports : {"shm", "tcp"})
    for (const Moment moment : {Moment::creation, Moment::first_call}) {
      bool good = false;
      for (rlim_t more = 1; more < 100 && !good; more += transports[0] == 's' ? 1 : 3)
        good = run({"descriptors", RLIMIT_NOFILE, moment, transports}, more).good[kStarved];
      EXPECT_TRUE(good) << "it never has enough";
    }
}

TEST(StarvedRank, AddressSpace) {
  if (sanitized) GTEST_SKIP() << "sanitizers need all of the address space";
  list_transports();
  for (const char* transports : {"shm", "tcp"}) {
    bool good = false;
    for (rlim_t mib = 1; mib < 1000 && !good; mib += mib < 8 ? 7 : mib < 24 ? 2 : 8) {
      good = run({"address space", RLIMIT_AS, Moment::creation, transports}, mib << 20).good[kStarved];
      if (mib < 20) run({"address space", RLIMIT_AS, Moment::first_call, transports}, mib << 20);
    }
    EXPECT_TRUE(good) << "it never has enough";
  }
}

}  // namespace
}  // namespace tutti::test
