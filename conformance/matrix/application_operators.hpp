// SPDX-License-Identifier: Apache-2.0
//
// The operators of the oracle's own, given to the library, and the names of all operators: those of the application,
// and exact sums, which are the library's with options.order.
#pragma once

#include <tutti/tutti.h>

#include <cstdint>
#include <string>

#include "oracle/data.hpp"

namespace tutti::conformance {

// Of any operator: "sum", "app_compose", "exact_sum", "none" for 0.
std::string operator_name(uint32_t op);
// 0: there is none of this name.
uint32_t operator_from_name(const std::string& name);

// An operator in a communicator, for elements of `type`, while this lives. Those of the library need nothing.
class OperatorOf {
 public:
  // Throws tutti::Error.
  OperatorOf(tutti_comm* comm, const ElementType* type, uint32_t op);
  OperatorOf(const OperatorOf&) = delete;
  OperatorOf& operator=(const OperatorOf&) = delete;
  ~OperatorOf();
  // What calls of this communicator get as `op`.
  uint32_t number() const { return number_; }

 private:
  static tutti_status apply(void* inout, const void* in, uint64_t count, uint32_t dtype, void* self);

  tutti_comm* comm_;
  const ElementType* type_;
  uint32_t op_, number_;
};

}  // namespace tutti::conformance
