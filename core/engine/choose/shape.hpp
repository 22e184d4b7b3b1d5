// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tutti/schedule.h>

#include <cstddef>
#include <cstdint>

namespace tutti::core {

// The order in which a reduction combines contributions, with the numbers of TUTTI_ORDER_*.
enum class Order : uint32_t { free = 1, canonical, exact };
inline const char* order_name(Order order) {
  return order == Order::exact ? "exact" : order == Order::canonical ? "canonical" : "free";
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
  uint32_t element_bytes() const { return dtype ? dtype_bytes(dtype) : 1; }
  bool operator==(const Shape&) const = default;
};

struct ShapeHash {
  size_t operator()(const Shape& s) const {
    uint64_t h = s.count * 0x9e3779b97f4a7c15u;
    h ^= (uint64_t{s.collective} << 48) ^ (uint64_t{s.dtype} << 40) ^ (uint64_t{s.op} << 36) ^
         (uint64_t{s.in_place} << 33) ^ (static_cast<uint64_t>(s.order) << 30) ^ s.root;
    h ^= s.algorithms;
    return h ^ (h >> 29);
  }
};

}  // namespace tutti::core
