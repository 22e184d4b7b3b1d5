// SPDX-License-Identifier: Apache-2.0
//
// Tutti's failures as Python exceptions.
#pragma once

#include <pybind11/pybind11.h>
#include <tutti/tutti.h>

#include <string>

namespace tutti::python {

// Adds tutti.Error and its subclasses to the module.
void add_errors(pybind11::module_& module);

// Raises the exception that stands for a status, with the text and the attribute `status`. The interpreter's lock is
// held.
[[noreturn]] void raise(tutti_status status, const std::string& text);
inline void check(tutti_status status, const char* text) {
  if (status < 0) raise(status, text);
}

}  // namespace tutti::python
