// SPDX-License-Identifier: Apache-2.0
//
// Schedules made compact: sixteen bytes a step, with sizes in bytes and the distances within a lane that the executor
// goes by. An executor has `lookahead` steps of a lane in flight, so what is farther away needs no distance.
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "simulation/simulation.hpp"
#include "steps.hpp"

namespace tutti::simulation {
namespace {

constexpr uint64_t most_instances = UINT32_MAX;

// A range of memory, for conflicts: in place, IN and OUT are one buffer.
struct Range {
  uint32_t buffer = 0, first = 0, end = 0;
  bool written = false;
  bool conflicts(const Range& other) const {
    return buffer == other.buffer && first < other.end && other.first < end && (written || other.written);
  }
};

struct Ranges {
  Range src, dst;
  const std::vector<tutti_span>* sources = nullptr;
};

}  // namespace

// Compiles one rank's schedule.
class Schedules::Compiler {
 public:
  Compiler(Schedules& all, const Schedule& schedule, uint32_t rank) : all_(all), schedule_(schedule), rank_(rank) {
    const Problem& problem = all.problem_;
    in_place_ = !problem.in_place.empty() && problem.in_place[rank];
    const auto pieces = uint32_t(all.bounds_.size() - 1);
    in_offset_ = block_in_place(problem.collective, rank, TUTTI_BUFFER_IN) * pieces;
    out_offset_ = block_in_place(problem.collective, rank, TUTTI_BUFFER_OUT) * pieces;
    scratch_bounds_.reserve(schedule.scratch.size() + 1);
    scratch_bounds_.push_back(0);
    for (const tutti_extent& extent : schedule.scratch)
      scratch_bounds_.push_back(scratch_bounds_.back() + all.bounds_[extent.piece + 1] - all.bounds_[extent.piece]);
  }

  void lane(size_t number) {
    const std::vector<Step>& lane = schedule_.lanes[number];
    const auto n = uint32_t(lane.size());
    all_.lanes_.push_back({all_.steps_.size(), n, rank_});
    const size_t base = all_.steps_.size();
    for (uint32_t i = 0; i < n; ++i) all_.steps_.push_back(compact(lane[i]));
    CompactStep* steps = all_.steps_.data() + base;
    mark_fusions(fusions_[number], steps);
    std::array<Ranges, lookahead> recent;
    for (uint32_t i = 0; i < n; ++i) {
      Ranges& own = recent[i % lookahead] = ranges_of(lane[i]);
      for (uint32_t distance = steps[i].flags & is_forwarded ? 2 : 1; distance < lookahead && distance <= i; ++distance)
        if (conflict(own, recent[(i - distance) % lookahead], false)) {
          steps[i].conflict = uint8_t(distance);
          break;
        }
    }
    if (all_.slices_ > 1) find_reuse(lane, steps);
    find_ways(steps, n);
  }

 private:
  CompactStep compact(const Step& step) {
    const tutti_step& op = step.op;
    CompactStep made;
    made.kind = uint8_t(op.kind);
    made.peer = op.kind == TUTTI_STEP_REDUCE ? op.sources - 1 : op.peer;
    if (op.dependency_lane != TUTTI_NO_DEPENDENCY) {
      made.dependency = 1 + (op.dependency_lane << dependency_step_bits | op.dependency_step);
      all_.has_dependencies_[rank_] = true;
    }
    const bool waits = (op.flags & TUTTI_STEP_WAIT) != 0;
    if (op.kind == TUTTI_STEP_SEND || (op.kind == TUTTI_STEP_SIGNAL && !waits)) made.flags |= does_send;
    if (op.kind == TUTTI_STEP_RECV || op.kind == TUTTI_STEP_RECV_REDUCE || (op.kind == TUTTI_STEP_SIGNAL && waits))
      made.flags |= does_receive;
    const uint64_t bytes = bytes_of(op.kind == TUTTI_STEP_SEND ? op.src : op.dst);
    made.size = all_.size_number(bytes);
    if (op.kind == TUTTI_STEP_NOP || (op.kind != TUTTI_STEP_SIGNAL && bytes == 0)) made.flags = is_empty;
    return made;
  }

  uint64_t bytes_of(const tutti_span& span) const {
    if (span.chunks == 0) return 0;
    if (span.buffer == TUTTI_BUFFER_SCRATCH)
      return scratch_bounds_[span.first + span.chunks] - scratch_bounds_[span.first];
    return bytes_before(uint64_t{span.first} + span.chunks) - bytes_before(span.first);
  }
  uint64_t bytes_before(uint64_t chunk) const {
    const uint64_t pieces = all_.bounds_.size() - 1;
    return chunk / pieces * all_.bounds_.back() + all_.bounds_[chunk % pieces];
  }

  Range range(const tutti_span& span, bool written) const {
    if (span.chunks == 0) return {};
    Range made{span.buffer, span.first, span.first + span.chunks, written};
    if (!in_place_ || span.buffer == TUTTI_BUFFER_SCRATCH) return made;
    const uint32_t shift = span.buffer == TUTTI_BUFFER_IN ? in_offset_ : out_offset_;
    return {TUTTI_BUFFER_OUT, made.first + shift, made.end + shift, written};
  }
  Ranges ranges_of(const Step& step) const {
    return {range(step.op.src, false), range(step.op.dst, true), step.sources.empty() ? nullptr : &step.sources};
  }
  bool conflict(const Ranges& a, const Ranges& b, bool scratch_only) const {
    const auto meet = [&](const Range& x, const Range& y) {
      return x.conflicts(y) && (!scratch_only || x.buffer == TUTTI_BUFFER_SCRATCH);
    };
    if (meet(a.src, b.dst) || meet(a.dst, b.src) || meet(a.dst, b.dst)) return true;
    const auto any = [&](const std::vector<tutti_span>* sources, const Range& written) {
      return sources &&
             std::ranges::any_of(*sources, [&](const tutti_span& s) { return meet(range(s, false), written); });
    };
    return any(a.sources, b.dst) || any(b.sources, a.dst);
  }

  static void mark_fusions(const std::vector<bool>& fused, CompactStep* steps) {
    for (size_t i = 0; i + 1 < fused.size(); ++i) {
      if (!fused[i] || ((steps[i].flags | steps[i + 1].flags) & is_empty)) continue;
      steps[i].flags |= does_forward;
      steps[i + 1].flags |= is_forwarded;
    }
  }

  // Scratch of which there are fewer copies than slices is used again by a later slice.
  void find_reuse(const std::vector<Step>& lane, CompactStep* steps) const {
    const uint64_t copies = schedule_.scratch_copies, n = lane.size();
    if (!copies || copies >= all_.slices_) return;
    for (uint64_t i = 0; i < n; ++i)
      for (uint64_t distance = 1; distance < lookahead && !steps[i].conflict; ++distance) {
        const uint64_t earlier = copies * n + i - distance;  // counted from `copies` slices back
        if (distance > copies * n + i || earlier >= n) continue;
        if (conflict(ranges_of(lane[i]), ranges_of(lane[earlier]), true)) steps[i].conflict = uint8_t(distance);
      }
  }

  // Messages of one way keep their order, over slices too.
  void find_ways(CompactStep* steps, uint32_t n) const {
    constexpr uint8_t message = does_send | does_receive;
    for (uint32_t i = 0; i < n; ++i) {
      CompactStep& step = steps[i];
      for (uint32_t distance = 1; (step.flags & message) && distance < lookahead; ++distance) {
        if (distance > i && all_.slices_ == 1) break;
        const CompactStep& earlier = steps[(i + uint64_t{lookahead} * n - distance) % n];
        if ((earlier.flags & message) != (step.flags & message) || earlier.peer != step.peer) continue;
        step.way = uint8_t(distance);
        break;
      }
    }
  }

  Schedules& all_;
  const Schedule& schedule_;
  uint32_t rank_;
  bool in_place_ = false;
  uint32_t in_offset_ = 0, out_offset_ = 0;
  std::vector<std::vector<bool>> fusions_ = find_fusions(schedule_);
  std::vector<uint64_t> scratch_bounds_;
};

Schedules::Schedules(const Problem& problem, const Shape& shape)
    : problem_(problem), shape_(shape), has_dependencies_(problem.nranks, false) {
  first_lane_.reserve(problem.nranks + size_t{1});
}

void Schedules::accept_shape(const Schedule& schedule) {
  if (first_lane_.size() > 1) {
    const auto same = [](const tutti_cut& a, const tutti_cut& b) { return a.p == b.p && a.q == b.q; };
    if (std::ranges::equal(schedule.cuts, cuts_, same) && schedule.sliced() == sliced_) return;
    throw std::runtime_error(
        fmt::format("rank {} cuts its blocks otherwise than rank 0: the ranks' schedules do not belong together",
                    first_lane_.size() - 1));
  }
  cuts_ = schedule.cuts;
  sliced_ = schedule.sliced();
  slices_ = sliced_ ? std::max<uint64_t>(shape_.slices, 1) : 1;
  const uint32_t element = std::max(shape_.element_bytes, 1u);
  for (const uint64_t bound : piece_bounds(schedule, shape_.block_bytes / element)) bounds_.push_back(bound * element);
}

void Schedules::add(const Schedule& schedule) {
  const auto rank = uint32_t(first_lane_.size() - 1);
  if (rank >= problem_.nranks)
    throw std::runtime_error(fmt::format("a schedule for rank {}, but there are {} ranks", rank, problem_.nranks));
  accept_shape(schedule);
  Compiler compiler(*this, schedule, rank);
  for (size_t lane = 0; lane < schedule.lanes.size(); ++lane) compiler.lane(lane);
  first_lane_.push_back(uint32_t(lanes_.size()));
  // The first ranks tell whether the rest can fit.
  const uint64_t whole = bytes() / first_lane_.size() * problem_.nranks;
  if (rank % 64 == 0 && (bytes() > shape_.memory || (rank >= 64 && whole > 2 * shape_.memory)))
    throw std::runtime_error(fmt::format(
        "{} ranks need about {:.0f} GB of memory and may take {:.0f}: simulate fewer ranks or slices, or allow more",
        problem_.nranks, double(whole) * 1e-9, double(shape_.memory) * 1e-9));
  if (steps_.size() * slices_ > most_instances)
    throw std::runtime_error(
        fmt::format("more than {} steps in all slices: simulate fewer ranks or slices", most_instances));
}

uint32_t Schedules::size_number(uint64_t bytes) {
  if (!sizes_.empty() && sizes_.back() == bytes) return uint32_t(sizes_.size() - 1);
  const auto [entry, fresh] = size_numbers_.try_emplace(bytes, uint32_t(sizes_.size()));
  if (fresh) sizes_.push_back(bytes);
  return entry->second;
}

uint64_t Schedules::bytes() const {
  return steps_.size() * (sizeof(CompactStep) + slices_ * (sizeof(double) + sizeof(uint32_t) + 1)) +
         lanes_.size() * (sizeof(LaneOfRank) + bytes_of_a_lane);
}

}  // namespace tutti::simulation
