// SPDX-License-Identifier: Apache-2.0
//
// tutti_comm_destroy beside calls of other threads that any thread may make at any time: a watchdog that aborts and
// asks, as applications have one for a job that hangs at its end. And beside calls of ranks that wait for this one.
#include <tutti/tutti.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>

#include "../../../tests/harness/ranks.hpp"
#include "../../../tests/harness/virtual_time/virtual_time.hpp"

namespace tutti::test {
namespace {

using Clock = std::chrono::steady_clock;

// Asks and aborts until told to stop. The handle may lose its communicator meanwhile.
void watch(tutti_comm* comm, const std::atomic<bool>& stop, bool aborts) {
  while (!stop) {
    uint32_t lost[4];
    uint64_t n = 4;
    const tutti_status asked[] = {tutti_comm_async_error(comm), tutti_comm_lost(comm, lost, &n),
                                  aborts ? tutti_comm_abort(comm, "enough") : tutti_status{TUTTI_OK}};
    for (const tutti_status status : asked)
      EXPECT_TRUE(status == TUTTI_OK || status == TUTTI_ABORTED || status == TUTTI_INVALID_USAGE) << status;
  }
}

TEST(Destroy, BesideThreadsThatAsk) {
  for (int round = 0; round < 30; ++round) {
    const std::string place = fresh_place();
    std::barrier ready(2);  // no barrier of theirs is under way when a rank aborts
    std::vector<std::thread> threads;
    for (uint32_t r = 0; r < 2; ++r)
      threads.emplace_back([&, r] {
        tutti_comm_config config = config_of(place, r, 2);
        config.transports = round % 2 ? "tcp" : "shm";
        config.flags = round % 3 ? 0u : uint32_t{TUTTI_COMM_PROGRESS_THREAD};
        tutti_comm* comm = nullptr;
        ASSERT_EQ(tutti_comm_create(&config, &comm), TUTTI_OK);
        ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);
        ready.arrive_and_wait();
        std::atomic<bool> stop{false};
        const bool aborts = round >= 15 && r == 0;
        std::thread watchdog([&] { watch(comm, stop, aborts); });
        std::this_thread::sleep_for(std::chrono::microseconds(round * 37 % 500));
        const tutti_status status = tutti_comm_destroy(comm);
        EXPECT_TRUE(status == TUTTI_OK || (round >= 15 && status == TUTTI_ABORTED)) << tutti_comm_error(comm);
        stop = true;
        watchdog.join();
        EXPECT_EQ(tutti_comm_abort(comm, nullptr), TUTTI_INVALID_USAGE);
        EXPECT_EQ(tutti_comm_async_error(comm), TUTTI_INVALID_USAGE);
      });
    for (std::thread& t : threads) t.join();
  }
}

// A rank that does not come is waited for once, not once for each communicator.
void expect_one_deadline(uint32_t flags) {
  const VirtualTime time;
  constexpr size_t communicators = 9;
  std::vector<std::string> places;
  for (size_t c = 0; c < communicators; ++c) places.push_back(fresh_place());
  std::atomic<bool> over{false};
  const auto rank = [&](uint32_t r) {
    std::vector<tutti_comm*> comms(communicators);
    for (size_t c = 0; c < communicators; ++c) {
      tutti_comm_config config = config_of(places[c], r, 2);
      config.flags = flags;
      ASSERT_EQ(tutti_comm_create(&config, &comms[c]), TUTTI_OK);
    }
    while (r == 1 && !over) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    for (tutti_comm* const comm : comms) {
      const tutti_status status = tutti_comm_destroy(comm);
      if (r == 1) continue;
      EXPECT_EQ(status, TUTTI_TIMEOUT);
      const bool is_short =
          std::string(tutti_comm_error(comm)).find("has waited for that process") != std::string::npos;
      EXPECT_EQ(is_short, comm != comms.front()) << tutti_comm_error(comm);
      const char* const after =
          is_short ? "timed out after 1 s" : "timed out after 60 s (the communicator's connect timeout)";
      EXPECT_NE(std::string(tutti_comm_error(comm)).find(after), std::string::npos) << tutti_comm_error(comm);
    }
    over = true;
  };
  const auto begin = time.passed();
  std::thread other(rank, 1), one_after_the_other(rank, 0);  // each thread remembers for itself
  one_after_the_other.join();
  const std::chrono::nanoseconds one(config_of("", 0, 2).connect_timeout_ns);
  EXPECT_GE(time.passed() - begin, one);
  EXPECT_LT(time.passed() - begin, 2 * one);
  other.join();
}
TEST(Destroy, SeveralInARowWaitForOneDeadline) {
  expect_one_deadline(0);
  expect_one_deadline(TUTTI_COMM_CHECK_CALLS);
}

// One rank does not come to the end of the first communicator. The second one has another rank, which is late: as ranks
// are threads here, they are told apart by their numbers.
TEST(Destroy, AnotherRankThatIsLateIsWaitedFor) {
  const VirtualTime time;
  const std::string first = fresh_place(), second = fresh_place();
  const std::chrono::nanoseconds whole(config_of(first, 0, 2).connect_timeout_ns);
  std::atomic<bool> over{false};
  const auto create = [](const std::string& place, uint32_t rank) {
    const tutti_comm_config config = config_of(place, rank, 2);
    tutti_comm* comm = nullptr;
    EXPECT_EQ(tutti_comm_create(&config, &comm), TUTTI_OK);
    return comm;
  };
  std::thread absent([&] {
    tutti_comm* const comm = create(first, 1);
    while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    tutti_comm_destroy(comm);
  });
  std::thread late([&] {
    tutti_comm* const comm = create(second, 0);
    std::this_thread::sleep_for(whole + std::chrono::seconds(10));
    EXPECT_EQ(tutti_comm_destroy(comm), TUTTI_OK) << tutti_comm_error(comm);
  });
  std::thread both([&] {
    tutti_comm* const with_absent = create(first, 0);
    tutti_comm* const with_late = create(second, 1);
    EXPECT_EQ(tutti_comm_destroy(with_absent), TUTTI_TIMEOUT);
    EXPECT_EQ(tutti_comm_destroy(with_late), TUTTI_OK) << tutti_comm_error(with_late);
  });
  both.join();
  over = true;
  absent.join();
  late.join();
}

// A rank that waits in destroy for one that is late goes on when somebody aborts.
TEST(Destroy, AnAbortEndsTheWaitForALateRank) {
  for (const uint32_t flags : {0u, uint32_t{TUTTI_COMM_PROGRESS_THREAD}}) {
    const std::string place = fresh_place();
    std::atomic<bool> destroyed{false};
    std::vector<std::thread> threads;
    for (uint32_t r = 0; r < 2; ++r)
      threads.emplace_back([&, r] {
        tutti_comm_config config = config_of(place, r, 2);
        config.flags = flags;
        tutti_comm* comm = nullptr;
        ASSERT_EQ(tutti_comm_create(&config, &comm), TUTTI_OK);
        ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);
        if (r == 1) {
          while (!destroyed) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          EXPECT_EQ(tutti_comm_async_error(comm), TUTTI_ABORTED);
          EXPECT_EQ(tutti_comm_destroy(comm), TUTTI_ABORTED);
          return;
        }
        std::thread watchdog([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
          EXPECT_EQ(tutti_comm_abort(comm, "it takes too long"), TUTTI_OK);
        });
        const auto begin = Clock::now();
        EXPECT_EQ(tutti_comm_destroy(comm), TUTTI_ABORTED);
        EXPECT_LT(Clock::now() - begin, std::chrono::seconds(60));  // the connect timeout
        EXPECT_NE(std::string(tutti_comm_error(comm)).find("it takes too long"), std::string::npos)
            << tutti_comm_error(comm);
        destroyed = true;
        watchdog.join();
      });
    for (std::thread& t : threads) t.join();
  }
}

// A rank that leaves says so: who waits for its call does not wait for the deadline, which here is ten minutes.
TEST(Destroy, EndsTheCallsOfThoseThatWait) {
  const std::vector<std::vector<uint32_t>> cases = {{1}, {0}, {1, 2}, {0, 1, 3}};
  for (const auto& leavers : cases)
    for (const char* transports : {"shm", "tcp"}) {
      const VirtualTime time;
      const std::string place = fresh_place();
      std::vector<std::thread> threads;
      for (uint32_t r = 0; r < 4; ++r)
        threads.emplace_back([&, r] {
          tutti_comm_config config = config_of(place, r, 4);
          config.transports = transports;
          config.timeout_ns = 600'000'000'000;
          tutti_comm* comm = nullptr;
          ASSERT_EQ(tutti_comm_create(&config, &comm), TUTTI_OK);
          ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);
          const bool leaves = std::ranges::count(leavers, r) > 0;
          std::vector<float> data(1000, 1);
          if (!leaves) {
            EXPECT_EQ(tutti_all_reduce(comm, data.data(), data.data(), data.size(), TUTTI_FLOAT32, TUTTI_SUM, nullptr, nullptr),
                      TUTTI_PEER_FAILED);
          }
          const std::string text = tutti_comm_error(comm);
          EXPECT_EQ(tutti_comm_destroy(comm), TUTTI_PEER_FAILED);
          if (!leaves) {
            EXPECT_NE(text.find(" has not entered operation #1: it destroys the communicator instead"), std::string::npos) << text;
            bool named = false;
            for (const uint32_t leaver : leavers) named |= text.starts_with("rank " + std::to_string(leaver) + " ");
            EXPECT_TRUE(named) << text;
          }
        });
      for (std::thread& t : threads) t.join();
      EXPECT_LT(time.passed(), std::chrono::seconds(20));
    }
}

// Calls that ranks have made before they destroy the communicator come to their end.
TEST(Destroy, LeavesCallsThatAreUnderWay) {
  for (int round = 0; round < 20; ++round)
    run_ranks(4, [](Communicator& world) {
      std::vector<int64_t> data[3];
      tutti_request* requests[3];
      for (int n = 0; n < 3; ++n) {
        data[n].assign(100'000, 1);
        ASSERT_EQ(tutti_all_reduce(world.handle(), data[n].data(), data[n].data(), data[n].size(), TUTTI_INT64, TUTTI_SUM, nullptr,
                                   &requests[n]),
                  TUTTI_OK);
      }
      for (int n = 0; n < 3; ++n) {
        ASSERT_EQ(tutti_request_wait(requests[n]), TUTTI_OK) << tutti_request_error(requests[n]);
        tutti_request_free(requests[n]);
        EXPECT_EQ(data[n].back(), 4);
      }
    });
}

TEST(Destroy, OnceIsEnoughForTwoThreads) {
  const std::string place = fresh_place();
  tutti_comm_config config = config_of(place, 0, 1);
  tutti_comm* comm = nullptr;
  ASSERT_EQ(tutti_comm_create(&config, &comm), TUTTI_OK);
  std::atomic<int> done{0}, refused{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) threads.emplace_back([&] { ++(tutti_comm_destroy(comm) == TUTTI_OK ? done : refused); });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(done, 1);
  EXPECT_EQ(refused, 1);
}

}  // namespace
}  // namespace tutti::test
