// SPDX-License-Identifier: Apache-2.0
//
// A device under test and what a case needs of it: memory, streams, events, and host memory that streams see. Memory of
// the device is reached by commands only.
#pragma once

#include <tutti/plugin/device.h>

#include <deque>
#include <functional>
#include <vector>

#include "transport_api.hpp"

namespace tutti::conformance::contract {

// E-4 of one table.
void judge(const tutti_device* table);
void judge(const tutti_executor* table);

// The tables and capabilities, judged by E-4 and D-1. Throws NotOffered where query says that there is none here.
struct DeviceUnderTest {
  const tutti_device* memory = nullptr;
  const tutti_executor* executor = nullptr;
  tutti_device_caps caps{};
};
DeviceUnderTest device_under_test(Bench& bench);

class Station {
 public:
  explicit Station(Bench& bench);
  ~Station();  // what was made is given back
  Station(const Station&) = delete;
  Station& operator=(const Station&) = delete;

  // Host memory, page-aligned, zeroed, and where streams see it.
  struct Mapped {
    uint8_t* host = nullptr;
    uint8_t* seen = nullptr;
    uint64_t bytes = 0;
  };
  Mapped map(uint64_t bytes);
  uint32_t* flag_of(const Mapped& mapped, uint64_t at) const { return reinterpret_cast<uint32_t*>(mapped.seen + at); }
  uint8_t* allocate(uint64_t bytes, uint32_t device = 0);
  void release(void* address);
  // NULL, once, from an executor that makes no streams. Throws NotOffered where more are asked of it.
  void* stream(uint32_t device = 0);
  tutti_event* event(uint32_t device = 0);
  tutti_pointer classify(const void* address);

  tutti_status enqueue(void* stream, std::vector<tutti_command> commands);
  // The same; an error is `clause`.
  void issue(void* stream, std::vector<tutti_command> commands, const char* clause);
  tutti_status poll(tutti_event* event);
  // Until the event's work is done; X-9 when that does not come.
  void until_done(tutti_event* event, double seconds = 10);
  // Until all work of the stream so far is done.
  void finish(void* stream, double seconds = 10);

  // Bytes to memory of the device, and back.
  void put(void* to, const std::vector<uint8_t>& bytes, uint32_t device = 0);
  std::vector<uint8_t> get(const void* from, uint64_t bytes, uint32_t device = 0);

  const DeviceUnderTest device;
  Bench& bench;

 private:
  void* own_stream(uint32_t device);
  void* own_streams_[64] = {};
  bool uses_default_ = false;
  std::vector<void*> streams_, allocations_;
  std::vector<tutti_event*> events_;
  std::vector<Mapped> mapped_;
};

// Commands. `sources` must live until the command has been enqueued.
// Does the device claim to reduce this type by this operator?
bool reduces(const tutti_device_caps& caps, uint32_t dtype, uint32_t op);
tutti_command copy(void* dst, const void* const* source, uint64_t bytes);
tutti_command reduce(uint32_t dtype, uint32_t op, void* dst, const std::vector<const void*>& sources, uint64_t count,
                     uint64_t divisor = 0);
tutti_command wait_until(uint32_t* flag, uint32_t value);
tutti_command write_flag(uint32_t* flag, uint32_t value);
tutti_command record_event(tutti_event* event);
tutti_command after_event(tutti_event* event);

}  // namespace tutti::conformance::contract
