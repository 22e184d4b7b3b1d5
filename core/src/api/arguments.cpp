// SPDX-License-Identifier: Apache-2.0
#include "api/arguments.hpp"

#include <fmt/format.h>
#include <tutti/schedule.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <tutti/base/bits.hpp>

#include "api/guards.hpp"

namespace tutti::core::api {
namespace {

[[noreturn]] void stream_without_device(const char* call, const char* why) {
  throw Failure(TUTTI_NOT_SUPPORTED, fmt::format("{}: options.stream is set, but {}", call, why));
}

const UserOperator* check_user_op(const UserOperators& all, const char* call, uint32_t number, uint32_t dtype) {
  const UserOperator* op = all.find(number);
  if (!op)
    invalid(fmt::format("{}: operator {:#x} {}: make one with tutti_op_create, for each communicator", call, number,
                        all.was_there(number) ? "was freed (tutti_op_free), or is another communicator's"
                                              : "is not an operator of this communicator"));
  if (!dtype_bytes(dtype) || has_bit(op->dtypes, dtype)) return op;
  std::string taken;
  for (const uint32_t known : all_dtypes())
    if (has_bit(op->dtypes, known)) taken += (taken.empty() ? "" : ", ") + std::string(dtype_name(known));
  invalid(fmt::format("{}: operator \"{}\" is not defined for {}: it was made for {} (tutti_op_config.dtypes)", call,
                      op->name, dtype_name(dtype), taken));
}

// Why the wire format cannot serve the call; "" where it can.
std::string why_not_coded(uint32_t wire, const Shape& shape) {
  switch (shape.collective) {
    case TUTTI_BROADCAST:
    case TUTTI_ALL_GATHER:
    case TUTTI_ALL_GATHER_V:
    case TUTTI_REDUCE:
    case TUTTI_ALL_REDUCE:
    case TUTTI_REDUCE_SCATTER:
    case TUTTI_REDUCE_SCATTER_V:
      break;
    default:
      return "wire formats serve broadcast, all_gather, all_gather_v, reduce, all_reduce, reduce_scatter and "
             "reduce_scatter_v only";
  }
  if (shape.dtype != TUTTI_FLOAT32)
    return fmt::format("wire formats are for float32: {} travels as it is", dtype_name(shape.dtype));
  if (!is_reducing(shape.collective)) return {};
  const bool adds = shape.op == TUTTI_SUM || shape.op == TUTTI_AVG;
  if (is_of_application(shape.op)) return "an operator of the application takes numbers that are not rounded";
  if (adds && shape.order != Order::free)
    return fmt::format("the order of the sum is {}: contributions that are rounded on their way are another sum",
                       order_name(shape.order));
  if (adds || ((shape.op == TUTTI_MIN || shape.op == TUTTI_MAX) && !is_in_blocks(wire))) return {};
  if (shape.op == TUTTI_MIN || shape.op == TUTTI_MAX)
    return fmt::format(
        "{} of float8 depends on the scales of its blocks: use float16 or bfloat16, whose rounding keeps "
        "the order of numbers",
        op_name(shape.op));
  return fmt::format("the error of {} has no bound: expected sum, avg, min or max", op_name(shape.op));
}

}  // namespace

void check_op_on_device(const char* call, const DeviceMemory& where, uint32_t op, uint32_t dtype, Order order) {
  if (order == Order::exact)
    throw Failure(
        TUTTI_NOT_SUPPORTED,
        fmt::format("{}: the buffers are memory of {}: exact sums serve host memory only; copy the data to the "
                    "host, or use options.order = TUTTI_ORDER_CANONICAL for this call",
                    call, describe(where)));
  if (op < TUTTI_FIRST_USER_OP) return require_reduction(call, where.tables, dtype, op);
  throw Failure(
      TUTTI_NOT_SUPPORTED,
      fmt::format("{}: the buffers are memory of {}: operators that the application made serve host memory only; "
                  "copy the data to the host, or use one of Tutti's operators",
                  call, describe(where)));
}

const UserOperator* check_op(const Communicator& communicator, const char* call, uint32_t op, uint32_t dtype) {
  if (op >= TUTTI_FIRST_USER_OP) return check_user_op(communicator.operators(), call, op, dtype);
  if (op < TUTTI_SUM || op > TUTTI_MAXLOC) invalid(fmt::format("{}: {} is not an operator", call, op));
  if (dtype_bytes(dtype) && !op_is_defined(op, dtype))
    invalid(fmt::format("{}: operator {} is not defined for {}: expected one of {}, or a type that has it ({})", call,
                        op_name(op), dtype_name(dtype), ops_of_dtype(dtype), dtypes_of_op(op)));
  return nullptr;
}

static_assert(uint32_t(Order::canonical) == TUTTI_ORDER_CANONICAL && uint32_t(Order::exact) == TUTTI_ORDER_EXACT);

Order check_order(const Communicator& communicator, const char* call, uint32_t order, bool reduces, uint32_t op,
                  uint32_t dtype) {
  if (order > TUTTI_ORDER_EXACT)
    invalid(fmt::format("{}: options.order is {}, expected TUTTI_ORDER_FREE, TUTTI_ORDER_CANONICAL, TUTTI_ORDER_EXACT "
                        "or 0 (the communicator's)",
                        call, order));
  if (order && !reduces)
    invalid(fmt::format("{}: options.order is {}, but the call reduces nothing: expected 0", call,
                        order_name(Order{order})));
  if (!reduces) return Order::free;
  const Order asked = order ? Order{order} : communicator.order();
  if (asked != Order::exact) return asked;
  if (!dtype_bytes(dtype) || !rounds(op, dtype)) return Order::free;
  if ((op != TUTTI_SUM && op != TUTTI_AVG) || !find_exact_sum(dtype)) {
    const UserOperator* user = communicator.operators().find(op);
    throw Failure(
        TUTTI_NOT_SUPPORTED,
        fmt::format("{}: exact sums are defined for sum and avg of float16, bfloat16, float32 and float64, not for {} "
                    "of {}: use options.order = TUTTI_ORDER_FREE for this call",
                    call, user ? "operator \"" + user->name + '"' : std::string(op_name(op)), dtype_name(dtype)));
  }
  if (communicator.nranks() > most_exact_sources)
    throw Failure(
        TUTTI_NOT_SUPPORTED,
        fmt::format("{}: exact sums are served for up to {} ranks, this communicator has {}: use options.order "
                    "= TUTTI_ORDER_CANONICAL, or reduce in parts",
                    call, most_exact_sources, communicator.nranks()));
  return asked;
}

uint32_t check_wire(const Communicator& communicator, const char* call, uint32_t wire, const Shape& shape,
                    const DeviceMemory& where) {
  if (wire == TUTTI_WIRE_PLAIN) return TUTTI_WIRE_PLAIN;
  if (wire > TUTTI_WIRE_FLOAT8)
    invalid(
        fmt::format("{}: options.wire is {}, expected TUTTI_WIRE_FLOAT16, TUTTI_WIRE_BFLOAT16, TUTTI_WIRE_FLOAT8 "
                    "or 0 (plain)",
                    call, wire));
  if (const std::string why = why_not_coded(wire, shape); !why.empty())
    invalid(fmt::format("{}: options.wire is {}, but {}", call, wire_name(wire), why));
  if (where)
    throw Failure(
        TUTTI_NOT_SUPPORTED,
        fmt::format("{}: options.wire is {}, but the buffers are memory of {}: wire formats serve host memory", call,
                    wire_name(wire), describe(where)));
  return communicator.nranks() > 1 ? wire : uint32_t{TUTTI_WIRE_PLAIN};
}

void check_collective(const char* call, uint32_t collective) {
  if (collective < TUTTI_BROADCAST || collective > last_collective)
    invalid(fmt::format("{}: {} is not a collective", call, collective));
}

void check_rank(const char* call, const char* which, uint32_t rank, uint32_t nranks) {
  if (rank >= nranks) invalid(fmt::format("{}: {} is {}, expected less than {} ranks", call, which, rank, nranks));
}

uint64_t size_of(const char* call, uint64_t count, uint32_t dtype, uint64_t blocks) {
  const uint32_t element = dtype_bytes(dtype);
  if (!element) invalid(fmt::format("{}: {} is not a data type", call, dtype));
  if (count > most_bytes / element / std::max<uint64_t>(blocks, 1))
    invalid(fmt::format("{}: {} elements of {} bytes for {} ranks is more than can be addressed", call, count, element,
                        blocks));
  return count * element;
}

void check_pointer(const char* call, const char* which, const void* pointer, uint64_t bytes, uint32_t dtype) {
  if (bytes == 0) return;
  if (!pointer) invalid(fmt::format("{}: {} is NULL, expected a buffer of {} bytes", call, which, bytes));
  const uint32_t alignment = dtype_alignment(dtype);
  if (reinterpret_cast<uintptr_t>(pointer) % alignment)
    invalid(fmt::format("{}: {} = {} is not aligned to its type {} ({} bytes)", call, which, pointer, dtype_name(dtype),
                        alignment));
}

DeviceMemory locate(Communicator& communicator, const char* call, const char* names, const Buffer& in,
                    const Buffer& out, void* stream) {
  const DeviceMemory& own = communicator.device();
  if (!own && stream) stream_without_device(call, communicator.why_no_device());
  if (!own || (!in.bytes && !out.bytes)) return {};
  const Buffer& asked = in.bytes ? in : out;
  const bool known = communicator.is_known_host_memory(asked.address, asked.bytes);
  const DeviceMemory first = known ? DeviceMemory{} : find_device(asked.address, own);
  if (in.bytes && out.bytes && (first || communicator.checks_calls()))
    if (const DeviceMemory second = find_device(out.address, own); second != first)
      invalid(fmt::format("{}: in = {} is memory of {}, out = {} of {}: both have to be on one", call, in.address,
                          describe(first), out.address, describe(second)));
  if (!first && stream) stream_without_device(call, "the buffers are host memory");
  if (first && first != own)
    invalid(
        fmt::format("{}: {} is memory of {}, but this communicator was bound to {} when it was made "
                    "(tutti_comm_config.device, TUTTI_DEVICE)",
                    call, names, describe(first), describe(own)));
  return first;
}

DeviceMemory locate_stream(const Communicator& communicator, const char* call, void* stream) {
  if (stream && !communicator.device()) stream_without_device(call, communicator.why_no_device());
  return stream ? communicator.device() : DeviceMemory{};
}

}  // namespace tutti::core::api
