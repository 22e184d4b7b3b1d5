// SPDX-License-Identifier: Apache-2.0
//
// The memory that a communicator's ranks have registered together: tutti_comm_register and what follows it. All of it
// is collective, and the ranks agree in meetings.
//
// Threads: the application's; none of them holds the engine.
#pragma once

#include <tutti/tutti.h>

#include <cstdint>
#include <string>

#include "comm/progress_engine.hpp"

namespace tutti::core {

class RegisteredWindows {
 public:
  explicit RegisteredWindows(ProgressEngine& engine);
  RegisteredWindows(const RegisteredWindows&) = delete;
  RegisteredWindows& operator=(const RegisteredWindows&) = delete;
  // The process's end of all windows is given up.
  ~RegisteredWindows();

  // `flags`: TUTTI_WINDOW_*; timeout_ns 0: the communicator's. All throw Failure.
  tutti_window* add(void* address, uint64_t bytes, uint32_t flags, uint64_t timeout_ns);
  void remove(const tutti_window* window, uint64_t timeout_ns);
  tutti_window_facts facts(const tutti_window* window) const;

 private:
  void check(tutti_window& window) const;
  std::string why_staged() const;
  std::string share(tutti_window& window, const JointCall& meeting);
  void release(tutti_window& window, const JointCall& meeting);
  WindowList::const_iterator find(const char* call, const tutti_window* window) const;
  Streams::Until until(const JointCall& meeting);

  ProgressEngine& engine_;
  Foundation& base_;
  Breakdown& breakdown_;
  Meetings& meetings_;
  WindowList& list_;
  Streams* const streams_;  // nullptr without a device
  uint64_t last_id_ = 0;
};

}  // namespace tutti::core
