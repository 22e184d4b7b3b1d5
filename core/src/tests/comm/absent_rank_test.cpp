// SPDX-License-Identifier: Apache-2.0
//
// Ranks that are processes wait for one that has begun an operation and does something else: it is the one that all
// name, not a rank that noticed.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <sstream>

#include "../../../tests/harness/ranks.hpp"
#include "../../../tests/harness/virtual_time/virtual_time.hpp"

namespace tutti::test {
namespace {

constexpr uint32_t kRanks = 3, kAbsent = 1;
constexpr uint64_t kTimeoutNs = 2'000'000'000;

// The outcome at a rank: a status, the ranks that it calls lost, and its error's text.
std::string live(const std::string& place, uint32_t rank, const char* transports) {
  tutti_comm_config config = config_of(place, rank, kRanks);
  config.timeout_ns = kTimeoutNs;
  config.transports = transports;
  tutti_comm* comm = nullptr;
  std::ostringstream seen;
  if (tutti_comm_create(&config, &comm) < 0) return "no communicator";
  std::vector<float> in(1 << 20, 1), out(1 << 20);
  tutti_all_reduce(comm, in.data(), out.data(), in.size(), TUTTI_FLOAT32, TUTTI_SUM, nullptr, nullptr);
  tutti_request* request = nullptr;
  tutti_all_reduce(comm, in.data(), out.data(), in.size(), TUTTI_FLOAT32, TUTTI_SUM, nullptr, &request);
  if (rank == kAbsent) std::this_thread::sleep_for(std::chrono::seconds(5));
  seen << tutti_request_wait(request) << " lost";
  uint32_t lost[kRanks];
  uint64_t n = kRanks;
  tutti_comm_lost(comm, lost, &n);
  for (uint64_t i = 0; i < n; ++i) seen << " " << lost[i];
  seen << ": " << tutti_request_error(request);
  tutti_request_free(request);
  tutti_comm_destroy(comm);
  return seen.str();
}

TEST(AbsentRank, IsNamedByAll) {
  for (const char* transports : {"shm", "tcp"}) {
    std::string folder = std::filesystem::temp_directory_path() / "tutti-absent-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    pid_t child[kRanks];
    int out[kRanks];
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      int ends[2];
      ASSERT_EQ(pipe(ends), 0);
      child[rank] = fork();
      if (child[rank] == 0) {
        const std::string seen = live("file:" + folder, rank, transports);
        (void)!write(ends[1], seen.data(), seen.size());
        _exit(0);
      }
      close(ends[1]);
      out[rank] = ends[0];
    }
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      std::string seen;
      char bytes[4096];
      for (ssize_t n = 0; (n = read(out[rank], bytes, sizeof bytes)) > 0;) seen.append(bytes, static_cast<size_t>(n));
      close(out[rank]);
      waitpid(child[rank], nullptr, 0);
      EXPECT_TRUE(seen.starts_with(std::to_string(TUTTI_TIMEOUT) + " lost 1: rank 1 has been outside Tutti for "))
          << "rank " << rank << " over " << transports << ": " << seen;
    }
    std::filesystem::remove_all(folder);
  }
}

// A timeout names what has set it, so that the user changes what counts.
TEST(AbsentRank, TheTextNamesWhatHasSetTheTime) {
  const VirtualTime time;
  struct Case {
    const char* variable;  // TUTTI_TIMEOUT
    uint64_t communicator_s;
    std::chrono::seconds call;
    const char* says;
  };
  for (const Case& c : {Case{"50", 0, {}, "no progress for 50.0 s (TUTTI_TIMEOUT)"},
                        Case{"50", 40, {}, "no progress for 40.0 s (the communicator's timeout)"},
                        Case{"50", 40, std::chrono::seconds(45), "no progress for 45.0 s (the call's timeout)"},
                        Case{"50", 0, std::chrono::seconds(45), "no progress for 45.0 s (the call's timeout)"}}) {
    setenv("TUTTI_TIMEOUT", c.variable, 1);
    run_ranks(2,
              [&](Communicator& world) {
                std::vector<float> data(10);
                const Failed failed =
                    failure_of([&] { world.receive<float>(data, 1 - world.rank(), 0, {.timeout = c.call}); });
                EXPECT_EQ(failed.status, TUTTI_TIMEOUT);
                EXPECT_NE(failed.text.find(c.says), std::string::npos) << c.says << ": " << failed.text;
              },
              {nullptr, nullptr, 0, c.communicator_s * 1'000'000'000});
    unsetenv("TUTTI_TIMEOUT");
  }
}

// Where no rank is at fault that anybody knows of, none is called lost.
TEST(AbsentRank, WhoOnlyNoticesIsNotLost) {
  const VirtualTime time;
  run_ranks(2,
            [](Communicator& world) {
              std::vector<float> data(10);
              const Failed failed = failure_of([&] { world.receive<float>(data, 1 - world.rank()); });
              EXPECT_EQ(failed.status, TUTTI_TIMEOUT);
              EXPECT_NE(failed.text.find("timed out: no progress for 600.0 s (the default of TUTTI_TIMEOUT)"),
                        std::string::npos)
                  << failed.text;
              EXPECT_TRUE(world.lost().empty());
            },
            {nullptr, nullptr, 0, default_timeout});
  EXPECT_GE(time.passed(), std::chrono::seconds(600));
  EXPECT_LT(time.passed(), late(std::chrono::seconds(600)));
}

}  // namespace
}  // namespace tutti::test
