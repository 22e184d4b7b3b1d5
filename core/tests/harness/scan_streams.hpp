// SPDX-License-Identifier: Apache-2.0
//
// Scans on device memory, compared with what they have to give.
#pragma once

#include "stream_ranks.hpp"

namespace tutti::test {

inline constexpr const char* doubling_scans = "scan:hillis_steele;exclusive_scan:exclusive_doubling";
inline constexpr const char* chain_scans = "scan:chain;exclusive_scan:chain";

// Both scans, out of place and in place, a sum and an average, without waiting in between.
inline void check_scans(tutti_comm* comm, uint32_t rank, uint64_t count) {
  Stream s;
  const tutti_options options = on(s);
  const auto ok = [&](tutti_status status) { ASSERT_EQ(status, TUTTI_OK) << tutti_comm_error(comm); };
  auto *in = s.make<int64_t>(count), *sum = s.make<int64_t>(count), *before = s.make<int64_t>(count),
       *both = s.make<int64_t>(count), *mean = s.make<int64_t>(count);
  for (uint64_t i = 0; i < count; ++i) in[i] = both[i] = value(rank, i), before[i] = -3;
  ok(tutti_scan(comm, in, sum, count, TUTTI_INT64, TUTTI_SUM, &options, nullptr));
  ok(tutti_exclusive_scan(comm, in, before, count, TUTTI_INT64, TUTTI_SUM, &options, nullptr));
  ok(tutti_scan(comm, in, mean, count, TUTTI_INT64, TUTTI_AVG, &options, nullptr));
  ok(tutti_scan(comm, both, both, count, TUTTI_INT64, TUTTI_MAX, &options, nullptr));
  ok(tutti_exclusive_scan(comm, both, both, count, TUTTI_INT64, TUTTI_MIN, &options, nullptr));
  ASSERT_TRUE(s.finish());
  for (uint64_t i = 0; i < count; ++i) {
    int64_t total = 0;
    for (uint32_t r = 0; r < rank; ++r) total += value(r, i);
    ASSERT_EQ(before[i], rank ? total : -3) << "exclusive_scan at " << i << " of " << count;
    total += value(rank, i);
    ASSERT_EQ(sum[i], total) << "scan at " << i << " of " << count;
    ASSERT_EQ(mean[i], total / (int64_t{rank} + 1)) << "scan, avg, at " << i;
    ASSERT_EQ(both[i], value(0, i)) << "in place at " << i;  // the least of the maxima so far
  }
  for (void* buffer : {in, sum, before, both, mean}) s.free(buffer);
}

}  // namespace tutti::test
