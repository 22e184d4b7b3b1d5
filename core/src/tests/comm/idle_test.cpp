// SPDX-License-Identifier: Apache-2.0
//
// Work of the application's own while a thread waits (tutti_set_idle): other ranks may depend on it.
#include <tutti/memory.h>
#include <tutti/tutti.h>

#include <atomic>
#include <string>

#include "../../../tests/harness/ranks.hpp"

namespace tutti::test {
namespace {

constexpr uint64_t long_ns = 600'000'000'000;

void count_idle(void* context) {
  auto& times = *static_cast<std::atomic<int>*>(context);
  ++times;
  times.notify_all();
}

// Rank 1 comes when rank 0, which waits for it, has done its work many times.
void expect_work(const char* transport, tutti_status (*call)(tutti_comm*)) {
  const std::string place = fresh_place();
  std::atomic<int> times{0};
  const auto rank = [&](uint32_t r) {
    tutti_comm_config config = config_of(place, r, 2);
    config.transports = transport;
    config.timeout_ns = config.connect_timeout_ns = long_ns;
    tutti_comm* comm = nullptr;
    EXPECT_EQ(tutti_comm_create(&config, &comm), TUTTI_OK);
    if (!comm) return;
    EXPECT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);
    if (r == 0)
      tutti_set_idle(count_idle, &times);
    else
      for (int seen = 0; seen < 100; seen = times.load()) times.wait(seen);
    EXPECT_EQ(call(comm), TUTTI_OK);
    if (r == 0) tutti_set_idle(nullptr, nullptr);
    tutti_comm_destroy(comm);
  };
  std::thread other(rank, 1);
  rank(0);
  other.join();
}

tutti_status idle_in_barrier(tutti_comm* comm) { return tutti_barrier(comm, nullptr, nullptr); }

// The second time by the way of calls that repeat.
tutti_status idle_in_repeated_call(tutti_comm* comm) {
  float sum = 1;
  const tutti_status first = tutti_all_reduce(comm, &sum, &sum, 1, TUTTI_FLOAT32, TUTTI_SUM, nullptr, nullptr);
  return first ? first : tutti_all_reduce(comm, &sum, &sum, 1, TUTTI_FLOAT32, TUTTI_SUM, nullptr, nullptr);
}

tutti_status idle_in_wait(tutti_comm* comm) {
  tutti_request* request = nullptr;
  const tutti_status begun = tutti_barrier(comm, nullptr, &request);
  if (begun) return begun;
  const tutti_status ended = tutti_request_wait(request);
  tutti_request_free(request);
  return ended;
}

TEST(Idle, WorkIsDoneInBlockingCallsAndWaits) {
  for (const char* transport : {"shm", "tcp"})
    for (const auto call : {idle_in_barrier, idle_in_repeated_call, idle_in_wait}) expect_work(transport, call);
}

TEST(Idle, WorkIsOfItsThreadAndEnds) {
  std::atomic<int> times{0};
  tutti_set_idle(count_idle, &times);
  tutti_set_idle(nullptr, nullptr);
  const std::string place = fresh_place();
  const auto rank = [&](uint32_t r) {
    tutti_comm_config config = config_of(place, r, 2);
    tutti_comm* comm = nullptr;
    EXPECT_EQ(tutti_comm_create(&config, &comm), TUTTI_OK);
    EXPECT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);
    tutti_comm_destroy(comm);
  };
  std::thread other(rank, 1);
  rank(0);
  other.join();
  EXPECT_EQ(times.load(), 0);
}

}  // namespace
}  // namespace tutti::test
