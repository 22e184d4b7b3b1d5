// SPDX-License-Identifier: Apache-2.0
#include "windows.hpp"

#include <pybind11/stl.h>

#include <utility>

namespace tutti::python {
namespace {

namespace py = pybind11;
using namespace py::literals;

tutti_window_options options(const char* argument, uint32_t flags, const std::optional<double>& timeout) {
  return {sizeof(tutti_window_options), flags, nanoseconds(argument, timeout)};
}

constexpr const char* window_help =
    "Memory that all ranks of a communicator have registered together (Communicator.register). As a context manager "
    "it\n"
    "is closed at the end of the block, unless an exception leaves it: other ranks might not come.";

}  // namespace

tutti_window_facts Window::facts() const {
  if (!is_open()) raise(TUTTI_INVALID_USAGE, "the window is closed: register its memory again");
  tutti_window_facts facts{};
  facts.struct_size = sizeof facts;
  tutti_comm* const comm = state_->handle();
  check(tutti_comm_window(comm, window_, &facts), tutti_comm_error(comm));
  return facts;
}

std::string Window::text() const {
  if (!is_open()) return "<tutti.Window, closed>";
  const tutti_window_facts about = facts();
  return "<tutti.Window " + std::to_string(about.id) + " of " + std::to_string(about.bytes) + " bytes, " +
         state_->text() + ", " + (about.in_place ? "in place>" : "staged: " + std::string(about.reason) + ">");
}

void Window::close(std::optional<double> timeout) {
  if (!is_open()) return;
  const tutti_window_options how = options("Window.close: timeout", 0, timeout);
  state_->use([&](tutti_comm* comm) { return tutti_comm_deregister(comm, window_, &how); });
  state_->windows.erase(std::exchange(window_, nullptr));
}

Window make_window(const Calls& communicator, py::handle object, bool zero_copy, std::optional<double> timeout,
                   uintptr_t stream) {
  Data data(object, "register", "data", true, stream, Elements::any);
  const tutti_window_options how = options("register: timeout", zero_copy ? TUTTI_WINDOW_ZERO_COPY : 0, timeout);
  tutti_window* window = nullptr;
  communicator.state->use(
      [&](tutti_comm* comm) { return tutti_comm_register(comm, data.address(), data.bytes(), &how, &window); });
  communicator.state->windows.emplace(window, std::move(data));
  return {communicator.state, window};
}

void add_windows(py::module_& module) {
  py::class_<Window>(module, "Window", window_help)
      .def_property_readonly(
          "in_place", [](const Window& w) { return w.facts().in_place != 0; },
          "Whether other ranks use the memory where it lies.")
      .def_property_readonly(
          "reason", [](const Window& w) { return std::string(w.facts().reason); },
          "Why it is staged: which rank cannot use it in place; else \"\".")
      .def_property_readonly(
          "bytes", [](const Window& w) { return w.facts().bytes; }, "Its size in bytes.")
      .def_property_readonly(
          "id", [](const Window& w) { return w.facts().id; }, "A number, the same on all ranks.")
      .def_property_readonly(
          "closed", [](const Window& w) { return !w.is_open(); }, "True after close(), or that of its communicator.")
      .def(
          "close", &Window::close, "timeout"_a = py::none(),
          "Takes the memory back when all ranks have come to it, and their pending operations have ended; collective.\n"
          "`timeout`: seconds; None: the communicator's. Raises Timeout where a rank does not come.")
      .def("__repr__", &Window::text)
      .def("__enter__", [](const py::object& self) { return self; })
      .def("__exit__", [](Window& w, const py::object& kind, const py::object&, const py::object&) {
        if (kind.is_none()) w.close(std::nullopt);
      });
}

}  // namespace tutti::python
