// SPDX-License-Identifier: Apache-2.0
#include "form.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "rank_layout.hpp"

namespace tutti {
namespace {

// The fields that each kind may use. Fields that a kind does not use are zero.
struct KindRule {
  uint32_t flags;
  bool peer, dst, src, sources;
};

constexpr KindRule kind_rules[] = {
    {0, false, false, false, false},                                                           // no kind has number 0
    {TUTTI_STEP_LOAD, true, false, true, false},                                               // SEND
    {0, true, true, false, false},                                                             // RECV
    {TUTTI_STEP_LOAD | TUTTI_STEP_FINAL | TUTTI_STEP_INCOMING_LEFT, true, true, true, false},  // RECV_REDUCE
    {TUTTI_STEP_LOAD | TUTTI_STEP_FINAL, false, true, true, false},                            // COPY
    {TUTTI_STEP_LOAD | TUTTI_STEP_FINAL, false, true, false, true},                            // REDUCE
    {TUTTI_STEP_WAIT, true, false, false, false},                                              // SIGNAL
    {0, false, false, false, false},                                                           // NOP
};
static_assert(std::size(kind_rules) == TUTTI_STEP_NOP + 1);

bool is_zero(const tutti_span& span) { return !span.buffer && !span.first && !span.chunks && !span.reserved; }

const char* buffer_name(uint32_t buffer) {
  return buffer == TUTTI_BUFFER_IN ? "IN" : buffer == TUTTI_BUFFER_OUT ? "OUT" : "SCRATCH";
}

// Checks one rank's schedule; each check returns an empty text or what is wrong.
class FormCheck {
 public:
  FormCheck(const Problem& problem, uint32_t rank, const Schedule& schedule)
      : problem_(problem),
        rank_(rank),
        schedule_(schedule),
        layout_(problem, schedule, rank, 1),
        has_levels_(schedule.has_levels()) {}

  Finding run() {
    if (std::string text = check_header(); !text.empty()) return {Fault::form, fmt::format("rank {}: {}", rank_, text)};
    for (uint32_t lane = 0; lane < schedule_.lanes.size(); ++lane) {
      const auto& steps = schedule_.lanes[lane];
      for (size_t i = 0; i < steps.size(); ++i) {
        fault_ = Fault::form;
        if (std::string text = check_step(lane, steps[i]); !text.empty())
          return {fault_, where(rank_, lane, i, steps[i]) + ": " + text};
      }
    }
    return check_cycle();
  }

 private:
  std::string check_header() {
    const auto too_many = [](const char* what, uint64_t has, uint64_t limit) {
      return fmt::format("has {} {}, more than the limit of {}", has, what, limit);
    };
    if (schedule_.cuts.size() > ScheduleLimits::cuts)
      return too_many("cut points", schedule_.cuts.size(), ScheduleLimits::cuts);
    if (schedule_.scratch.size() > ScheduleLimits::scratch_chunks)
      return too_many("scratch chunks", schedule_.scratch.size(), ScheduleLimits::scratch_chunks);
    if (schedule_.scratch_copies > ScheduleLimits::scratch_copies)
      return too_many("scratch copies", schedule_.scratch_copies, ScheduleLimits::scratch_copies);
    if (layout_.locations() > ScheduleLimits::chunks)
      return too_many("chunks", layout_.locations(), ScheduleLimits::chunks);
    if (schedule_.flags & 0xffffffffu & ~(TUTTI_SCHEDULE_SLICED | TUTTI_SCHEDULE_SLICE_LEVELS(0xffffff)))
      return fmt::format("has schedule flags {:#x}, of which only SLICED and its levels are known", schedule_.flags);
    if (schedule_.lanes.size() > problem_.lanes)
      return fmt::format("uses {} lanes, but the query allows {}", schedule_.lanes.size(), problem_.lanes);
    uint64_t steps = 0;
    for (const auto& lane : schedule_.lanes) steps += lane.size();
    if (steps > ScheduleLimits::steps) return too_many("steps", steps, ScheduleLimits::steps);
    const bool apart = schedule_.slice_levels() != 0;
    if (steps && apart != (has_levels_ && schedule_.sliced()))
      return apart ? "says how many levels its slices are apart, but has no slices or no levels"
                   : "its steps have levels, but it does not say how many levels its slices are apart";
    return check_cuts();
  }

  std::string check_cuts() {
    for (size_t i = 0; i < schedule_.cuts.size(); ++i) {
      const tutti_cut& cut = schedule_.cuts[i];
      if (cut.p == 0 || cut.p >= cut.q)
        return fmt::format("cut point {} is {}/{}, which is not strictly between 0 and 1", i, cut.p, cut.q);
      if (i == 0) continue;
      const tutti_cut& before = schedule_.cuts[i - 1];
      if (uint64_t{before.p} * cut.q >= uint64_t{cut.p} * before.q)
        return fmt::format("cut point {} ({}/{}) is not above its predecessor {}/{}", i, cut.p, cut.q, before.p,
                           before.q);
    }
    return check_scratch();
  }

  // A rank knows the sizes of its blocks of IN and OUT. So it knows all that it touches if it knows its scratch.
  std::string check_scratch() {
    const auto& [collective, nranks, root] = std::tie(problem_.collective, problem_.nranks, problem_.root);
    const uint64_t classes = block_classes(collective, nranks);
    for (size_t i = 0; i < schedule_.scratch.size(); ++i) {
      const tutti_extent& extent = schedule_.scratch[i];
      if (extent.block_class >= classes || extent.piece >= schedule_.pieces())
        return fmt::format("scratch chunk {} has extent {{{}, {}}}, but there are {} pieces of {}", i,
                           extent.block_class, extent.piece, schedule_.pieces(),
                           classes == 1 ? "class 0 only" : fmt::format("{} classes", classes));
      if (!knows_block(collective, nranks, root, rank_, extent.block_class))
        return fmt::format("scratch chunk {} has the size of class {}, which this rank does not know in {}", i,
                           extent.block_class, collective_name(collective));
    }
    return {};
  }

  std::string check_step(uint32_t lane, const Step& step) {
    const tutti_step& op = step.op;
    if (op.kind == 0 || op.kind >= std::size(kind_rules)) return fmt::format("has the unknown kind {}", op.kind);
    const KindRule& rule = kind_rules[op.kind];
    if (op.flags & ~rule.flags)
      return fmt::format("has flags {:#x}, but a {} may have {:#x} only", op.flags, step_name(op.kind), rule.flags);
    if ((op.level != 0) != has_levels_)
      return fmt::format("has level {}: either all steps of a schedule have a level or none", op.level);
    if (op.reserved0 || op.reserved1[0] || op.reserved1[1]) return "has a reserved field that is not zero";
    if (rule.peer && op.peer >= problem_.nranks)
      return fmt::format("names peer {}, but there are {} ranks", op.peer, problem_.nranks);
    if (rule.peer && op.peer == rank_) return "names its own rank as peer; use copy";
    if (!rule.peer && op.peer) return fmt::format("names peer {}, but a {} has none", op.peer, step_name(op.kind));
    if (std::string text = check_dependency(lane, op); !text.empty()) return text;
    return check_spans(step, rule);
  }

  std::string check_dependency(uint32_t lane, const tutti_step& op) {
    if (op.dependency_lane == TUTTI_NO_DEPENDENCY) return {};
    if (op.dependency_lane >= schedule_.lanes.size())
      return fmt::format("depends on lane {}, but there are {} lanes", op.dependency_lane, schedule_.lanes.size());
    if (op.dependency_lane == lane) return "depends on its own lane; a dependency names a step of another one";
    const size_t length = schedule_.lanes[op.dependency_lane].size();
    if (op.dependency_step >= length)
      return fmt::format("depends on lane {} step {}, but that lane has {} steps", op.dependency_lane,
                         op.dependency_step, length);
    return {};
  }

  std::string check_spans(const Step& step, const KindRule& rule) {
    const tutti_step& op = step.op;
    if (rule.sources) {
      if (op.sources < 2 || op.sources != step.sources.size())
        return fmt::format("has {} sources and says {}; a reduce has at least 2", step.sources.size(), op.sources);
    } else if (op.sources || !step.sources.empty()) {
      return fmt::format("has {} sources, but a {} has none", step.sources.size(), step_name(op.kind));
    }
    if (!rule.dst && !is_zero(op.dst))
      return fmt::format("has a destination, but a {} writes nothing", step_name(op.kind));
    if (!rule.src && !is_zero(op.src)) return fmt::format("has src set, but a {} does not use it", step_name(op.kind));
    if (rule.dst)
      if (std::string text = check_span("destination", op.dst); !text.empty()) return text;
    if (rule.src)
      if (std::string text = check_span("source", op.src); !text.empty()) return text;
    for (const tutti_span& source : step.sources)
      if (std::string text = check_span("source", source); !text.empty()) return text;
    if (rule.dst && !layout_.writable(op.dst)) {
      fault_ = Fault::overwritten;
      return "writes IN where it is not output; only OUT and SCRATCH may be written here";
    }
    if (rule.dst && rule.src)
      if (std::string text = check_pair(op.dst, op.src); !text.empty()) return text;
    for (const tutti_span& source : step.sources)
      if (std::string text = check_pair(op.dst, source); !text.empty()) return text;
    return {};
  }

  std::string check_span(const char* what, const tutti_span& span) {
    if (span.buffer < TUTTI_BUFFER_IN || span.buffer > TUTTI_BUFFER_SCRATCH)
      return fmt::format("its {} names the unknown buffer {}", what, span.buffer);
    if (span.reserved) return fmt::format("its {} has a reserved field that is not zero", what);
    const uint64_t chunks = layout_.chunks(span.buffer);
    if (chunks == 0)
      return fmt::format("its {} is in {}, which this rank does not have in {}", what, buffer_name(span.buffer),
                         collective_name(problem_.collective));
    if (span.chunks == 0) return fmt::format("its {} has no chunks", what);
    if (uint64_t{span.first} + span.chunks > chunks)
      return fmt::format("its {} reaches chunk {}, but {} has {} chunks", what, uint64_t{span.first} + span.chunks - 1,
                         buffer_name(span.buffer), chunks);
    return {};
  }

  std::string check_pair(const tutti_span& dst, const tutti_span& src) {
    const uint64_t to = layout_.locate(dst), from = layout_.locate(src);
    if (to != from && to < from + src.chunks && from < to + dst.chunks)
      return "its destination overlaps a source without being equal to it";
    fault_ = Fault::size_mismatch;
    if (dst.chunks != src.chunks) return fmt::format("writes {} chunks from {}", dst.chunks, src.chunks);
    for (uint32_t i = 0; i < dst.chunks; ++i) {
      const tutti_extent a = layout_.extent(dst.buffer, dst.first + i), b = layout_.extent(src.buffer, src.first + i);
      if (!same_size(a, b))
        return fmt::format("chunk {} of the span has the size of {} at the destination and of {} at the source", i,
                           size_text(problem_.collective, a), size_text(problem_.collective, b));
    }
    fault_ = Fault::form;
    return {};
  }

  // Runs the lanes as if every message were there: what is then left over waits for itself.
  Finding check_cycle() const {
    std::vector<size_t> done(schedule_.lanes.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t lane = 0; lane < done.size(); ++lane) {
        const auto& steps = schedule_.lanes[lane];
        while (done[lane] < steps.size()) {
          const tutti_step& op = steps[done[lane]].op;
          if (op.dependency_lane != TUTTI_NO_DEPENDENCY && done[op.dependency_lane] <= op.dependency_step) break;
          ++done[lane];
          moved = true;
        }
      }
    }
    for (uint32_t lane = 0; lane < done.size(); ++lane)
      if (done[lane] < schedule_.lanes[lane].size())
        return {Fault::form, where(rank_, lane, done[lane], schedule_.lanes[lane][done[lane]]) +
                                 ": waits for itself: the rank's dependencies form a cycle"};
    return {};
  }

  const Problem& problem_;
  uint32_t rank_;
  const Schedule& schedule_;
  RankLayout layout_;
  const bool has_levels_;
  Fault fault_ = Fault::form;
};

}  // namespace

std::string where(uint32_t rank, uint32_t lane, uint64_t index, const Step& step) {
  return fmt::format("rank {} lane {} step {} ({})", rank, lane, index, describe(step));
}

Finding check_problem(const Problem& problem) {
  const auto bad = [](std::string text) { return Finding{Fault::form, "the problem: " + text}; };
  if (problem.collective < TUTTI_BROADCAST || problem.collective > last_collective)
    return bad(fmt::format("collective {} is unknown", problem.collective));
  if (problem.nranks == 0) return bad("it has no ranks");
  if (problem.lanes == 0) return bad("it allows no lanes");
  if (has_root(problem.collective) && problem.root >= problem.nranks)
    return bad(fmt::format("root {} is not a rank: expected 0 to {}", problem.root, problem.nranks - 1));
  if (!problem.in_place.empty() && problem.in_place.size() != problem.nranks)
    return bad(fmt::format("in_place has {} entries for {} ranks", problem.in_place.size(), problem.nranks));
  if (!has_form_in_place(problem.collective) && std::ranges::any_of(problem.in_place, [](bool is) { return is; }))
    return bad("all_to_all_v has no form in place");
  if (block_classes(problem.collective, problem.nranks) > UINT32_MAX)
    return bad(fmt::format("{} among {} ranks has more classes of blocks than there are numbers for",
                           collective_name(problem.collective), problem.nranks));
  if (!problem.hosts.empty() && problem.hosts.size() != problem.nranks)
    return bad(fmt::format("hosts has {} entries for {} ranks", problem.hosts.size(), problem.nranks));
  return {};
}

Finding check_form(const Problem& problem, uint32_t rank, const Schedule& schedule) {
  return FormCheck(problem, rank, schedule).run();
}

Finding check_alike(const std::vector<Schedule>& schedules) {
  for (size_t rank = 1; rank < schedules.size(); ++rank) {
    const bool same_cuts = std::ranges::equal(
        schedules[rank].cuts, schedules[0].cuts,
        [](const tutti_cut& a, const tutti_cut& b) { return uint64_t{a.p} * b.q == uint64_t{b.p} * a.q; });
    if (!same_cuts) return {Fault::form, fmt::format("rank {} cuts blocks at other points than rank 0", rank)};
    if (schedules[rank].sliced() != schedules[0].sliced())
      return {Fault::form, fmt::format("ranks {} and 0 disagree about the schedule being SLICED", rank)};
    if (schedules[rank].slice_levels() != schedules[0].slice_levels())
      return {Fault::form, fmt::format("slices are {} levels apart at rank {} and {} at rank 0",
                                       schedules[rank].slice_levels(), rank, schedules[0].slice_levels())};
  }
  return {};
}

}  // namespace tutti
