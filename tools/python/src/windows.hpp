// SPDX-License-Identifier: Apache-2.0
//
// Memory that all ranks of a communicator have registered together.
#pragma once

#include <pybind11/pybind11.h>

#include "operations.hpp"

namespace tutti::python {

// A handle of a window. The communicator's state keeps its memory.
class Window {
 public:
  Window(std::shared_ptr<State> state, tutti_window* window) : state_(std::move(state)), window_(window) {}
  // Raises InvalidUsage once the window or its communicator is closed.
  tutti_window_facts facts() const;
  bool is_open() const { return window_ && state_->windows.count(window_) != 0; }
  // For people. Raises nothing for a closed one.
  std::string text() const;
  // Collective. Does nothing the second time, and after the end of the communicator.
  void close(std::optional<double> timeout);

 private:
  std::shared_ptr<State> state_;
  tutti_window* window_;
};

// tutti.Window.
void add_windows(pybind11::module_& module);
// Communicator.register.
Window make_window(const Calls& communicator, pybind11::handle data, bool zero_copy, std::optional<double> timeout,
                   uintptr_t stream);

}  // namespace tutti::python
