// SPDX-License-Identifier: Apache-2.0
#include "error.hpp"

#include <array>

namespace tutti::python {
namespace {

namespace py = pybind11;

// An exception of each status. It is also one of Python's own kinds where there is one that says the same.
struct Kind {
  tutti_status status;
  const char* name;
  PyObject** also;
  const char* help;
  PyObject* type = nullptr;
};
std::array<Kind, 11> kinds{{
    {TUTTI_INVALID_ARGUMENT, "InvalidArgument", &PyExc_ValueError, "An argument that can never be right."},
    {TUTTI_NOT_SUPPORTED, "NotSupported", &PyExc_NotImplementedError,
     "Legal, but not offered here; the text says what is."},
    {TUTTI_NOT_FOUND, "NotFound", &PyExc_LookupError, "An unknown name."},
    {TUTTI_NO_RESOURCES, "NoResources", nullptr, "Out of memory, descriptors or slots."},
    {TUTTI_TIMEOUT, "Timeout", &PyExc_TimeoutError, "A deadline passed; the text says what the other ranks are doing."},
    {TUTTI_PEER_FAILED, "PeerFailed", &PyExc_ConnectionError,
     "Another rank is gone. Communicator.shrink() goes on without it."},
    {TUTTI_ABORTED, "Aborted", nullptr, "A rank aborted or revoked the communicator."},
    {TUTTI_MISMATCH, "Mismatch", nullptr, "Ranks disagree about what they are doing or what they are."},
    {TUTTI_SYSTEM, "SystemFailure", &PyExc_OSError, "The operating system refused; the text has its words."},
    {TUTTI_INVALID_USAGE, "InvalidUsage", nullptr,
     "The right call at the wrong moment: after close(), from a second thread, in a forked child."},
    {TUTTI_INTERNAL, "Internal", nullptr, "A defect of Tutti or of a plugin."},
}};
PyObject* error = nullptr;

}  // namespace

void add_errors(py::module_& module) {
  error = PyErr_NewExceptionWithDoc("tutti.Error",
                                    "A call of Tutti failed. The text says who, what was expected, what came and what "
                                    "to do. `status` is the number that the C API returns.",
                                    PyExc_RuntimeError, nullptr);
  if (!error) throw py::error_already_set();
  module.attr("Error") = py::reinterpret_borrow<py::object>(error);
  for (Kind& kind : kinds) {
    py::tuple bases = py::make_tuple(py::handle(error));
    if (kind.also) bases = py::make_tuple(py::handle(error), py::handle(*kind.also));
    kind.type = PyErr_NewExceptionWithDoc((std::string("tutti.") + kind.name).c_str(), kind.help, bases.ptr(), nullptr);
    if (!kind.type) throw py::error_already_set();
    module.attr(kind.name) = py::reinterpret_borrow<py::object>(kind.type);
  }
}

void raise(tutti_status status, const std::string& text) {
  PyObject* type = error;
  for (const Kind& kind : kinds)
    if (kind.status == status) type = kind.type;
  py::object exception = py::reinterpret_borrow<py::object>(type)(text.empty() ? tutti_status_text(status) : text);
  exception.attr("status") = status;
  PyErr_SetObject(type, exception.ptr());
  throw py::error_already_set();
}

}  // namespace tutti::python
