// SPDX-License-Identifier: Apache-2.0
//
// Asks a device, once a second while work is pending there, whether it still works: one that has failed stores nothing
// any more. The question goes out in a thread of its own. A driver may keep it waiting for as long as another thread
// waits for the device, in cudaFree for example, and the thread that waits may need the bytes that this one moves.
#pragma once

#include <tutti/registry.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "base/failure.hpp"

namespace tutti::core {

class DeviceProbe {
 public:
  // May wait for the device: in its gate. Returns the device's status. Before it poll() asks nothing.
  tutti_status open(const DeviceTables& device, uint32_t number);
  // Work begins to be pending: the second counts from the next poll.
  void restart() { asked_ns_ = 0; }
  // Never waits. The device's failure, where the last answer told of one.
  std::optional<Failure> poll(uint64_t now_ns);

 private:
  struct Question;
  std::shared_ptr<Question> question_;  // with the thread that asks it
  bool asking_ = false;
  uint64_t asked_ns_ = 0;
};

}  // namespace tutti::core
