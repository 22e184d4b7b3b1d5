// SPDX-License-Identifier: Apache-2.0
//
// Operators of the application.
#include <tutti/registry.h>
#include <tutti/schedule.h>
#include <tutti/tutti.h>

#include <cstring>

#include "api/arguments.hpp"
#include "api/guards.hpp"

namespace tutti::core::api {
namespace {

uint64_t known_dtypes() {
  uint64_t mask = 0;
  for (const uint32_t dtype : all_dtypes()) mask |= uint64_t{1} << dtype;
  return mask;
}

UserOperator checked_operator(const tutti_op_config* given) {
  constexpr const char* call = "op_create";
  require(call, judge_size(given));
  const tutti_op_config config = known_part(*given);
  if (config.flags & ~uint32_t{TUTTI_OP_NOT_COMMUTATIVE})
    throw Failure(TUTTI_NOT_SUPPORTED, fmt::format("{}: config.flags is {:#x}, but only {:#x} are known", call,
                                                   config.flags, uint32_t{TUTTI_OP_NOT_COMMUTATIVE}));
  if (!config.name || !*config.name)
    invalid(fmt::format("{}: config.name is {}: name the operator, the same on all ranks, which compare it", call,
                        config.name ? "empty" : "NULL"));
  if (std::strlen(config.name) > most_op_name)
    invalid(fmt::format("{}: config.name \"{}\" has {} characters, expected at most {}", call, config.name,
                        std::strlen(config.name), most_op_name));
  if (!config.function)
    invalid(fmt::format("{}: operator \"{}\" has no function: set config.function", call, config.name));
  const uint64_t known = known_dtypes();
  if (config.dtypes & ~known)
    invalid(
        fmt::format("{}: config.dtypes of operator \"{}\" is {:#x}, which names types that do not exist: expected "
                    "bits 1 << TUTTI_FLOAT32 and so on, within {:#x}",
                    call, config.name, config.dtypes, known));
  return {config.name, !(config.flags & TUTTI_OP_NOT_COMMUTATIVE), config.dtypes ? config.dtypes : known,
          config.function, config.context};
}

UserOperator checked_premul_sum(uint32_t dtype, const void* factor) {
  constexpr const char* call = "op_create_premul_sum";
  const uint64_t bytes = size_of(call, 1, dtype, 1);
  if (!op_is_defined(TUTTI_PROD, dtype))
    invalid(
        fmt::format("{}: {} has no product: expected one of {}", call, dtype_name(dtype), dtypes_of_op(TUTTI_PROD)));
  if (!factor) invalid(fmt::format("{}: factor is NULL, expected one {} in host memory", call, dtype_name(dtype)));
  UserOperator made{"premul_sum", true, uint64_t{1} << dtype, nullptr, nullptr, Factor{}};
  std::memcpy(made.factor->data(), factor, bytes);
  return made;
}

}  // namespace
}  // namespace tutti::core::api

using namespace tutti::core;
using namespace tutti::core::api;

extern "C" {

tutti_status tutti_op_create(tutti_comm* comm, const tutti_op_config* config, uint32_t* op) {
  return guarded(comm, [&](Communicator& c) {
    if (!config) invalid("op_create: config is NULL");
    if (!op) invalid("op_create: op is NULL, expected where to write the operator's number");
    *op = c.calls().make_op(checked_operator(config));
  });
}

tutti_status tutti_op_create_premul_sum(tutti_comm* comm, uint32_t dtype, const void* factor, uint32_t* op) {
  return guarded(comm, [&](Communicator& c) {
    if (!op) invalid("op_create_premul_sum: op is NULL, expected where to write the operator's number");
    *op = c.calls().make_op(checked_premul_sum(dtype, factor));
  });
}

tutti_status tutti_op_free(tutti_comm* comm, uint32_t op) {
  return guarded(comm, [&](Communicator& c) {
    if (op < TUTTI_FIRST_USER_OP)
      invalid(fmt::format("op_free: operator {} is Tutti's own: only those of tutti_op_create are freed", op));
    check_op(c, "op_free", op, 0);
    c.calls().free_op(op);
  });
}

void tutti_op_set_error(const char* text) { leave_plugin_error(text); }

}  // extern "C"
