// SPDX-License-Identifier: Apache-2.0
//
// The memory that a communicator's ranks have registered together: tutti_comm_register and what follows it. All of it
// is collective, and the ranks agree in meetings.
//
// Threads: whoever holds the communicator's engine, one at a time.
#pragma once

#include <tutti/tutti.h>

#include <cstdint>
#include <functional>
#include <string>

#include "comm/operations.hpp"
#include "comm/rendezvous.hpp"
#include "engine/fabric/fabric.hpp"
#include "engine/fabric/window.hpp"
#include "stream/streams.hpp"

namespace tutti::core {

class RegisteredWindows {
 public:
  // The parts that windows use. All of them outlive the windows.
  struct Parts {
    Fabric& fabric;
    const Topology& topology;
    Meetings& meetings;
    Breakdown& breakdown;
    const Operations& operations;
    const Configuration& configuration;
    const DeviceMemory& device;
  };
  explicit RegisteredWindows(const Parts& parts) : parts_(parts) {}
  // Once, before any call. `streams`: nullptr without a device, and `why_no_device` says why.
  void place(uint32_t rank, Streams* streams, const char* why_no_device);
  // The process's end of all windows is given up.
  void close();

  // `flags`: TUTTI_WINDOW_*. `prepare` is called for memory of the device, before anything of it is used. All throw
  // Failure.
  tutti_window* add(void* address, uint64_t bytes, uint32_t flags, uint64_t timeout_ns,
                    const std::function<void()>& prepare);
  void remove(const tutti_window* window, uint64_t timeout_ns);
  tutti_window_facts facts(const tutti_window* window) const;
  const WindowList& list() const { return list_; }

 private:
  void check(tutti_window& window) const;
  std::string why_staged() const;
  std::string share(tutti_window& window, const JointCall& meeting);
  void release(tutti_window& window, const JointCall& meeting);
  WindowList::const_iterator find(const char* call, const tutti_window* window) const;
  Windows::Until until(const JointCall& meeting) {
    return [this, &meeting](const auto& enough) { parts_.meetings.await(meeting, enough); };
  }

  const Parts parts_;
  uint32_t rank_ = 0;
  Streams* streams_ = nullptr;
  const char* why_no_device_ = "";
  WindowList list_;
  uint64_t last_id_ = 0;
};

}  // namespace tutti::core
