// SPDX-License-Identifier: Apache-2.0
#include "matrix/application_operators.hpp"

#include <tutti/schedule.h>

#include <tutti/tutti.hpp>

namespace tutti::conformance {

std::string operator_name(uint32_t op) {
  return op == app_sum ? "app_sum" : op == app_compose ? "app_compose" : op ? op_name(op) : "none";
}

uint32_t operator_from_name(const std::string& name) {
  return name == "app_sum" ? app_sum : name == "app_compose" ? app_compose : op_from_name(name);
}

OperatorOf::OperatorOf(tutti_comm* comm, const ElementType* type, uint32_t op)
    : comm_(comm), type_(type), op_(op), number_(op) {
  if (!is_of_application(op)) return;
  const std::string name = operator_name(op);
  tutti_op_config config{};
  config.struct_size = sizeof config;
  config.flags = op == app_compose ? uint32_t{TUTTI_OP_NOT_COMMUTATIVE} : 0;
  config.name = name.c_str();
  config.function = apply;
  config.context = this;
  config.dtypes = uint64_t{1} << dtype_from_name(type->name);
  if (const tutti_status status = tutti_op_create(comm, &config, &number_); status < 0)
    throw Error(status, tutti_comm_error(comm));
}

OperatorOf::~OperatorOf() {
  if (is_of_application(op_)) tutti_op_free(comm_, number_);
}

tutti_status OperatorOf::apply(void* inout, const void* in, uint64_t count, uint32_t, void* self) {
  const ElementType& type = *static_cast<const OperatorOf*>(self)->type_;
  const uint32_t op = static_cast<const OperatorOf*>(self)->op_;
  for (uint64_t i = 0; i < count; ++i)
    store(type, inout, i, combined(type, op, load(type, inout, i), load(type, in, i)));
  return TUTTI_OK;
}

}  // namespace tutti::conformance
