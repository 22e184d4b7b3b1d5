// SPDX-License-Identifier: Apache-2.0
//
// The table and the JSON of `tutti-perf buckets`, of rank 0.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "buckets/replay.hpp"
#include "options.hpp"
#include "result.hpp"

namespace perf {

class ReplayReport {
 public:
  // Prints what is known before the first row. `speaks`: this is rank 0; on others nothing is printed or written.
  ReplayReport(const Options& options, const Setting& setting, bool speaks);
  void add(const ReplayRow& row);
  // Ends the table and writes the file; `error`: why the run ended early. False: the file cannot be written.
  bool end(const std::string& error);
  uint64_t wrong() const { return wrong_; }

 private:
  std::string json(const std::string& error) const;

  const Options& options_;
  const Setting& setting_;
  bool speaks_;
  std::vector<ReplayRow> rows_;
  uint64_t wrong_ = 0;
};

}  // namespace perf
