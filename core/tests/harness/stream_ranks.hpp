// SPDX-License-Identifier: Apache-2.0
//
// Ranks with streams of the simulated device, as threads and as processes, and a check of all collectives on it.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <tutti/registry.h>
#include <tutti/schedule.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "test_device.hpp"

namespace tutti::test {

// A stream with device buffers, and waiting for it.
class Stream {
 public:
  explicit Stream(uint32_t of = 0) : of_(of) {
    EXPECT_EQ(tables_.executor->create_stream(nullptr, of, &handle), TUTTI_OK);
    EXPECT_EQ(tables_.executor->create_event(nullptr, of, &event_), TUTTI_OK);
  }
  ~Stream() {
    tables_.executor->destroy_event(nullptr, event_);
    EXPECT_EQ(tables_.executor->destroy_stream(nullptr, handle), TUTTI_OK);
  }
  template <typename T>
  T* make(uint64_t n) {
    void* address = nullptr;
    EXPECT_EQ(tables_.memory->allocate(nullptr, of_, std::max<uint64_t>(1, n * sizeof(T)), &address), TUTTI_OK);
    return static_cast<T*>(address);
  }
  void free(void* address) { EXPECT_EQ(tables_.memory->release(nullptr, address), TUTTI_OK); }
  // True: everything is done within a minute.
  bool finish() {
    tutti_command event{};
    event.kind = TUTTI_COMMAND_RECORD;
    event.event = event_;
    EXPECT_EQ(tables_.executor->enqueue(nullptr, handle, &event, 1), TUTTI_OK);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (tables_.executor->query_event(nullptr, event_) == TUTTI_AGAIN) {
      if (std::chrono::steady_clock::now() > limit) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return true;
  }
  void* handle = nullptr;

 private:
  tutti::DeviceTables tables_ = device();
  uint32_t of_;
  tutti_event* event_ = nullptr;
};

// A flag for which streams wait until it is opened.
class Gate {
 public:
  Gate() { EXPECT_EQ(tables_.memory->map_host(nullptr, &flag_, sizeof flag_, &seen_), TUTTI_OK); }
  ~Gate() { EXPECT_EQ(tables_.memory->unmap_host(nullptr, &flag_), TUTTI_OK); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  // The stream waits for it so many times.
  void hold(const Stream& s, uint32_t times = 1) const {
    tutti_command wait{};
    wait.kind = TUTTI_COMMAND_WAIT;
    wait.flag = static_cast<uint32_t*>(seen_);
    wait.value = 1;
    for (uint32_t i = 0; i < times; ++i) EXPECT_EQ(tables_.executor->enqueue(nullptr, s.handle, &wait, 1), TUTTI_OK);
  }
  // The same, and the stream's queue takes nothing more. The device works on the first of these commands, which makes
  // room for the last.
  void fill(const Stream& s, uint32_t depth) const { hold(s, 1 + depth); }
  void open() { std::atomic_ref(flag_).store(1, std::memory_order_release); }

 private:
  alignas(64) uint32_t flag_ = 0;
  void* seen_ = nullptr;
  tutti::DeviceTables tables_ = device();
};

inline tutti_options on(const Stream& s, uint64_t timeout_ns = 0) {
  tutti_options options{};
  options.struct_size = sizeof options;
  options.stream = s.handle;
  options.timeout_ns = timeout_ns;
  return options;
}

// Bytes sent by this rank since the communicator was made, by what carried them.
inline std::map<std::string, uint64_t> sent(tutti_comm* comm) {
  uint64_t n = 0;
  EXPECT_EQ(tutti_comm_traffic(comm, nullptr, &n), TUTTI_OK);
  std::vector<tutti_link_traffic> rows(n);
  EXPECT_EQ(tutti_comm_traffic(comm, rows.data(), &n), TUTTI_OK);
  std::map<std::string, uint64_t> bytes;
  for (const tutti_link_traffic& row : rows) bytes[row.transport] += row.sent_bytes;
  return bytes;
}

inline std::string served(tutti_comm* comm, uint32_t collective = TUTTI_ALL_REDUCE) {
  tutti_plan_facts facts{};
  facts.struct_size = sizeof facts;
  EXPECT_EQ(tutti_comm_plan(comm, collective, &facts), TUTTI_OK) << tutti_comm_error(comm);
  return facts.transports;
}

using Body = std::function<void(tutti_comm*, uint32_t rank)>;

// The device that a rank's communicator is bound to: the first, unless an OnDevices that lives says another.
inline uint32_t (*device_of_rank)(uint32_t rank) = [](uint32_t) { return 0u; };
inline uint32_t own_device(uint32_t rank) { return rank; }
class OnDevices {
 public:
  explicit OnDevices(uint32_t (*of)(uint32_t rank) = own_device) : before_(std::exchange(device_of_rank, of)) {}
  OnDevices(const OnDevices&) = delete;
  OnDevices& operator=(const OnDevices&) = delete;
  ~OnDevices() { device_of_rank = before_; }

 private:
  uint32_t (*before_)(uint32_t);
};

// As a timeout: the product's default.
constexpr uint64_t default_timeout_s = 0;

inline tutti_comm* make_comm(const std::string& where, uint32_t rank, uint32_t n, const std::string& algorithms,
                             uint64_t timeout_s = 60, uint32_t flags = 0) {
  char error[1024] = "";
  const std::string of = std::string(device().memory->name) + ":" + std::to_string(device_of_rank(rank));
  tutti_comm_config config{};
  config.struct_size = sizeof config;
  config.rendezvous = where.c_str();
  config.rank = rank;
  config.nranks = n;
  config.algorithms = algorithms.empty() ? nullptr : algorithms.c_str();
  config.timeout_ns = timeout_s * 1'000'000'000;
  config.flags = flags;
  config.error = error;
  config.error_bytes = sizeof error;
  config.device = of.c_str();
  tutti_comm* comm = nullptr;
  EXPECT_EQ(tutti_comm_create(&config, &comm), TUTTI_OK) << error;
  return comm;
}

inline void run_threads(uint32_t n, const Body& body, const std::string& algorithms = "", uint64_t timeout_s = 60,
                        uint32_t flags = 0) {
  static int meeting = 0;
  const std::string where = "local:stream" + std::to_string(++meeting);
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < n; ++r)
    threads.emplace_back([&, r] {
      tutti_comm* comm = make_comm(where, r, n, algorithms, timeout_s, flags);
      if (!comm) return;
      body(comm, r);
      tutti_comm_destroy(comm);
    });
  for (std::thread& thread : threads) thread.join();
}

// Child processes with `per_process` ranks each; `prepare` is called in each of them first, with its first rank. Only
// for programs whose own process has not used the device: threads do not survive a fork.
inline void run_processes(
    uint32_t n, uint32_t per_process, const Body& body, const std::string& algorithms = "",
    const std::function<void(uint32_t)>& prepare = [](uint32_t) {}) {
  char folder[] = "/tmp/tutti-stream-test-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string where = std::string("file:") + folder;
  std::vector<pid_t> children;
  for (uint32_t first = 0; first < n; first += per_process) {
    const pid_t child = fork();
    if (child == 0) {
      prepare(first);
      std::vector<std::thread> threads;
      for (uint32_t r = first; r < std::min(n, first + per_process); ++r)
        threads.emplace_back([&, r] {
          if (tutti_comm* comm = make_comm(where, r, n, algorithms)) {
            body(comm, r);
            tutti_comm_destroy(comm);
          }
        });
      for (std::thread& thread : threads) thread.join();
      std::_Exit(testing::Test::HasFailure() ? 1 : 0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  std::filesystem::remove_all(folder);
}

// Does an algorithm serve `n` ranks in all its collectives?
inline bool serves(const tutti_algorithm& algorithm, uint32_t n) {
  for (uint32_t c = TUTTI_BROADCAST; c <= TUTTI_BARRIER; ++c) {
    if (!(algorithm.collectives >> c & 1)) continue;
    tutti::Problem problem;
    problem.collective = c;
    problem.nranks = n;
    problem.lanes = 4;
    problem.hosts.assign(n, 0);
    const tutti_query query = tutti::make_query(problem, 0);
    if (algorithm.supports(algorithm.self, &query) != TUTTI_OK) return false;
  }
  return true;
}

// TUTTI_ALGO: all that an algorithm can do is done by it.
inline std::string only(const tutti_algorithm& algorithm) {
  std::string filter;
  for (uint32_t c = TUTTI_BROADCAST; c <= TUTTI_BARRIER; ++c)
    if (algorithm.collectives >> c & 1)
      filter += (filter.empty() ? "" : ";") + std::string(tutti::collective_name(c)) + ":" + algorithm.name;
  return filter;
}

inline int64_t value(uint32_t rank, uint64_t i) {
  return static_cast<int64_t>((rank + 1) * 1000003 + i * 7919 % 100019);
}

constexpr uint32_t calls_of_check_all = 7;
// All collectives at one size, several calls without waiting in between; compared with what they have to give.
inline void check_all(tutti_comm* comm, uint32_t rank, uint64_t count, void* on, uint32_t of = 0) {
  const uint32_t n = tutti_comm_nranks(comm);
  Stream own(of);
  Stream& s = own;
  void* stream = on ? on : s.handle;
  tutti_options options{};
  options.struct_size = sizeof options;
  options.stream = stream;
  const auto ok = [&](tutti_status status) { ASSERT_EQ(status, TUTTI_OK) << tutti_comm_error(comm); };
  auto *in = s.make<int64_t>(count * n), *out = s.make<int64_t>(count * n), *all = s.make<int64_t>(count * n),
       *part = s.make<int64_t>(count), *swap = s.make<int64_t>(count * n), *cast = s.make<int64_t>(count);
  for (uint64_t i = 0; i < count * n; ++i) in[i] = value(rank, i);
  for (uint64_t i = 0; i < count; ++i) cast[i] = rank == 1 % n ? value(77, i) : -1;
  ok(tutti_all_reduce(comm, in, out, count * n, TUTTI_INT64, TUTTI_SUM, &options, nullptr));
  ok(tutti_all_gather(comm, in, all, count, TUTTI_INT64, &options, nullptr));
  ok(tutti_reduce_scatter(comm, in, part, count, TUTTI_INT64, TUTTI_MAX, &options, nullptr));
  ok(tutti_all_to_all(comm, in, swap, count, TUTTI_INT64, &options, nullptr));
  ok(tutti_broadcast(comm, cast, cast, count, TUTTI_INT64, 1 % n, &options, nullptr));
  ok(tutti_barrier(comm, &options, nullptr));
  ok(tutti_all_reduce(comm, out, out, count * n, TUTTI_INT64, TUTTI_SUM, &options, nullptr));  // in place, of the first
  const bool finished = s.finish();
  ASSERT_EQ(tutti_comm_async_error(comm), TUTTI_OK) << (tutti_barrier(comm, nullptr, nullptr), tutti_comm_error(comm));
  ASSERT_TRUE(finished) << "rank " << rank << " of " << n << " at " << count;
  for (uint64_t i = 0; i < count * n; ++i) {
    int64_t sum = 0;
    for (uint32_t r = 0; r < n; ++r) sum += value(r, i);
    ASSERT_EQ(out[i], sum * n) << "all_reduce at " << i << " of " << count;
    ASSERT_EQ(all[i], value(static_cast<uint32_t>(i / count), i % count)) << "all_gather at " << i;
    ASSERT_EQ(swap[i], value(static_cast<uint32_t>(i / count), rank * count + i % count)) << "all_to_all at " << i;
  }
  for (uint64_t i = 0; i < count; ++i) {
    int64_t most = INT64_MIN;
    for (uint32_t r = 0; r < n; ++r) most = std::max(most, value(r, rank * count + i));
    ASSERT_EQ(part[i], most) << "reduce_scatter at " << i;
    ASSERT_EQ(cast[i], value(77, i)) << "broadcast at " << i;
  }
  for (void* buffer : {in, out, all, part, swap, cast}) s.free(buffer);
}

}  // namespace tutti::test
