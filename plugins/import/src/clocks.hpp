// SPDX-License-Identifier: Apache-2.0
//
// Vector clocks of thread blocks: which operation comes before which one whatever the order in which thread blocks run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace tutti::plans {

class Clocks {
 public:
  using Snapshot = std::shared_ptr<const std::vector<uint32_t>>;

  explicit Clocks(size_t threads) : clocks_(threads, std::vector<uint32_t>(threads, 0)) {}

  // An operation of `thread` begins.
  void tick(uint32_t thread) { ++clocks_[thread][thread]; }
  // All that `thread` has done and knows of, for another that learns of it.
  Snapshot take(uint32_t thread) const { return std::make_shared<const std::vector<uint32_t>>(clocks_[thread]); }
  void join(uint32_t thread, const Snapshot& other) {
    std::vector<uint32_t>& mine = clocks_[thread];
    for (size_t i = 0; i < mine.size(); ++i) mine[i] = std::max(mine[i], (*other)[i]);
  }
  uint32_t now(uint32_t thread) const { return clocks_[thread][thread]; }
  // Is what `other` did at its time `when` before what `thread` does now?
  bool before(uint32_t other, uint32_t when, uint32_t thread) const { return clocks_[thread][other] >= when; }

 private:
  std::vector<std::vector<uint32_t>> clocks_;
};

}  // namespace tutti::plans
