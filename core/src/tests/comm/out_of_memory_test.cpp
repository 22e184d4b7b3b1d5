// SPDX-License-Identifier: Apache-2.0
//
// A rank runs out of memory at each allocation of a call in turn: the call fails, or its request ends with an error,
// and the other rank is told. Nobody waits for ever and nothing crashes.
#include <tutti/tutti.h>

#include <atomic>
#include <barrier>
#include <chrono>

#include "../../../tests/harness/ranks.hpp"
#include "../../../tests/harness/scarce_memory.hpp"

namespace tutti::test {
namespace {

using Call = tutti_status (*)(tutti_comm* comm, uint32_t rank, std::vector<int64_t>& in, std::vector<int64_t>& out,
                              tutti_request** request);

tutti_status all_reduce(tutti_comm* comm, uint32_t, std::vector<int64_t>& in, std::vector<int64_t>& out,
                        tutti_request** request) {
  return tutti_all_reduce(comm, in.data(), out.data(), in.size(), TUTTI_INT64, TUTTI_SUM, nullptr, request);
}
tutti_status send_or_receive(tutti_comm* comm, uint32_t rank, std::vector<int64_t>& in, std::vector<int64_t>& out,
                             tutti_request** request) {
  return rank == 0 ? tutti_send(comm, in.data(), in.size(), TUTTI_INT64, 1, 5, nullptr, request)
                   : tutti_receive(comm, out.data(), out.size(), TUTTI_INT64, 0, 5, nullptr, request);
}
tutti_status exchange(tutti_comm* comm, uint32_t rank, std::vector<int64_t>& in, std::vector<int64_t>& out,
                      tutti_request** request) {
  const tutti_message both[] = {{in.data(), in.size(), TUTTI_INT64, 1 - rank, 1, TUTTI_SEND},
                                {out.data(), out.size(), TUTTI_INT64, 1 - rank, 1, TUTTI_RECEIVE}};
  return tutti_exchange(comm, both, 2, nullptr, request);
}

// Calls in which all ranks meet.
tutti_status register_memory(tutti_comm* comm, uint32_t, std::vector<int64_t>& in, std::vector<int64_t>&,
                             tutti_request**) {
  tutti_window* window = nullptr;
  const uint64_t bytes = in.size() * sizeof in[0];
  const tutti_status status = tutti_comm_register(comm, in.data(), bytes, nullptr, &window);
  return status == TUTTI_OK ? tutti_comm_deregister(comm, window, nullptr) : status;
}
// Memory lacks once: one of two splits may fail.
tutti_status split(tutti_comm* comm, uint32_t, std::vector<int64_t>&, std::vector<int64_t>&, tutti_request**) {
  tutti_status statuses[2];
  for (tutti_status& status : statuses) {
    tutti_split how{};
    how.struct_size = sizeof how;
    tutti_comm* part = nullptr;
    status = tutti_comm_split(comm, &how, &part);
    EXPECT_EQ(part != nullptr, status == TUTTI_OK);
    if (!part) continue;
    status = tutti_barrier(part, nullptr, nullptr);
    EXPECT_NE(status, TUTTI_TIMEOUT) << tutti_comm_error(part);
    EXPECT_NE(tutti_comm_destroy(part), TUTTI_TIMEOUT) << tutti_comm_error(part);
  }
  EXPECT_TRUE(statuses[0] == TUTTI_OK || statuses[1] == TUTTI_OK || tutti_comm_async_error(comm) != TUTTI_OK)
      << tutti_comm_error(comm);
  return statuses[0] == TUTTI_OK ? statuses[1] : statuses[0];
}
tutti_status destroy(tutti_comm* comm, uint32_t, std::vector<int64_t>&, std::vector<int64_t>&, tutti_request**) {
  return tutti_comm_destroy(comm);
}

struct Case {
  Call call;
  uint32_t poor;
  size_t count;
  bool waits;
  bool lasts;
};

// Rank `poor` runs out of memory at its n-th allocation. True when it came to that.
bool run_out(const Case& c, int64_t n) {
  const std::string place = fresh_place();
  std::atomic<bool> ran_out{false};
  std::barrier both(2);  // the other rank is told before the poor one destroys the communicator
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      tutti_comm_config config = config_of(place, r, 2);
      config.timeout_ns = c.lasts && r != c.poor ? 200'000'000 : 60'000'000'000;
      tutti_comm* comm = nullptr;
      ASSERT_EQ(tutti_comm_create(&config, &comm), TUTTI_OK);
      std::vector<int64_t> in(c.count, 1), out(c.count);
      tutti_request* request = nullptr;
      if (r == c.poor) {
        failed = false;
        lasts = c.lasts;
        allocations_left = n;
      }
      tutti_status status = c.call(comm, r, in, out, c.waits ? nullptr : &request);
      if (request) status = tutti_request_wait(request);
      allocations_left = -1;
      if (r == c.poor) ran_out = failed;
      EXPECT_TRUE(status != TUTTI_TIMEOUT || (c.lasts && failed) || (c.lasts && r != c.poor))
          << "rank " << r << ", allocation " << n << ": "
          << (request ? tutti_request_error(request) : tutti_comm_error(comm));
      both.arrive_and_wait();
      tutti_request_free(request);
      tutti_comm_destroy(comm);
    });
  for (std::thread& t : threads) t.join();
  return ran_out;
}

class OutOfMemory : public testing::TestWithParam<std::tuple<Call, uint32_t, size_t, bool>> {};

TEST_P(OutOfMemory, EndsTheCallAtBothRanks) {
  const auto [call, poor, count, waits] = GetParam();
  int64_t n = 0;
  // The longest of these calls makes some hundreds when its plan is made: the first ones each, then wider steps.
  while (run_out({call, poor, count, waits, false}, n) && !HasFailure()) n += 1 + n / 8;
  EXPECT_GT(n, 0);
}

TEST(LastingOutOfMemory, RealTimeEndsThePoorRanksCall) {
  for (const Call call : {all_reduce, send_or_receive, exchange})
    for (const uint32_t poor : {0u, 1u}) {
      int64_t n = 0;
      while (run_out({call, poor, 50'000, false, true}, n) && !HasFailure()) n += 1 + n;
      EXPECT_GT(n, 0);
    }
}

// Nobody stands behind the progress thread: what it throws would end the process.
TEST(ProgressThread, RealTimeEndsTheCallWithoutMemory) {
  const std::string place = fresh_place();
  std::barrier both(2);
  std::vector<std::thread> threads;
  mine = true;
  for (uint32_t r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      mine = true;
      tutti_comm_config config = config_of(place, r, 2);
      config.flags = TUTTI_COMM_PROGRESS_THREAD;
      config.timeout_ns = 100'000'000;
      tutti_comm* comm = nullptr;
      ASSERT_EQ(tutti_comm_create(&config, &comm), TUTTI_OK);
      both.arrive_and_wait();
      library_starves = true;
      both.arrive_and_wait();
      std::vector<int64_t> in(1000, 1), out(in.size());
      tutti_request* request = nullptr;
      // Rank 1 does not come: the progress thread of rank 0 meets the deadline, and has to tell of it.
      if (r == 0 && all_reduce(comm, r, in, out, &request) == TUTTI_OK) {
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        EXPECT_LT(tutti_request_wait(request), 0);
        tutti_request_free(request);
      }
      both.arrive_and_wait();
      library_starves = false;
      both.arrive_and_wait();
      tutti_comm_destroy(comm);
    });
  for (std::thread& t : threads) t.join();
  mine = false;
}

INSTANTIATE_TEST_SUITE_P(Calls, OutOfMemory,
                         testing::Combine(testing::Values(all_reduce, send_or_receive, exchange), testing::Values(0, 1),
                                          testing::Values(1, 50'000), testing::Bool()));

INSTANTIATE_TEST_SUITE_P(JointCalls, OutOfMemory,
                         testing::Combine(testing::Values(register_memory, split, destroy), testing::Values(0, 1),
                                          testing::Values(1), testing::Values(true)));

}  // namespace
}  // namespace tutti::test
