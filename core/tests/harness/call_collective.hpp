// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tutti/schedule.h>
#include <tutti/tutti.hpp>

namespace tutti::test {

// A blocking call of a collective with equal blocks of `count` elements of T; reductions are sums.
template <typename T>
tutti_status call_collective(tutti_comm* c, uint32_t collective, const void* in, void* out, uint64_t count,
                             uint32_t root) {
  const uint32_t t = dtype_of<T>();
  switch (collective) {
    case TUTTI_BROADCAST:
      return tutti_broadcast(c, in, out, count, t, root, nullptr, nullptr);
    case TUTTI_REDUCE:
      return tutti_reduce(c, in, out, count, t, TUTTI_SUM, root, nullptr, nullptr);
    case TUTTI_ALL_REDUCE:
      return tutti_all_reduce(c, in, out, count, t, TUTTI_SUM, nullptr, nullptr);
    case TUTTI_GATHER:
      return tutti_gather(c, in, out, count, t, root, nullptr, nullptr);
    case TUTTI_ALL_GATHER:
      return tutti_all_gather(c, in, out, count, t, nullptr, nullptr);
    case TUTTI_SCATTER:
      return tutti_scatter(c, in, out, count, t, root, nullptr, nullptr);
    case TUTTI_REDUCE_SCATTER:
      return tutti_reduce_scatter(c, in, out, count, t, TUTTI_SUM, nullptr, nullptr);
    case TUTTI_ALL_TO_ALL:
      return tutti_all_to_all(c, in, out, count, t, nullptr, nullptr);
    case TUTTI_SCAN:
      return tutti_scan(c, in, out, count, t, TUTTI_SUM, nullptr, nullptr);
    case TUTTI_EXCLUSIVE_SCAN:
      return tutti_exclusive_scan(c, in, out, count, t, TUTTI_SUM, nullptr, nullptr);
    default:
      return tutti_barrier(c, nullptr, nullptr);
  }
}

}  // namespace tutti::test
