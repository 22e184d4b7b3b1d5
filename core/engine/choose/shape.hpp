// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tutti/schedule.h>

#include <cstddef>
#include <cstdint>

#include "kernels/codec.hpp"

namespace tutti::core {

// The order in which a reduction combines contributions, with the numbers of TUTTI_ORDER_*.
enum class Order : uint32_t { free = 1, canonical, exact };
inline const char* order_name(Order order) {
  return order == Order::exact ? "exact" : order == Order::canonical ? "canonical" : "free";
}
// Sums, products, averages and the application's operators of numbers that are no integers: their results depend on
// roundings. `op`: of a shape, or TUTTI_FIRST_USER_OP or above.
inline bool rounds(uint32_t op, uint32_t dtype) {
  const bool computes = op == TUTTI_SUM || op == TUTTI_PROD || op == TUTTI_AVG || op > TUTTI_MAXLOC;
  return computes && !op_is_defined(TUTTI_BAND, dtype);
}

// The key of a plan: calls with equal shapes share a plan.
struct Shape {
  uint64_t count = 0;  // of a block; where blocks are unequal see BlockTable::shape_count
  uint32_t collective = 0;
  uint32_t dtype = 0;
  uint32_t op = 0;
  uint32_t root = 0;
  uint32_t in_place = 0;
  Order order = Order::free;
  uint64_t algorithms = 0;  // of the call itself, as Selector::algorithms_of_call numbers them; 0: the communicator's
  uint32_t wire = 0;  // TUTTI_WIRE_*
  uint32_t number_bytes() const { return dtype ? dtype_bytes(dtype) : 1; }
  // The number of things that move and are reduced: elements of a block, or, in a wire format, their units.
  uint64_t units() const { return wire ? units_of(wire, count) : count; }
  uint32_t element_bytes() const { return wire ? unit_bytes(wire) : number_bytes(); }
  // Codes have memory of their own.
  bool runs_in_place() const { return in_place && !wire; }
  // Only schedules that reduce the contributions in one step and then move the result serve it: minima and maxima of
  // codes do not round.
  bool must_be_flat() const { return order == Order::exact || sums_codes(); }
  bool sums_codes() const { return wire && (op == TUTTI_SUM || op == TUTTI_AVG); }
  // The sums that each rank gets for itself alone stay float32.
  bool keeps_sums() const {
    return sums_codes() && (collective == TUTTI_REDUCE_SCATTER || collective == TUTTI_REDUCE_SCATTER_V);
  }
  bool operator==(const Shape&) const = default;
};

struct ShapeHash {
  size_t operator()(const Shape& s) const {
    uint64_t h = s.count * 0x9e3779b97f4a7c15u;
    h ^= (uint64_t{s.collective} << 48) ^ (uint64_t{s.dtype} << 40) ^ (uint64_t{s.op} << 36) ^
         (uint64_t{s.in_place} << 33) ^ (static_cast<uint64_t>(s.order) << 30) ^ (uint64_t{s.wire} << 28) ^ s.root;
    h ^= s.algorithms;
    return h ^ (h >> 29);
  }
};

}  // namespace tutti::core
