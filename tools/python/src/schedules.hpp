// SPDX-License-Identifier: Apache-2.0
//
// Schedules as data in Python: built, proved, costed, drawn; and algorithms that are written in Python.
#pragma once

#include <pybind11/pybind11.h>
#include <tutti/plugin/algorithm.h>

#include <string>

#include "error.hpp"

namespace tutti::python {

const tutti_algorithm* find_algorithm_or_null(const std::string& name);
void add_algorithms(pybind11::module_& module);
void add_schedules(pybind11::module_& module);

}  // namespace tutti::python
