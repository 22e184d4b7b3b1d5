// SPDX-License-Identifier: Apache-2.0
//
// Waits that Python's signal handlers interrupt: Ctrl-C, and a handler of SIGTERM that saves a checkpoint.
#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

namespace tutti::torch {

// Runs the handlers of signals that have come, where this is the thread in which Python runs them. Throws what one raises, as
// pybind11's error_already_set. Not to be called with a lock or the engine's turn held: a handler may make calls.
inline void run_signal_handlers() {
  if (gettid() != getpid() || !Py_IsInitialized()) return;
  const pybind11::gil_scoped_acquire locked;
  if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
}

// While one lives, this thread does not have the interpreter's lock.
class Unlocked {
 public:
  Unlocked() {
    if (Py_IsInitialized() && PyGILState_Check()) released_.emplace();
  }

 private:
  std::optional<pybind11::gil_scoped_release> released_;
};

// While one lives, this thread's waits for other ranks in the core run the handlers, and end early where one raises.
class InterruptibleWaits {
 public:
  InterruptibleWaits() {
    if (depth_++ > 0) return;  // a handler makes a group
    tutti_set_interrupt(
        [](void* self) -> int32_t {
          try {
            run_signal_handlers();
          } catch (pybind11::error_already_set& raised) {
            const pybind11::gil_scoped_acquire locked;
            static_cast<InterruptibleWaits*>(self)->raised_ = std::move(raised);
          }
          return static_cast<InterruptibleWaits*>(self)->raised_.has_value();
        },
        this);
  }
  InterruptibleWaits(const InterruptibleWaits&) = delete;
  InterruptibleWaits& operator=(const InterruptibleWaits&) = delete;
  ~InterruptibleWaits() {
    if (--depth_ == 0) tutti_set_interrupt(nullptr, nullptr);
  }
  // Throws what a handler has raised; `made` is a communicator that the call has made all the same, or nullptr.
  void rethrow(tutti_comm* made) {
    if (!raised_) return;
    if (made) {
      tutti_comm_abort(made, "a signal interrupted the call that made it");
      tutti_comm_destroy(made);
    }
    throw *std::exchange(raised_, std::nullopt);
  }

 private:
  static inline thread_local int depth_ = 0;
  std::optional<pybind11::error_already_set> raised_;
};

// Calls wait(nanoseconds) until it returns true or `limit` is over, UINT64_MAX: never, with the handlers in between. Returns
// whether it did.
template <typename Wait>
bool wait_with_signals(uint64_t limit, Wait&& wait) {
  constexpr uint64_t slice = 100'000'000;
  for (;;) {
    const uint64_t now = std::min(slice, limit);
    if (wait(now)) return true;
    if (limit != UINT64_MAX && (limit -= now) == 0) return false;
    run_signal_handlers();
  }
}

}  // namespace tutti::torch
