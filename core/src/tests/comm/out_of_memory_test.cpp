// SPDX-License-Identifier: Apache-2.0
//
// A rank runs out of memory at each allocation of a call in turn: the call fails, or its request ends with an error,
// and the other rank is told. Nobody waits for ever and nothing crashes.
#include <tutti/tutti.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <new>

#include "../../../tests/harness/ranks.hpp"

namespace {

// Allocations of this thread until one fails; negative: none does.
thread_local int64_t allocations_left = -1;
thread_local bool lasts = false;  // all that follow fail, too
thread_local bool failed = false;

// While set, threads that the test has not started itself get no memory.
std::atomic<bool> library_starves{false};
thread_local bool mine = false;

void* allocate(size_t bytes, size_t alignment) {
  if (library_starves && !mine) throw std::bad_alloc();
  if (allocations_left == 0) {
    if (!lasts) allocations_left = -1;
    failed = true;
    throw std::bad_alloc();
  }
  if (allocations_left > 0) --allocations_left;
  void* memory = nullptr;
  if (posix_memalign(&memory, std::max(alignment, sizeof(void*)), std::max<size_t>(bytes, 1)) != 0)
    throw std::bad_alloc();
  return memory;
}

}  // namespace

// Not inlined: the compiler would miss that these allocate and free alike.
#define REPLACED [[gnu::noinline]]
REPLACED void* operator new(size_t bytes) { return allocate(bytes, alignof(std::max_align_t)); }
REPLACED void* operator new[](size_t bytes) { return allocate(bytes, alignof(std::max_align_t)); }
REPLACED void* operator new(size_t bytes, std::align_val_t to) { return allocate(bytes, static_cast<size_t>(to)); }
REPLACED void* operator new[](size_t bytes, std::align_val_t to) { return allocate(bytes, static_cast<size_t>(to)); }
REPLACED void* operator new(size_t bytes, const std::nothrow_t&) noexcept try {
  return allocate(bytes, alignof(std::max_align_t));
} catch (const std::bad_alloc&) {
  return nullptr;
}
REPLACED void* operator new[](size_t bytes, const std::nothrow_t& none) noexcept { return operator new(bytes, none); }
REPLACED void operator delete(void* memory) noexcept { std::free(memory); }
REPLACED void operator delete[](void* memory) noexcept { std::free(memory); }
REPLACED void operator delete(void* memory, size_t) noexcept { std::free(memory); }
REPLACED void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
REPLACED void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
REPLACED void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
REPLACED void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
REPLACED void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

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

}  // namespace
}  // namespace tutti::test
