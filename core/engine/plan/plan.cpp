// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <unordered_map>

#include "base/failure.hpp"

namespace tutti::core {
namespace {

bool sends(uint32_t kind, uint32_t flags) {
  return kind == TUTTI_STEP_SEND || (kind == TUTTI_STEP_SIGNAL && !(flags & TUTTI_STEP_WAIT));
}
bool receives(uint32_t kind, uint32_t flags) {
  return kind == TUTTI_STEP_RECV || kind == TUTTI_STEP_RECV_REDUCE ||
         (kind == TUTTI_STEP_SIGNAL && (flags & TUTTI_STEP_WAIT));
}

Operand operand_of(const ChunkLayout& layout, const tutti_span& span) {
  if (!span.chunks) return {};
  const uint64_t begin = layout.begin_of(span.buffer, span.first);
  return {span.buffer, span.first, begin, layout.begin_of(span.buffer, span.first + span.chunks) - begin};
}

// A range of locations, for conflicts: in-place aliases are folded onto one buffer.
struct AccessRange {
  uint32_t buffer;
  uint32_t first, end;
  bool written;
  bool conflicts(const AccessRange& other) const {
    return buffer == other.buffer && first < other.end && other.first < end && (written || other.written);
  }
};

// The location of a chunk, given the call's in-place form.
class Aliases {
 public:
  Aliases(const Shape& shape, uint32_t rank, uint32_t pieces)
      : in_place_(shape.runs_in_place()),
        in_offset_(block_in_place(shape.collective, rank, TUTTI_BUFFER_IN) * pieces),
        out_offset_(block_in_place(shape.collective, rank, TUTTI_BUFFER_OUT) * pieces) {}
  AccessRange range(const tutti_span& span, bool written) const {
    AccessRange r{span.buffer, span.first, span.first + span.chunks, written};
    if (!in_place_ || span.buffer == TUTTI_BUFFER_SCRATCH) return r;
    const uint32_t shift = span.buffer == TUTTI_BUFFER_IN ? in_offset_ : out_offset_;
    return {TUTTI_BUFFER_OUT, r.first + shift, r.end + shift, written};
  }

 private:
  const bool in_place_;
  const uint32_t in_offset_, out_offset_;
};

std::vector<AccessRange> ranges_of(const Step& step, const Aliases& aliases) {
  std::vector<AccessRange> ranges;
  if (step.op.src.chunks) ranges.push_back(aliases.range(step.op.src, false));
  for (const tutti_span& source : step.sources) ranges.push_back(aliases.range(source, false));
  if (step.op.dst.chunks) ranges.push_back(aliases.range(step.op.dst, true));
  return ranges;
}

// The last steps of a lane that touched each location.
class Touches {
 public:
  static constexpr uint32_t never = UINT32_MAX;

  // The last step before `limit` that conflicts with one range; never: there is none. At most the two newest are known.
  uint32_t last_conflict(const AccessRange& range, uint32_t limit) const {
    uint32_t last = never;
    const auto& chunks = chunks_[range.buffer];
    for (size_t chunk = range.first; chunk < std::min<size_t>(range.end, chunks.size()); ++chunk) {
      const Chunk& touched = chunks[chunk];
      last = later(last, before(touched.written, limit));
      if (range.written) last = later(last, before(touched.read, limit));
    }
    return last;
  }
  void note(const AccessRange& range, uint32_t step) {
    auto& chunks = chunks_[range.buffer];
    if (chunks.size() < range.end) chunks.resize(range.end);
    for (uint32_t chunk = range.first; chunk < range.end; ++chunk) {
      auto& steps = range.written ? chunks[chunk].written : chunks[chunk].read;
      if (steps[0] != step) steps = {step, steps[0]};
    }
  }

 private:
  using Steps = std::array<uint32_t, 2>;  // newest first
  struct Chunk {
    Steps written{never, never}, read{never, never};
  };
  static uint32_t before(const Steps& steps, uint32_t limit) {
    return steps[0] != never && steps[0] >= limit ? steps[1] : steps[0];
  }
  static uint32_t later(uint32_t a, uint32_t b) { return a == never || (b != never && b > a) ? b : a; }

  std::array<std::vector<Chunk>, TUTTI_BUFFER_SCRATCH + 1> chunks_;
};

// Fills the distances of one lane. Slices of a chunk do not conflict with one another, except in scratch whose copies
// are reused.
void find_distances(const std::vector<Step>& steps, const std::vector<std::vector<AccessRange>>& ranges,
                    uint32_t copies, uint64_t slices, std::vector<BoundStep>& bound) {
  const auto n = static_cast<uint32_t>(steps.size());
  const uint32_t slices_back = copies && slices > copies ? copies : 0;
  Touches touches;
  const auto last_conflict = [&](uint32_t step, uint32_t limit, bool scratch_only) {
    uint32_t nearest = Touches::never;
    for (const AccessRange& range : ranges[step])
      if (!scratch_only || range.buffer == TUTTI_BUFFER_SCRATCH)
        if (const uint32_t last = touches.last_conflict(range, limit);
            nearest == Touches::never || (last != Touches::never && last > nearest))
          nearest = last;
    return nearest;
  };
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t limit = bound[i].forwarded ? i - 1 : i;  // what is forwarded follows its receive by bytes
    if (const uint32_t last = last_conflict(i, limit, false); last != Touches::never)
      bound[i].after_conflict = i - last;
    for (const AccessRange& range : ranges[i]) touches.note(range, i);
  }
  for (uint32_t i = 0; slices_back && i < n; ++i)
    if (const uint32_t last = bound[i].after_conflict ? Touches::never : last_conflict(i, n, true);
        last != Touches::never)
      bound[i].after_conflict = slices_back * n + i - last;
  // Messages keep their order over slices: the second lap finds what the end of the slice before sent or received last.
  std::unordered_map<const Link*, uint32_t> last_out, last_in;
  for (uint32_t lap = 0; lap < 2 * n; ++lap) {
    BoundStep& step = bound[lap % n];
    const auto note = [lap, n](auto& last, const Link* link, uint32_t& distance) {
      if (!link) return;
      const auto [entry, fresh] = last.try_emplace(link, lap);
      if (!fresh && lap >= n) distance = lap - entry->second;
      entry->second = lap;
    };
    note(last_out, step.out, step.after_out);
    note(last_in, step.in, step.after_in);
  }
}

}  // namespace

bool sends_by_reference(const Plan& plan) {
  return std::ranges::any_of(plan.links, [](const Link* link) { return link->port->all_memory != nullptr; });
}

bool only_sends(const Plan& plan) {
  return !plan.links.empty() && std::ranges::all_of(plan.lanes, [](const std::vector<BoundStep>& lane) {
    return std::ranges::all_of(lane, [](const BoundStep& step) { return step.in == nullptr; });
  });
}

void place_codes(Plan& plan, uint64_t in_units, uint64_t out_units) {
  constexpr uint64_t alignment = 64;
  uint64_t end = plan.scratch.bytes;
  const auto place = [&end](uint64_t bytes) {
    const uint64_t begin = (end + alignment - 1) / alignment * alignment;
    end = begin + bytes;
    return begin;
  };
  plan.codes.in_bytes = in_units * plan.element_bytes;
  plan.codes.out_bytes = out_units * plan.element_bytes;
  plan.codes.in = place(plan.codes.in_bytes);
  plan.codes.out = place(plan.codes.out_bytes);
  plan.scratch.bytes = end;
}

std::string transports_of(const Plan& plan) {
  std::set<std::string> names;
  for (const Link* link : plan.links) names.insert(link->port->api->name);
  return fmt::format("{}", fmt::join(names, "+"));
}

Plan native_plan(const NativeGroup& group, const Shape& shape, uint32_t nranks, uint32_t rank) {
  Plan plan;
  plan.shape = shape;
  plan.count = shape.count;
  plan.native = &group;
  plan.algorithm = group.name();
  plan.transports = "native";
  plan.element_bytes = shape.element_bytes();
  const uint64_t block = shape.count * plan.element_bytes;
  plan.in_bytes = block * block_count(shape.collective, nranks, shape.root, rank, TUTTI_BUFFER_IN);
  plan.out_bytes = block * block_count(shape.collective, nranks, shape.root, rank, TUTTI_BUFFER_OUT);
  plan.call_bytes = std::max(plan.in_bytes, plan.out_bytes);
  return plan;
}

Plan bind_plan(const Schedule& schedule, const Shape& shape, uint64_t slices, uint32_t nranks, uint32_t rank,
               std::vector<Link>& links, const UserOperator* user) {
  Plan plan;
  plan.shape = shape;
  plan.count = shape.count;
  plan.slices = slices;
  plan.element_bytes = shape.element_bytes();
  plan.user = user;
  if (is_reducing(shape.collective))
    plan.reduce = user                          ? reduce_by_user
                  : shape.wire                  ? find_code_reduction(shape.wire, shape.op)
                  : shape.order == Order::exact ? find_exact_sum(shape.dtype)
                                                : find_reduction(shape.dtype, shape.op);
  const bool unequal = has_unequal_blocks(shape.collective);
  const uint64_t count = unequal ? 0 : shape.count;
  const uint64_t block = count * shape.number_bytes();
  const uint64_t in_blocks = block_count(shape.collective, nranks, shape.root, rank, TUTTI_BUFFER_IN);
  const uint64_t out_blocks = block_count(shape.collective, nranks, shape.root, rank, TUTTI_BUFFER_OUT);
  plan.in_bytes = block * in_blocks;
  plan.out_bytes = block * out_blocks;
  plan.call_bytes = std::max(plan.in_bytes, plan.out_bytes);
  if (unequal) {
    plan.unequal.cuts = schedule.cuts;
    plan.unequal.scratch = schedule.scratch;
  }

  const uint64_t units = unequal ? 0 : shape.units();
  const ChunkLayout layout(schedule, units);
  const Aliases aliases(shape, rank, schedule.pieces());
  const uint32_t divisor = contributors(shape.collective, nranks, rank);  // of avg
  const auto fusions = find_fusions(schedule);
  const auto operand = [&](const tutti_span& span) {
    Operand made = operand_of(layout, span);
    if ((slices == 1 && !unequal) || span.chunks < 2) return made;
    made.parts = span.chunks;
    made.first_part = static_cast<uint32_t>(plan.parts.size());
    for (uint32_t i = 0; i < span.chunks; ++i)
      plan.parts.push_back(operand_of(layout, {span.buffer, span.first + i, 1, 0}));
    plan.most_parts = std::max(plan.most_parts, made.parts);
    return made;
  };
  std::set<Link*> used;
  for (size_t lane = 0; lane < schedule.lanes.size(); ++lane) {
    const std::vector<Step>& steps = schedule.lanes[lane];
    std::vector<BoundStep> bound(steps.size());
    std::vector<std::vector<AccessRange>> ranges(steps.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      const tutti_step& op = steps[i].op;
      BoundStep& b = bound[i];
      b.kind = op.kind;
      b.incoming_left = (op.flags & TUTTI_STEP_INCOMING_LEFT) != 0;
      b.divisor = shape.op == TUTTI_AVG && (op.flags & TUTTI_STEP_FINAL) ? divisor : 0;
      b.dependency_lane = op.dependency_lane;
      b.dependency_step = op.dependency_step;
      b.dst = operand(op.dst);
      b.src = operand(op.src);
      b.first_source = static_cast<uint32_t>(plan.sources.size());
      b.sources = static_cast<uint32_t>(steps[i].sources.size());
      for (const tutti_span& source : steps[i].sources) plan.sources.push_back(operand(source));
      plan.most_sources = std::max(plan.most_sources, b.sources);
      if (sends(op.kind, op.flags)) b.out = &links[op.peer];
      if (receives(op.kind, op.flags)) b.in = &links[op.peer];
      ranges[i] = ranges_of(steps[i], aliases);
      // Empty messages are dropped at both ends. Calls that move nothing have links, by which others learn of them.
      const bool moves = units == 0 || op.kind == TUTTI_STEP_SIGNAL || (b.dst.buffer ? b.dst : b.src).length > 0;
      if (b.out && moves) used.insert(b.out);
      if (b.in && moves) used.insert(b.in);
    }
    for (size_t i = 0; i + 1 < steps.size(); ++i)
      if (fusions[lane][i]) bound[i].forwards = bound[i + 1].forwarded = true;
    find_distances(steps, ranges, schedule.scratch_copies, slices, bound);
    plan.lanes.push_back(std::move(bound));
  }
  plan.scratch = lay_out_scratch(schedule, layout, slices, plan.element_bytes);
  if (shape.wire) place_codes(plan, units * in_blocks, units * out_blocks);
  plan.links.assign(used.begin(), used.end());
  plan.transports = transports_of(plan);
  return plan;
}

}  // namespace tutti::core
