// SPDX-License-Identifier: Apache-2.0
#include "number.hpp"

#include <string>

#include "error.hpp"

namespace tutti::python {

namespace py = pybind11;

uint64_t Number::value(const char* call, const char* name, const char* expected, uint64_t most) const {
  const auto is = [&](const py::object& object) {
    return std::string(call) + ": " + name + " is " + py::repr(object).cast<std::string>();
  };
  const auto whole = py::reinterpret_steal<py::object>(PyNumber_Index(given.ptr()));
  if (!whole) {
    PyErr_Clear();
    throw py::type_error(is(given) + " (" + Py_TYPE(given.ptr())->tp_name + "): expected " + expected + ", an int");
  }
  const uint64_t value = PyLong_AsUnsignedLongLong(whole.ptr());
  const bool fits = !PyErr_Occurred();
  PyErr_Clear();
  if (!fits || value > most) raise(TUTTI_INVALID_ARGUMENT, is(whole) + ": expected " + expected);
  return value;
}

}  // namespace tutti::python
