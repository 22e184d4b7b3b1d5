// SPDX-License-Identifier: Apache-2.0
//
// Splitting a communicator, ranks as processes: deaths, processes that end early, one that has too little, and what a
// communicator more costs.
#include <dirent.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <tutti/registry.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "../../../tests/harness/ranks.hpp"
#include "../../../tests/harness/sanitized.hpp"

namespace tutti::test {
namespace {

void expect_sum(const Communicator& part) {
  std::vector<int64_t> data(3000, part.rank() + 1);
  part.all_reduce<int64_t>(data, data, Op::sum);
  EXPECT_EQ(data, std::vector<int64_t>(3000, part.nranks() * (part.nranks() + 1) / 2));
}

int descriptors() {
  int n = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(folder)) n += entry->d_name[0] != '.';
  closedir(folder);
  return n - 1;
}

void wait_for_file(const std::string& path) {
  while (!std::filesystem::exists(path)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Runs the ranks as processes; `killed` ends by SIGKILL. The processes' failures are the test's.
class SplitProcesses : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    list_transports();
    folder_ = std::filesystem::temp_directory_path() / "tutti-split-XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void run(uint32_t nranks, const std::function<void(Communicator&)>& body, int killed = -1) {
    std::vector<pid_t> ranks;
    for (uint32_t r = 0; r < nranks; ++r) {
      const pid_t child = fork();
      if (child == 0) {
        try {
          const std::string place = "file:" + folder_;
          tutti_comm_config config = config_of(place, r, nranks);
          config.transports = GetParam();
          Communicator world(config);
          body(world);
        } catch (const std::exception& e) {
          ADD_FAILURE() << "rank " << r << " of " << nranks << ": " << e.what();
        }
        std::_Exit(HasFailure() ? 1 : 0);
      }
      ranks.push_back(child);
    }
    for (size_t r = 0; r < ranks.size(); ++r) {
      int status = 0;
      waitpid(ranks[r], &status, 0);
      if (static_cast<int>(r) == killed)
        EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
      else
        EXPECT_EQ(status, 0) << "rank " << r;
    }
  }
  std::string flag(const std::string& name) const { return folder_ + "/" + name; }
  void raise(const std::string& name) const { std::ofstream(flag(name)); }

  std::string folder_;
};

TEST_P(SplitProcesses, ADeathBreaksThePartsThatHaveIt) {
  run(
      6,
      [&](Communicator& world) {
        const uint32_t r = world.rank();
        std::optional<Communicator> half = world.split(r % 2), third = world.split(r / 2);
        expect_sum(*half);
        expect_sum(*third);
        raise(std::to_string(r));
        for (uint32_t other = 0; other < 6 && r == 3; ++other) wait_for_file(flag(std::to_string(other)));
        if (r == 3) ::kill(getpid(), SIGKILL);
        if (r % 2 == 1) {
          const Failed failed = failure_of([&] {
            for (;;) half->barrier();
          });
          EXPECT_EQ(failed.status, TUTTI_PEER_FAILED) << failed.text;
          EXPECT_TRUE(failed.text.starts_with("rank 1 ")) << failed.text;
          EXPECT_EQ(half->lost(), std::vector<uint32_t>{1});
          Communicator next = half->shrink();
          EXPECT_EQ(next.nranks(), 2u);
          expect_sum(next);
          std::optional<Communicator> again = next.split(0);
          expect_sum(*again);
        } else {
          for (int i = 0; i < 20; ++i) expect_sum(*half);
          std::optional<Communicator> back = half->split(0, -static_cast<int64_t>(r));
          expect_sum(*back);
        }
        if (r != 2)
          for (int i = 0; i < 5; ++i) expect_sum(*third);
        EXPECT_EQ(failure_of([&] { world.split(0); }).status, TUTTI_PEER_FAILED);
      },
      3);
}

// Ranks 0 and 3 of eight have no control connection with each other. All others have ended their communicators, and
// stay for a while.
TEST_P(SplitProcesses, OthersPassOnWhatARankSays) {
  run(8, [&](Communicator& world) {
    const uint32_t r = world.rank();
    std::optional<Communicator> pair = world.split(r == 0 || r == 3 ? 0 : TUTTI_NO_COLOR);
    Communicator(std::move(world));  // ends
    if (!pair) return wait_for_file(flag("done"));
    for (int i = 0; i < 5; ++i) {
      expect_sum(*pair);
      std::optional<Communicator> more = pair->split(0);
      expect_sum(*more);
    }
    const bool tells = pair->rank() == 0;
    pair.reset();
    if (tells) raise("done");
  });
}

// A process that ends in order while others go on breaks nothing.
TEST_P(SplitProcesses, OneThatEndsEarlyIsNotMissed) {
  run(3, [&](Communicator& world) {
    const uint32_t r = world.rank();
    std::optional<Communicator> pair = world.split(r == 1 ? TUTTI_NO_COLOR : 0);
    Communicator(std::move(world));
    if (!pair) return;
    for (int i = 0; i < 300; ++i) {
      expect_sum(*pair);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(pair->async_error(), TUTTI_OK);
    expect_sum(*pair->split(0));
  });
}

// Whether it is the part that cannot be made or its first use that fails is the transport's matter.
TEST_P(SplitProcesses, ARankThatHasTooLittleFailsTheCallOnAll) {
  if (sanitized) GTEST_SKIP() << "sanitizers need descriptors";
  run(3, [&](Communicator& world) {
    const uint32_t r = world.rank();
    std::optional<Communicator> before = world.split(0);
    expect_sum(*before);
    world.barrier();
    rlimit old{};
    getrlimit(RLIMIT_NOFILE, &old);
    std::vector<int> taken;
    if (r == 1) {
      const rlimit little{static_cast<rlim_t>(descriptors() + 50), old.rlim_max};
      setrlimit(RLIMIT_NOFILE, &little);
      for (int fd = dup(0); fd >= 0; fd = dup(0)) taken.push_back(fd);
    }
    const Failed failed = failure_of([&] { world.split(0)->barrier(); });
    EXPECT_LT(failed.status, 0) << failed.text;
    EXPECT_NE(failed.text.find("ulimit -n"), std::string::npos) << failed.text;
    EXPECT_NE(failed.text.find("rank 1"), std::string::npos) << failed.text;
    setrlimit(RLIMIT_NOFILE, &old);
    for (const int fd : taken) close(fd);
    expect_sum(world);
    expect_sum(*before);
    expect_sum(*world.split(r % 2));
  });
}

// The first split has the family meet. From then on a part costs no descriptor until it is used, then the endpoints
// that it opens, and gives all back.
TEST_P(SplitProcesses, AnotherCommunicatorIsCheap) {
  run(3, [&](Communicator& world) {
    const auto threads = [] {
      return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                           std::filesystem::directory_iterator());
    };
    std::optional<Communicator> first = world.split(0);
    world.barrier();
    const int before = descriptors(), most = before + 1;  // the thread's own, once it has slept
    const auto threads_before = threads();
    {
      std::vector<std::optional<Communicator>> parts;
      for (int i = 0; i < 20; ++i) parts.push_back(world.split(0));
      EXPECT_LE(descriptors(), most);
      EXPECT_EQ(threads(), threads_before);
      for (const auto& part : parts) expect_sum(*part);
    }
    EXPECT_LE(descriptors(), most);
  });
}

// The endpoints of a family share what they need of the system. (A link over TCP is a socket.)
using SharedMemoryProcesses = SplitProcesses;
TEST_P(SharedMemoryProcesses, FiveHundredPartsInUseNeedNoDescriptors) {
  if (sanitized) GTEST_SKIP() << "sanitizers need descriptors";
  run(4, [&](Communicator& world) {
    std::optional<Communicator> first = world.split(0);
    expect_sum(*first);
    const rlimit few{static_cast<rlim_t>(descriptors() + 40), static_cast<rlim_t>(descriptors() + 40)};
    setrlimit(RLIMIT_NOFILE, &few);
    std::vector<std::optional<Communicator>> parts;
    for (int i = 0; i < 500; ++i) {
      parts.push_back(world.split(0));
      expect_sum(*parts.back());
    }
    std::vector<int64_t> mine(4, world.rank()), all(4);
    for (const auto& part : parts) {
      part->all_to_all<int64_t>(mine, all);
      EXPECT_EQ(all, (std::vector<int64_t>{0, 1, 2, 3}));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, SharedMemoryProcesses, ::testing::Values("shm"));
INSTANTIATE_TEST_SUITE_P(Transports, SplitProcesses, ::testing::Values("shm", "tcp"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace tutti::test
