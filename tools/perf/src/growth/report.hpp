// SPDX-License-Identifier: Apache-2.0
//
// The table of `tutti-perf growth` on standard output, and its JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "growth/cost.hpp"

namespace perf {

struct Options;

struct GrowthRow {
  uint32_t nranks = 0;
  bool threads = false;
  std::vector<GrowthCost> rounds;
  GrowthCost median;
};

// Of each value the median.
GrowthCost median_of(const std::vector<GrowthCost>& rounds);

class GrowthReport {
 public:
  explicit GrowthReport(const Options& options);
  // The rows of one way to start ranks, up to end().
  void begin(bool threads);
  void add(const GrowthRow& row);
  void leave_out(bool threads, uint32_t nranks, const std::string& reason);
  void end(const std::vector<GrowthRow>& rows);
  // Writes the JSON. False: it could not be written, or a size was left out.
  bool finish();

 private:
  struct LeftOut {
    bool threads;
    uint32_t nranks;
    std::string reason;
  };
  std::string json() const;
  const Options& options_;
  std::vector<GrowthRow> rows_;
  std::vector<LeftOut> left_out_;
};

}  // namespace perf
