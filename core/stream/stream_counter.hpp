// SPDX-License-Identifier: Apache-2.0
//
// A counter in host memory by which streams say how far they have come: commands store rising values, and the host
// reads them. So the end of an operation costs a load, where an event costs a call of the device's driver.
//
// The caller orders the streams: a value is stored after all lower ones. A stream may wait for the newest value while
// nothing else is to be stored: the command that stores it was enqueued before, and is in front in a queue that the two
// share.
#pragma once

#include <tutti/registry.h>

#include <atomic>
#include <cstdint>

namespace tutti::core {

class StreamCounter {
 public:
  // Its memory is the process's, for this and later counters. May wait for the device: in its gate. Throws Failure.
  explicit StreamCounter(const DeviceTables& device);
  StreamCounter(const StreamCounter&) = delete;
  StreamCounter& operator=(const StreamCounter&) = delete;
  // All values have been stored. Otherwise it has to be kept.
  ~StreamCounter();

  uint32_t next() { return ++newest_; }
  tutti_command store(uint32_t value) const { return command(TUTTI_COMMAND_WRITE, value); }
  tutti_command wait(uint32_t value) const { return command(TUTTI_COMMAND_WAIT, value); }
  // Has this value been stored, or a later one? Then all that precedes the command is done, and visible here.
  bool reached(uint32_t value) const {
    return static_cast<int32_t>(std::atomic_ref(*address_.host).load(std::memory_order_acquire) - value) >= 0;
  }

 private:
  tutti_command command(uint32_t kind, uint32_t value) const;
  struct CounterAddress {
    uint32_t *host, *device;
  };
  struct CounterPool;
  CounterPool& pool_;
  CounterAddress address_;
  uint32_t newest_ = 0;
};

}  // namespace tutti::core
