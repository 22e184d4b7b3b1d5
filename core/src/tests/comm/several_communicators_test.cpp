// SPDX-License-Identifier: Apache-2.0
//
// Communicators that live side by side in a process: a wait in one brings the others' operations to their end, and one
// that breaks holds up none of the others.
#include <fcntl.h>
#include <sys/wait.h>
#include <tutti/memory.h>
#include <tutti/registry.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "../../../tests/harness/faulty.hpp"
#include "../../../tests/harness/ranks.hpp"
#include "../../../tests/harness/virtual_time/virtual_time.hpp"

namespace tutti::test {
namespace {

using Clock = std::chrono::steady_clock;

// Two communicators of two ranks.
struct Pair {
  std::string places[2];
  struct Setup setups[2];
};

void run_rank(const Pair& pair, uint32_t rank,
              const std::function<void(Communicator& first, Communicator& second)>& body) {
  try {
    std::vector<Communicator> both;
    for (int c = 0; c < 2; ++c) {
      tutti_comm_config config = config_of(pair.places[c], rank, 2);
      config.transports = pair.setups[c].transports;
      config.timeout_ns = pair.setups[c].timeout_ns;
      both.emplace_back(config);
    }
    body(both[0], both[1]);
  } catch (const std::exception& e) {
    ADD_FAILURE() << "rank " << rank << ": " << e.what();
  }
}

void run_threads(const std::function<void(Communicator& first, Communicator& second)>& body, struct Setup first,
                 struct Setup second) {
  const Pair pair{{fresh_place(), fresh_place()}, {first, second}};
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < 2; ++r) threads.emplace_back([&, r] { run_rank(pair, r, body); });
  for (std::thread& t : threads) t.join();
}

// Ranks that are threads of one process advance each other's communicators; processes cannot. Before all tests that
// start threads, which do not survive a fork.
void run_processes(const std::function<void(Communicator& first, Communicator& second)>& body, struct Setup setup) {
  Pair pair{{}, {setup, setup}};
  for (std::string& place : pair.places) {
    place = std::filesystem::temp_directory_path() / "tutti-several-XXXXXX";
    ASSERT_NE(mkdtemp(place.data()), nullptr);
    place.insert(0, "file:");
  }
  std::vector<pid_t> ranks;
  for (uint32_t r = 0; r < 2; ++r) {
    const pid_t child = fork();
    if (child == 0) {
      run_rank(pair, r, body);
      std::_Exit(testing::Test::HasFailure() ? 1 : 0);
    }
    ranks.push_back(child);
  }
  for (const pid_t rank : ranks) {
    int status = 0;
    waitpid(rank, &status, 0);
    EXPECT_EQ(status, 0) << setup.transports;
  }
  for (const std::string& place : pair.places) std::filesystem::remove_all(place.substr(5));
}

// Sends that a transport refuses for lack of credit leave nothing outstanding on it: a wait in the second communicator
// has to look for the credit all the same.
TEST(SeveralCommunicators, RefusedSendsOfAnotherGoOn) {
  constexpr int operations = 66;  // of 64 the sends are accepted; operations that queue for a window would look, too
  for (const char* transport : {"tcp", "shm"})
    run_processes(
        [](Communicator& first, Communicator& second) {
          std::vector<int64_t> data(operations, -1);
          if (first.rank() == 0) {
            std::vector<Request> requests;
            for (int k = 0; k < operations; ++k) {
              data[k] = k;
              requests.push_back(first.async().broadcast<int64_t>({&data[k], 1}, 0));
            }
            second.barrier();
            for (Request& r : requests) r.wait();
          } else {
            // By now the other one has sent what it may.
            std::this_thread::sleep_for(std::chrono::milliseconds(300));
            for (int k = 0; k < operations; ++k) {
              first.broadcast<int64_t>({&data[k], 1}, 0);
              ASSERT_EQ(data[k], k);
            }
            second.barrier();
          }
        },
        {transport});
}

// The other rank waits for an operation of this one, which waits in tutti_comm_create (then tutti_comm_destroy) for it.
TEST(SeveralCommunicators, OperationsGoOnWhileAnotherIsMadeAndDestroyed) {
  for (const char* transport : {"tcp", "shm"})
    run_processes(
        [](Communicator& first, Communicator& second) {
          const uint32_t rank = first.rank();
          std::vector<double> in(100'000, rank + 1.0), out(in.size());
          const auto check = [&] {
            for (const double x : out) ASSERT_EQ(x, 3.0);
          };
          tutti_unique_id id{};
          if (rank == 0) {
            ASSERT_EQ(tutti_unique_id_create(&id), TUTTI_OK);
          }
          second.broadcast<char>(id.text, 0);
          Request request = first.async().all_reduce<double>(in, out, Op::sum);
          if (rank == 1) request.wait();
          const std::string place = id.text;
          const tutti_comm_config config = config_of(place, rank, 2);
          std::optional<Communicator> third(std::in_place, config);
          request.wait();
          check();
          out.assign(out.size(), 0);
          request = second.async().all_reduce<double>(in, out, Op::sum);
          if (rank == 1) request.wait();
          third.reset();
          request.wait();
          check();
        },
        {transport});
}

// Standard descriptors, closed while this lives.
class ClosedStandardDescriptors {
 public:
  ClosedStandardDescriptors() {
    for (int fd = 0; fd < 3; ++fd) {
      kept_[fd] = fcntl(fd, F_DUPFD_CLOEXEC, 100);
      close(fd);
    }
  }
  ~ClosedStandardDescriptors() {
    for (int fd = 0; fd < 3; ++fd)
      if (kept_[fd] >= 0) {
        dup2(kept_[fd], fd);
        close(kept_[fd]);
      }
  }
  ClosedStandardDescriptors(const ClosedStandardDescriptors&) = delete;
  ClosedStandardDescriptors& operator=(const ClosedStandardDescriptors&) = delete;

 private:
  int kept_[3];
};

// Else the text that the application prints would go into a socket.
TEST(SeveralCommunicators, NoneTakesAStandardDescriptorThatIsClosed) {
  for (const char* transports : {"shm", "tcp"}) {
    std::string taken;
    {
      const ClosedStandardDescriptors closed;
      run_ranks(3,
                [&](Communicator& world) {
                  void* memory = nullptr;
                  EXPECT_EQ(tutti_mem_alloc(1 << 20, &memory), TUTTI_OK);
                  std::vector<int64_t> data(100'000, 1);
                  world.all_reduce<int64_t>(data, data, Op::sum);
                  EXPECT_EQ(data.back(), 3);
                  world.barrier();
                  if (world.rank() == 0)
                    for (int fd = 0; fd < 3; ++fd) {
                      char target[256] = "";
                      const std::string name = "/proc/self/fd/" + std::to_string(fd);
                      if (readlink(name.c_str(), target, sizeof target - 1) > 0)
                        taken += std::to_string(fd) + " is " + target + ", ";
                    }
                  world.barrier();
                  EXPECT_EQ(tutti_mem_free(memory), TUTTI_OK);
                },
                {.transports = transports});
    }
    EXPECT_EQ(taken, "") << transports;
  }
}

TEST(SeveralCommunicators, TheDeadlineOfAnotherHoldsDuringAWait) {
  const VirtualTime time;
  std::atomic<bool> over{false};
  run_threads(
      [&](Communicator& first, Communicator& second) {
        int32_t x = 1, y = 1;
        if (first.rank() == 1) {  // never comes to the first one's operation
          while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          second.barrier();
          return;
        }
        Request request = first.async().all_reduce<int32_t>({&x, 1}, {&y, 1}, Op::sum);
        std::thread watchdog([&] {
          const auto begin = time.passed();
          while (tutti_comm_async_error(first.handle()) == TUTTI_OK &&
                 time.passed() - begin < late(std::chrono::seconds(600)))
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          EXPECT_EQ(tutti_comm_async_error(first.handle()), TUTTI_TIMEOUT);
          over = true;
        });
        second.barrier();
        watchdog.join();
        const Failed failed = failure_of([&] { request.wait(); });
        EXPECT_EQ(failed.status, TUTTI_TIMEOUT) << failed.text;
      },
      {"shm", nullptr, 0, default_timeout}, {"shm", nullptr, 0, 3'600'000'000'000});
}

// The first breaks in a way that takes long: its transport never gives back what was posted.
TEST(SeveralCommunicators, RealTimeOneThatBreaksHoldsUpNoOther) {
  std::atomic<bool> broken{false};
  faulty::keeps_aborted = true;
  run_threads(
      [&](Communicator& first, Communicator& second) {
        std::vector<int32_t> in(100'000, 1), out(100'000);
        first.all_reduce<int32_t>(in, out, Op::sum);  // links are there
        Request request;
        if (first.rank() == 0) request = first.async().all_reduce<int32_t>(in, out, Op::sum);
        Clock::duration worst{};
        int32_t goes_on = 1;
        const auto limit = Clock::now() + std::chrono::seconds(30);
        while (goes_on) {
          const auto begin = Clock::now();
          // Asynchronous, so that the call has to enlist itself among the active ones.
          int32_t sum = 0;
          if (first.rank() == 0) {
            broken = tutti_comm_async_error(first.handle()) != TUTTI_OK || Clock::now() > limit;
            goes_on = !broken;
          }
          second.async().broadcast<int32_t>({&goes_on, 1}, 0).wait();
          second.async().all_reduce<int32_t>({&goes_on, 1}, {&sum, 1}, Op::sum).wait();
          worst = std::max(worst, Clock::now() - begin);
        }
        // A little longer: what follows the failure takes its time.
        for (const auto end = Clock::now() + std::chrono::seconds(1); goes_on == 0;) {
          const auto begin = Clock::now();
          int32_t on = first.rank() == 0 && Clock::now() < end;
          second.broadcast<int32_t>({&on, 1}, 0);
          worst = std::max(worst, Clock::now() - begin);
          if (!on) break;
        }
        EXPECT_LT(worst, std::chrono::seconds(3)) << "rank " << first.rank();  // it takes 5 s to give up
        EXPECT_NE(tutti_comm_async_error(first.handle()), TUTTI_OK);
        if (first.rank() == 0) {
          EXPECT_EQ(failure_of([&] { request.wait(); }).status, TUTTI_TIMEOUT);
        }
      },
      {"faulty", nullptr, 0, 500'000'000}, {"shm"});
  faulty::keeps_aborted = false;
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  tutti::test::faulty::load();
  return RUN_ALL_TESTS();
}
