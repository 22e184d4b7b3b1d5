// SPDX-License-Identifier: Apache-2.0
//
// The candidates that the ranks of a communicator have judged. All ranks judge alike, so of those in one process the
// first that needs a list makes it for the others.
#pragma once

#include <tutti/plugin/algorithm.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "engine/choose/native.hpp"
#include "engine/choose/shape.hpp"

namespace tutti::core {

struct Candidate {
  const tutti_algorithm* algorithm = nullptr;
  const NativeGroup* native = nullptr;  // instead of an algorithm
  uint64_t slices = 1;
  bool cut = false;                // into slices, where the schedule can be: that is faster
  double seconds = 0;              // predicted
  std::optional<double> measured;  // seconds, by the tuning file
  size_t lanes = 1;                // that its schedules use
  uint64_t steps = 0;              // of its schedules in all slices: of all ranks, or of one where there are many
  std::string reason;              // why it is no candidate
  const char* name() const { return native ? native->name() : algorithm->name; }
};

// Any thread may call all functions.
class Judgements {
 public:
  // The collective, root, smallest count of a power-of-two size class and size of an element; host or device; the
  // shape's order; flat or not; in rank order or not; algorithms of the call.
  using Key = std::tuple<uint32_t, uint32_t, uint64_t, uint32_t, bool, Order, bool, bool, uint64_t>;

  // Those of a communicator, by its number, as long as one of its ranks has them; 0: new ones.
  static std::shared_ptr<Judgements> of(uint64_t communicator);
  // The algorithms for a call, best first. The first that asks makes them, and others wait for it. If make() throws,
  // this throws the same, and the next that asks makes them.
  const std::vector<Candidate>& find(const Key& key, const std::function<std::vector<Candidate>()>& make);

 private:
  struct Entry {
    std::mutex mutex;  // held while they are made
    std::optional<std::vector<Candidate>> algorithms;
  };
  std::mutex mutex_;              // of the table
  std::map<Key, Entry> entries_;  // none is removed
};

}  // namespace tutti::core
