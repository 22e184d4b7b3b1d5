// SPDX-License-Identifier: Apache-2.0
//
// Whole numbers that a caller gives: ranks, tags, counts.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>

namespace tutti::python {

// An argument that should be a whole number: of int, or another type with __index__ (numpy.int64). pybind11 takes every
// object for it, so that the call itself can say what is wrong.
struct Number {
  pybind11::object given;

  // Raises TypeError for what is no whole number, and InvalidArgument for one below 0 or above `most`: "`call`: `name`
  // is -1: expected `expected`".
  uint64_t value(const char* call, const char* name, const char* expected = "a whole number from 0 up",
                 uint64_t most = UINT64_MAX) const;
  uint32_t of_32_bits(const char* call, const char* name) const {
    return static_cast<uint32_t>(value(call, name, "a whole number from 0 up", UINT32_MAX));
  }
  // That there is such a rank is for the call to say.
  uint32_t rank(const char* call, const char* name) const {
    return static_cast<uint32_t>(value(call, name, "the number of a rank, from 0 up", UINT32_MAX));
  }
};

}  // namespace tutti::python

template <>
struct pybind11::detail::type_caster<tutti::python::Number> {
  PYBIND11_TYPE_CASTER(tutti::python::Number, const_name("int"));
  bool load(handle given, bool) {
    value.given = reinterpret_borrow<object>(given);
    return true;
  }
};
