// SPDX-License-Identifier: Apache-2.0
//
// The result of one measurement. The numbers are exchanged, so they are equal on every rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives.hpp"
#include "device.hpp"
#include "options.hpp"

namespace perf {

// Microseconds of single iterations, of one rank.
struct Latency {
  double minimum = 0, p50 = 0, p99 = 0;
};

// Out of place, or in place.
struct Side {
  bool measured = false;
  bool checked = false;
  double time_us = 0;                                 // of one iteration, as the report mode says
  double algorithm_bandwidth = 0, bus_bandwidth = 0;  // 1e9 bytes per second
  uint64_t wrong = 0;                                 // elements, of all ranks
  std::vector<double> rank_time_us;
  std::vector<Latency> rank_latency;  // empty: not measured
  Latency latency;                    // as the report mode says
  double free_us = 0;                 // of the same in the free order, for an exact sum; 0: not measured
  double exact_ratio() const { return time_us / free_us; }
};

struct Row {
  const Collective* collective = nullptr;
  uint64_t bytes = 0, count = 0;
  std::string dtype, op;  // op: "none" where nothing is reduced
  int64_t root = -1;
  Side out_of_place, in_place;
};

struct RankIdentity {
  uint32_t rank = 0;
  int64_t pid = 0;
  std::string host;
};

// The bytes of one rail of rank 0, including warm-up and checks.
struct Rail {
  std::string transport, name;
  uint64_t sent_bytes = 0, received_bytes = 0;
};

// Facts known before the first row.
struct Setting {
  uint32_t nranks = 1;
  std::vector<RankIdentity> ranks;
  std::string transports;  // "shm", "shm+tcp"; "" for one rank
  uint32_t devices = 0;    // with --device: how many of the kind a process sees
  std::optional<Baseline> baseline;
};

// Microseconds in which a device could read every input and write every output once, at the rate of its copies, where
// all ranks share one device; 0: there is no such bound.
inline double bound_us(const Row& row, const Setting& setting) {
  if (setting.devices != 1 || !setting.baseline || !row.bytes) return 0;
  const Collective& c = *row.collective;
  const double n = setting.nranks,
               most = static_cast<double>(std::max(c.in_blocks(setting.nranks), c.out_blocks(setting.nranks)));
  const double readers = c.in_at_root_only ? 1 : n, writers = c.out_at_root_only ? 1 : n;
  const double moved = static_cast<double>(row.bytes) / most *
                       (readers * static_cast<double>(c.in_blocks(setting.nranks)) +
                        writers * static_cast<double>(c.out_blocks(setting.nranks)));
  return moved / setting.baseline->copy / 1e3;
}

}  // namespace perf
