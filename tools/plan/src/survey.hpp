// SPDX-License-Identifier: Apache-2.0
//
// A table of many proofs: what algorithms cost for a range of numbers of ranks.
#pragma once

#include <tutti/schedule.h>

#include <memory>
#include <string>
#include <vector>

namespace tutti::plan {

// What is proved: every algorithm for every collective of the lists, for `first` to `last` ranks, every root up to 17
// ranks and roots 0, 1 and n-1 beyond. With `hosts`, for these ranks only.
struct Survey {
  std::vector<const tutti_algorithm*> algorithms;
  std::vector<uint32_t> collectives;
  std::string parameters;
  uint32_t first = 1, last = 64, lanes = 8;
  std::vector<uint32_t> hosts;
  std::shared_ptr<const tutti_topology> topology;  // of `hosts`; nullptr: not known
};

// The table, and its totals in the last line. The proofs use all processors. `wrong` becomes the first schedule that is
// not correct, and why; it stays empty when there is none.
std::string survey(const Survey& survey, std::string* wrong);

}  // namespace tutti::plan
