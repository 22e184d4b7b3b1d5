// SPDX-License-Identifier: Apache-2.0
//
// A device whose memory the collectives get (--device NAME): one stream of it, device buffers with a host side to fill
// and to look at, and what the device itself can do, measured in the same run.
#pragma once

#include <tutti/registry.h>
#include <tutti/tutti.h>

#include <cstdint>
#include <string>
#include <vector>

namespace perf {

// Measurements of a stream without a collective, for comparison.
struct Baseline {
  uint64_t bytes = 0;       // of each buffer
  double copy = 0;          // 1e9 bytes moved per second: read and written
  double reduce = 0;        // the same for float sums of two sources: two read, one written
  double in_stream_us = 0;  // a small copy, of many in a row
  double alone_us = 0;      // a small copy until the host sees its end
};

// Belongs to one thread. Throws tutti::Error.
class Device {
 public:
  // tutti_comm_config.device for the device of that name: of several of the kind, rank `rank` takes number rank modulo
  // their count.
  static std::string setting(const std::string& name, uint32_t rank);
  // The device that the communicator is bound to, "cuda:1".
  explicit Device(const std::string& bound);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const char* name() const { return tables_.memory->name; }
  uint32_t count() const { return count_; }
  void* stream() const { return stream_; }
  void* allocate(uint64_t bytes) const;
  void release(void* address) const;
  // Makes host memory visible to streams; where they see it.
  void* map(void* host, uint64_t bytes) const;
  void unmap(void* host) const;
  // Appends a copy to the stream.
  void copy(void* to, const void* from, uint64_t bytes) const;
  // Until the stream is empty. Fails with the communicator's error when its collectives failed.
  void finish(tutti_comm* comm) const;
  Baseline measure(tutti_comm* comm, uint64_t bytes) const;
  // Waits for the stream's work, failed or not; there is no stream afterwards.
  void end_stream();

 private:
  void enqueue(const std::vector<tutti_command>& commands) const;
  // Microseconds of `times` commands until the end of the last.
  double time(tutti_comm* comm, const tutti_command& command, uint32_t times) const;

  tutti::DeviceTables tables_;
  uint32_t count_ = 0, ordinal_ = 0;
  void* stream_ = nullptr;
  tutti_event* event_ = nullptr;
};

}  // namespace perf
