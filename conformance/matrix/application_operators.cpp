// SPDX-License-Identifier: Apache-2.0
#include "matrix/application_operators.hpp"

#include <tutti/schedule.h>

#include <tutti/tutti.hpp>
#include <utility>

namespace tutti::conformance {
namespace {

constexpr std::pair<uint32_t, const char*> own_names[] = {
    {app_sum, "app_sum"}, {app_compose, "app_compose"}, {sum_exactly, "exact_sum"}, {avg_exactly, "exact_avg"}};

}  // namespace

std::string operator_name(uint32_t op) {
  for (const auto& [number, name] : own_names)
    if (op == number) return name;
  return op ? op_name(op) : "none";
}

uint32_t operator_from_name(const std::string& name) {
  for (const auto& [number, own] : own_names)
    if (name == own) return number;
  return op_from_name(name);
}

OperatorOf::OperatorOf(tutti_comm* comm, const ElementType* type, uint32_t op)
    : comm_(comm),
      type_(type),
      op_(op),
      number_(op == sum_exactly   ? uint32_t{TUTTI_SUM}
              : op == avg_exactly ? uint32_t{TUTTI_AVG}
                                  : op) {
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
