// SPDX-License-Identifier: Apache-2.0
//
// The Python module of tutti.torch for one minor version of torch: TUTTI_TORCH_MODULE is its name.
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <chrono>

#include "call_options.hpp"
#include "process_group.hpp"
#include "recorder.hpp"

namespace py = pybind11;
using tutti::torch::Error;
using tutti::torch::ProcessGroup;

namespace {

// Python's tutti.Timeout and so on, which are RuntimeErrors too.
void raise(const Error& error) {
  const py::object type = py::module_::import("tutti.torch").attr("_error_of")(error.status);
  const py::object exception = type(error.what());
  exception.attr("status") = error.status;
  PyErr_SetObject(type.ptr(), exception.ptr());
}

c10::intrusive_ptr<ProcessGroup> create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                        double seconds, const std::string& name, bool deferred) {
  // Less than the clock's unit is still a deadline, and more than a lifetime none.
  const auto timeout = std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(std::min(seconds, 1e9)));
  return deferred ? tutti::torch::make_deferred_group(store, rank, size, timeout, name)
                  : tutti::torch::make_group(store, rank, size, timeout, name);
}

}  // namespace

PYBIND11_MODULE(TUTTI_TORCH_MODULE, module) {
  py::register_exception_translator([](std::exception_ptr problem) {
    try {
      if (problem) std::rethrow_exception(problem);
    } catch (const Error& error) {
      raise(error);
    }
  });
  using Free = py::call_guard<py::gil_scoped_release>;
  py::class_<ProcessGroup, c10::intrusive_ptr<ProcessGroup>, c10d::Backend> group(module, "ProcessGroupTutti");
  group
      .def(py::init(&create), Free(), py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("seconds"),
           py::arg("name"), py::arg("deferred") = false)
      .def("close", &ProcessGroup::close, py::arg("reason") = "",
           "Ends the group: collective. With a reason: aborts what all ranks have under way.")
      // These two torch 2.14 has for all backends.
      .def_property_readonly("options", &ProcessGroup::getBackendOptions)
      .def("get_error", &ProcessGroup::getError)
      // torch calls it on ranks that are in no part of a group that is split.
      .def(
          "perform_nocolor_split", [](const ProcessGroup&, const py::object&) {}, py::arg("device"));
  // torch copies them for a group that it makes by them.
  using Options = ProcessGroup::Options;
  py::class_<Options, c10::intrusive_ptr<Options>, c10d::Backend::Options>(group, "Options")
      .def("__deepcopy__", [](const Options& own, const py::object&) { return c10::make_intrusive<Options>(own); });
  module.def("_flight_recordings", &tutti::torch::flight_recordings, py::arg("stacks"));
  module.def("_enter_call", &tutti::torch::CallOptions::enter, py::arg("algorithms"), py::arg("order"), py::arg("wire"),
             py::arg("tag"));
  module.def("_leave_call", &tutti::torch::CallOptions::leave);
  module.def("_close_all", &tutti::torch::close_all, Free(), py::arg("reason"));
}
