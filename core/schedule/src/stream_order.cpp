// SPDX-License-Identifier: Apache-2.0
#include "schedule/stream_order.hpp"

#include <algorithm>
#include <map>

#include "form.hpp"

namespace tutti {
namespace {

// The order's key in one number: levels, fragments of a level, putting before fetching.
constexpr unsigned fragment_bits = 31;
constexpr uint64_t most_levels = uint64_t{1} << 32, most_fragments = uint64_t{1} << fragment_bits;

class Sequence {
 public:
  Sequence(const Schedule& schedule, const StreamShape& shape)
      : schedule_(schedule), shape_(shape), bounds_(piece_bounds(schedule, shape.count)) {}

  std::string run(std::vector<StreamStep>* order) {
    for (uint64_t slice = 0; slice < shape_.slices; ++slice)
      for (uint32_t lane = 0; lane < schedule_.lanes.size(); ++lane)
        for (uint32_t step = 0; step < schedule_.lanes[lane].size(); ++step) {
          const tutti_step& op = schedule_.lanes[lane][step].op;
          if (op.kind == TUTTI_STEP_NOP) continue;
          StreamStep made;
          made.level = op.level + slice * schedule_.slice_levels();
          made.lane = lane;
          made.step = step;
          made.slice = static_cast<uint32_t>(slice);
          if (made.level >= most_levels) return "a schedule in so many slices has too many levels for a stream";
          sends(op) || receives(op) ? add_message(op, made) : add_parts(op, made);
        }
    if (too_long_) return "a message of so many fragments is too long for a stream";
    std::stable_sort(steps_.begin(), steps_.end(),
                     [](const StreamStep& a, const StreamStep& b) { return a.level < b.level; });
    *order = std::move(steps_);
    return {};
  }

 private:
  struct Progress {
    uint64_t number = 0;  // of the next fragment
    uint64_t level = 0;   // of the newest one, and which of this level it is
    uint64_t fragment = 0;
  };

  uint64_t length_of(uint32_t buffer, uint32_t chunk) const {
    if (shape_.length) return shape_.length(buffer, chunk);
    const uint32_t piece = buffer == TUTTI_BUFFER_SCRATCH ? schedule_.scratch[chunk].piece : chunk % schedule_.pieces();
    return bounds_[piece + 1] - bounds_[piece];
  }

  // Calls visit(part, bytes) for each part of memory that a step's span is and that is not empty: the run is one,
  // except in slices, where each chunk's slice is one, and where blocks are unequal.
  template <typename Visit>
  void for_each_part(const tutti_span& span, uint64_t slice, Visit&& visit) const {
    const bool apart = shape_.slices > 1 || shape_.length;
    uint64_t whole = 0;
    for (uint32_t i = 0; i < span.chunks; ++i) {
      const uint64_t length = length_of(span.buffer, span.first + i);
      whole += length;
      if (!apart) continue;
      const uint64_t elements =
          slice_begin(length, slice + 1, shape_.slices) - slice_begin(length, slice, shape_.slices);
      if (elements) visit(i, elements * shape_.element_bytes);
    }
    if (!apart && whole) visit(0u, whole * shape_.element_bytes);
  }

  void add_parts(const tutti_step& op, StreamStep made) {
    made.level <<= fragment_bits + 1;
    for_each_part(op.dst, made.slice, [&](uint32_t part, uint64_t) {
      made.part = part;
      steps_.push_back(made);
    });
  }

  void add_message(const tutti_step& op, StreamStep made) {
    const bool outgoing = sends(op);
    Progress& way = ways_[{op.peer, made.lane, outgoing}];
    if (way.level != made.level) way.level = made.level, way.fragment = 0;
    const auto add = [&](uint32_t part, uint64_t offset, uint64_t bytes) {
      too_long_ |= way.fragment >= most_fragments;
      StreamStep& step = steps_.emplace_back(made);
      step.level = (made.level << fragment_bits | way.fragment++) << 1 | uint64_t{!outgoing};
      step.part = part;
      step.offset = offset;
      step.bytes = bytes;
      step.number = way.number++;
    };
    if (op.kind == TUTTI_STEP_SIGNAL) return add(0, 0, 0);
    const uint64_t fragment = shape_.way(op.peer, outgoing).fragment;
    for_each_part(outgoing ? op.src : op.dst, made.slice, [&](uint32_t part, uint64_t bytes) {
      for (uint64_t offset = 0; offset < bytes;) {
        const uint64_t size = std::min(fragment, bytes - offset);
        add(part, offset, size);
        offset += size;
      }
    });
  }

  const Schedule& schedule_;
  const StreamShape& shape_;
  std::vector<uint64_t> bounds_;
  std::map<StreamWayKey, Progress> ways_;
  std::vector<StreamStep> steps_;
  bool too_long_ = false;
};

}  // namespace

std::string order_for_stream(const Schedule& schedule, const StreamShape& shape, std::vector<StreamStep>* order) {
  return Sequence(schedule, shape).run(order);
}

}  // namespace tutti
