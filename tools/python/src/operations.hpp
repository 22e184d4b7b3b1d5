// SPDX-License-Identifier: Apache-2.0
//
// The calls of a communicator: its own block; those of its attribute `start` return a Request.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <vector>

#include "number.hpp"
#include "state.hpp"

namespace tutti::python {

// Adds tutti.Calls, whose methods are the calls that block, and what they need, to the module: Communicator is a Calls.
void add_operations(pybind11::module_& module);
// Adds tutti.Communicator and all else that is no call.
void add_communicator(pybind11::module_& module);

// A time limit of the C API: None is 0, the default. Raises ValueError for seconds that are not above 0. `argument`:
// "Communicator: timeout".
uint64_t nanoseconds(const char* argument, const std::optional<double>& seconds);

// The blocking calls. On device memory they return when the work is in the stream.
struct Calls {
  static constexpr uint32_t flags = 0;
  std::shared_ptr<State> state;
  template <typename Call>
  void run(const char* name, Call&& call, std::vector<Data> data) const;
};

// The calls that return a request. Persistent ones start nothing: their requests do.
template <uint32_t call_flags>
struct Requests {
  static constexpr uint32_t flags = call_flags;
  std::shared_ptr<State> state;
  template <typename Call>
  std::shared_ptr<Request> run(const char* name, Call&& call, std::vector<Data> data) const;
};
using Start = Requests<0>;
using Persistent = Requests<TUTTI_PERSISTENT>;

// In requests.cpp: tutti.Request and tutti.Group, and the method `group` of the faces.
template <typename Face>
void add_group(pybind11::class_<Face>& face);
void add_requests(pybind11::module_& module);

}  // namespace tutti::python
