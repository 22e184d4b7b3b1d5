// SPDX-License-Identifier: Apache-2.0
//
// The brief form of a plan of a few small steps, each of one message or none: addresses are offsets, sizes are bytes,
// and nothing is left to look up. It is made once the plan's links are connected, and cached with the plan.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace tutti::core {

struct BoundStep;
struct Link;
struct Plan;

struct BriefPlace {
  uint32_t buffer = 0;  // TUTTI_BUFFER_*
  uint64_t offset = 0;  // in bytes
};

struct BriefStep {
  enum Kind : uint8_t { nothing, send, receive, receive_reduce, reduce };
  Kind kind = nothing;
  bool incoming_left = false;
  uint32_t after_lane = 0;  // a dependency: the step of number `after` of that lane is done
  uint32_t after = 0;       // counted from 1; 0: none
  // It may be carried out before an earlier step of its lane, but not before the first `behind` ones of the lane, nor
  // before the one of number `behind_message`, whose message goes the same way.
  uint32_t behind = 0;
  uint32_t behind_message = 0;  // counted from 1; 0: none
  uint64_t bytes = 0;
  uint64_t elements = 0;
  uint64_t divisor = 0;
  Link* link = nullptr;
  BriefPlace dst, src;
  uint32_t first_source = 0, sources = 0;  // of reduce, in BriefPlan::sources
  const BoundStep* bound = nullptr;        // for messages
};

struct BriefPlan {
  static constexpr uint64_t most_bytes = 8192;  // of the call
  static constexpr size_t most_lanes = 4, most_steps = 32;
  std::vector<BriefStep> steps;  // lane by lane
  std::vector<uint32_t> ends;    // of each lane in `steps`
  std::vector<BriefPlace> sources;
};

// The brief form of a plan whose links are connected; nullptr: it has none. It refers to the plan's steps.
std::shared_ptr<const BriefPlan> make_brief(const Plan& plan);

}  // namespace tutti::core
