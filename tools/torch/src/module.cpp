// SPDX-License-Identifier: Apache-2.0
//
// The Python module tutti.torch._core.
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <chrono>

#include "process_group.hpp"

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

PYBIND11_MODULE(_core, module) {
  py::register_exception_translator([](std::exception_ptr problem) {
    try {
      if (problem) std::rethrow_exception(problem);
    } catch (const Error& error) {
      raise(error);
    }
  });
  using Free = py::call_guard<py::gil_scoped_release>;
  py::class_<ProcessGroup, c10::intrusive_ptr<ProcessGroup>, tutti::torch::Base> group(module, "ProcessGroupTutti");
  group
      .def(py::init(&create), Free(), py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("seconds"),
           py::arg("name"), py::arg("deferred") = false)
      .def_property_readonly("options", &ProcessGroup::getBackendOptions)
      // new_group calls it on ranks that are not in the new group where the default group is bound to a device.
      .def(
          "perform_nocolor_split", [](ProcessGroup&, const py::object&) {}, py::arg("device"))
      .def(
          "allgather_into_tensor_coalesced",
          [](ProcessGroup& group, tutti::torch::Tensors out, tutti::torch::Tensors in) {
            return group.allgather_into_tensor_coalesced(out, in, {});
          },
          Free(), py::arg("outputs"), py::arg("inputs"))
      .def(
          "reduce_scatter_tensor_coalesced",
          [](ProcessGroup& group, tutti::torch::Tensors out, tutti::torch::Tensors in, const c10d::ReduceOp& op) {
            c10d::ReduceScatterOptions options;
            options.reduceOp = op;
            return group.reduce_scatter_tensor_coalesced(out, in, options);
          },
          Free(), py::arg("outputs"), py::arg("inputs"), py::arg("op") = c10d::ReduceOp(c10d::ReduceOp::SUM))
      .def("close", &ProcessGroup::close, Free(), py::arg("reason") = "",
           "Ends the group: collective. With a reason: aborts what all ranks have under way.");
  using Options = ProcessGroup::Options;
  py::class_<Options, c10::intrusive_ptr<Options>, c10d::Backend::Options>(group, "Options")
      .def("__deepcopy__", [](const Options& own, const py::object&) { return c10::make_intrusive<Options>(own); });
  module.def("_close_all", &tutti::torch::close_all, Free(), py::arg("reason"));
}
