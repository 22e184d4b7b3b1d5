// SPDX-License-Identifier: Apache-2.0
//
// Device memory in windows for tests. It is private to streams: a host that touched it would end the process.
#pragma once

#include <fstream>
#include <utility>

#include "stream_ranks.hpp"

namespace tutti::test {

constexpr uint64_t mib = (1 << 20) / sizeof(int64_t);  // elements

inline void hide_memory(uint32_t = 0) { setenv("TUTTI_SIMULATED_PRIVATE", "1", 1); }
inline void hide_and_log(uint32_t = 0) {
  hide_memory();
  setenv("TUTTI_LOG", "info", 1);
}

// Device memory with a host side that its stream copies to and from.
class Data {
 public:
  Data(tutti_comm* comm, Stream& stream, uint64_t count, bool registered = true)
      : comm_(comm), stream_(stream), host(count), device(stream.make<int64_t>(count)) {
    EXPECT_EQ(tables_.memory->map_host(nullptr, host.data(), bytes(), &seen_), TUTTI_OK);
    if (registered) enlist();
  }
  // Collective, where it is registered.
  ~Data() {
    if (window) delist();
    EXPECT_EQ(tables_.memory->unmap_host(nullptr, host.data()), TUTTI_OK);
    stream_.free(device);
  }
  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;
  uint64_t bytes() const { return host.size() * sizeof(int64_t); }
  void enlist(tutti_comm* comm = nullptr) {
    if (comm) comm_ = comm;
    EXPECT_EQ(tutti_comm_register(comm_, device, bytes(), nullptr, &window), TUTTI_OK) << tutti_comm_error(comm_);
  }
  // A broken communicator keeps its windows until it is destroyed.
  void delist() {
    const tutti_status status = tutti_comm_deregister(comm_, std::exchange(window, nullptr), nullptr);
    EXPECT_EQ(status, tutti_comm_async_error(comm_)) << tutti_comm_error(comm_);
  }
  void up() { copy(device, seen_); }
  void down() { copy(seen_, device); }

 private:
  void copy(void* to, const void* from) {
    tutti_command command{};
    command.kind = TUTTI_COMMAND_COPY;
    command.sources = 1;
    command.src = &from;
    command.dst = to;
    command.count = bytes();
    ASSERT_EQ(tables_.executor->enqueue(nullptr, stream_.handle, &command, 1), TUTTI_OK);
  }
  tutti::DeviceTables tables_ = tutti::test::device();
  tutti_comm* comm_;
  Stream& stream_;
  void* seen_ = nullptr;

 public:
  std::vector<int64_t> host;
  int64_t* device;
  tutti_window* window = nullptr;
};

inline int64_t sum_of(uint32_t n, uint64_t i) {
  int64_t sum = 0;
  for (uint32_t r = 0; r < n; ++r) sum += value(r, i);
  return sum;
}

// One all-reduce out of place.
inline void reduce_once(tutti_comm* comm, uint32_t rank, Stream& s, Data& in, Data& out) {
  for (uint64_t i = 0; i < in.host.size(); ++i) in.host[i] = value(rank, i);
  in.up();
  const tutti_options options = on(s);
  ASSERT_EQ(tutti_all_reduce(comm, in.device, out.device, in.host.size(), TUTTI_INT64, TUTTI_SUM, &options, nullptr),
            TUTTI_OK)
      << tutti_comm_error(comm);
  out.down();
  ASSERT_TRUE(s.finish());
  for (uint64_t i = 0; i < out.host.size(); ++i) ASSERT_EQ(out.host[i], sum_of(tutti_comm_nranks(comm), i)) << i;
}
inline void reduce_once(tutti_comm* comm, uint32_t rank, uint64_t count, bool registered = true) {
  Stream s;
  Data in(comm, s, count, registered), out(comm, s, count, registered);
  reduce_once(comm, rank, s, in, out);
  ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK) << tutti_comm_error(comm);
}

inline std::string logged(const std::function<void()>& body) {
  testing::internal::CaptureStderr();
  body();
  return testing::internal::GetCapturedStderr();
}

// How many pieces of device memory this process has mapped, its own and others'.
inline size_t mappings() {
  size_t count = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) count += line.find("tutti-simulated-device") != std::string::npos;
  return count;
}

}  // namespace tutti::test
