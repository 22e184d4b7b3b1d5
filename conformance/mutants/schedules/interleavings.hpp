// SPDX-License-Identifier: Apache-2.0
//
// Exhaustive search: does a set of schedules give the right result whatever the order in which its steps happen? It
// shares nothing with the verifier.
//
// The rules are those of tutti/plugin/algorithm.h at their loosest: a step happens at any time after its dependency,
// after the earlier steps of its lane that touch a chunk that it touches (one of them writing), and, when it receives,
// after the step that sends; messages are buffered without limit, those of no bytes do not exist. Two steps that touch
// no common chunk may change places without any difference, so two orders of all steps differ only by how they order
// conflicting steps. Therefore it is enough to take every pair of conflicting steps that nothing orders, both ways
// round, and to run one order of each combination: that covers all interleavings. Besides, the strictest executor
// (nothing buffered, two steps of a lane in flight) is run once: whether it comes to an end does not depend on chance.
#pragma once

#include <cstdint>
#include <string>

#include "mutants/schedules/mutation.hpp"

namespace tutti::conformance {

// Sizes to try a set with: elements of a block, and slices.
struct Sizes {
  uint64_t length = 0;
  uint32_t slices = 1;
};

struct SearchResult {
  std::string wrong;     // what is wrong in one of the orders; "": all are right
  uint64_t orders = 0;   // orders run, up to changes that make no difference
  bool complete = true;  // false: there were more than `most_orders`
};

constexpr uint64_t most_orders = 4096;

// The set must have passed verify(), so that its messages match and its spans lie within their buffers.
SearchResult search_interleavings(const ScheduleSet& set, Sizes sizes);

// The same for all sizes that matter: every chunk with elements in each slice, and blocks so short that some chunks or
// slices are empty. Two slices, and as many as make every scratch copy come round again.
SearchResult search_all_sizes(const ScheduleSet& set);

}  // namespace tutti::conformance
