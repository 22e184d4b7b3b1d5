// SPDX-License-Identifier: Apache-2.0
//
// The values of settings that have names.
#pragma once

#include <pybind11/pybind11.h>
#include <tutti/tutti.h>

#include <cstdint>
#include <span>
#include <string>

namespace tutti::python {

struct Name {
  const char* text;
  uint32_t value;
};

constexpr Name orders[] = {
    {"free", TUTTI_ORDER_FREE}, {"canonical", TUTTI_ORDER_CANONICAL}, {"exact", TUTTI_ORDER_EXACT}};
constexpr Name wires[] = {{"plain", TUTTI_WIRE_PLAIN},
                          {"float16", TUTTI_WIRE_FLOAT16},
                          {"bfloat16", TUTTI_WIRE_BFLOAT16},
                          {"float8", TUTTI_WIRE_FLOAT8}};

// Raises ValueError for another name. `otherwise`: what the setting may be besides, for the text.
inline uint32_t value_of(const char* call, const char* setting, const std::string& given, std::span<const Name> names,
                         const std::string& otherwise = "") {
  std::string known;
  for (const Name& name : names) {
    if (given == name.text) return name.value;
    known += std::string(known.empty() ? "\"" : ", \"") + name.text + "\"";
  }
  if (!otherwise.empty()) known += ", or " + otherwise;
  throw pybind11::value_error(std::string(call) + ": " + setting + " is \"" + given + "\": expected " + known);
}

}  // namespace tutti::python
