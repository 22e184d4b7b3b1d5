// SPDX-License-Identifier: Apache-2.0
//
// The memory of a cell's buffers: the host, or a device of the registry; and a rank's device and stream. Memory of a
// device is reached by its streams only, never by a pointer.
#pragma once

#include <tutti/registry.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tutti::conformance {

struct Device {
  std::string name;     // "host", or as the plugin calls it
  DeviceTables tables;  // none: the host
  uint32_t devices = 0;
  std::string unusable;  // why it cannot serve on this machine; "": it can
  bool broken = false;   // unusable, and not because its query says TUTTI_NOT_SUPPORTED
  bool exports = false;  // its memory can be mapped by other processes
  uint64_t exact_dtypes = ~uint64_t{0};  // types of which it makes exact sums
  bool host() const { return !tables.memory; }
};

// Throws std::invalid_argument for a name of no device.
Device make_device(const std::string& name);
// Those that a selection names; without names the host and every device that is found.
std::vector<Device> select_devices(const std::vector<std::string>& names);
// Host memory that a device sees, whole pages.
class Staging {
 public:
  Staging(const Device& device, uint64_t bytes);
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging();
  char* host() const { return host_; }
  void* device() const { return seen_; }
  uint64_t bytes() const { return bytes_; }

 private:
  const DeviceTables tables_;
  char* host_ = nullptr;
  void* seen_ = nullptr;
  uint64_t bytes_;
};

// One rank on one device: its streams, and memory. Used by one thread at a time. Every function throws
// std::runtime_error with the device's own words.
class Seat {
 public:
  static constexpr uint32_t streams = 2;

  // `patience`: how many times longer than usual its streams are waited for.
  Seat(const Device& device, uint32_t number, double patience);
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;
  ~Seat();

  // "cuda:1", as tutti_comm_config.device has it.
  std::string name() const { return device_.name + ":" + std::to_string(number_); }
  void* stream(uint32_t k) const { return streams_[k]; }
  void* allocate(uint64_t bytes);
  void release(void* address);
  // Memory of at least so many bytes, kept for the next who asks once it is given back.
  std::unique_ptr<Staging> borrow(uint64_t bytes);
  void give_back(std::unique_ptr<Staging> staging);
  // In stream k; both are device memory or staging as the device sees it.
  void copy(uint32_t k, void* dst, const void* src, uint64_t bytes);
  // Until stream k has come to its end.
  void finish(uint32_t k);

 private:
  void check(const char* function, tutti_status status) const;
  void enqueue(uint32_t k, const tutti_command& command);

  Device device_;
  uint32_t number_;
  double limit_s_;
  void* streams_[streams] = {};
  tutti_event* events_[streams] = {};
  std::vector<std::unique_ptr<Staging>> spare_;
};

}  // namespace tutti::conformance
