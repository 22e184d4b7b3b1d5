// SPDX-License-Identifier: Apache-2.0
//
// Mutants of an algorithm: a healthy one's schedules, changed on their way to the sink. faults.cpp describes each.
#include <tutti/plugin/algorithm.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "mutant.hpp"

namespace tutti::mutants {
namespace {

// A schedule on its way.
struct Draft {
  struct Step {
    uint32_t lane;
    tutti_step step;
    std::vector<tutti_span> sources;
  };
  std::vector<tutti_cut> cuts;
  std::vector<tutti_extent> scratch;
  uint32_t copies = 0;
  uint64_t flags = 0;
  std::vector<Step> steps;

  Step* last(uint32_t kind, uint32_t lane = UINT32_MAX) {
    for (auto step = steps.rbegin(); step != steps.rend(); ++step)
      if (step->step.kind == kind && (lane == UINT32_MAX || step->lane == lane)) return &*step;
    return nullptr;
  }
  Step* first(uint32_t kind) {
    for (Step& step : steps)
      if (step.step.kind == kind) return &step;
    return nullptr;
  }
};

tutti_step step_of(uint32_t kind, uint32_t peer = 0, tutti_span dst = {}, tutti_span src = {}, uint32_t flags = 0) {
  tutti_step step{};
  step.kind = kind, step.peer = peer, step.dst = dst, step.src = src, step.flags = flags;
  step.dependency_lane = TUTTI_NO_DEPENDENCY;
  return step;
}

// The healthy algorithm: ring, or direct for the fault that is about its REDUCE of all ranks' values.
const tutti_algorithm* inner() {
  static const tutti_algorithm* const found = []() -> const tutti_algorithm* {
    const std::string_view name = fault() == "own-order" ? "direct" : "ring";
    for (uint32_t i = 0;; ++i) {
      const auto* table =
          static_cast<const tutti_algorithm*>(sdk::host->list_interface(sdk::host->self, TUTTI_ALGORITHM_ID, i));
      if (!table || name == table->name) return table;
    }
  }();
  return found;
}

tutti_status draft_of(const tutti_query* query, Draft& draft) {
  tutti_schedule_sink sink{};
  sink.struct_size = sizeof sink;
  sink.self = &draft;
  sink.set_cuts = [](void* self, const tutti_cut* cuts, uint32_t n) -> tutti_status {
    return static_cast<Draft*>(self)->cuts.assign(cuts, cuts + n), TUTTI_OK;
  };
  sink.set_scratch = [](void* self, const tutti_extent* chunks, uint32_t n, uint32_t copies) -> tutti_status {
    static_cast<Draft*>(self)->copies = copies;
    return static_cast<Draft*>(self)->scratch.assign(chunks, chunks + n), TUTTI_OK;
  };
  sink.set_flags = [](void* self, uint64_t flags) -> tutti_status {
    // Levels go: the changed schedules would not keep them, which is not what these mutants are about.
    constexpr uint64_t levels = TUTTI_SCHEDULE_SLICE_LEVELS(0xffffff);
    return static_cast<Draft*>(self)->flags = flags & ~levels, TUTTI_OK;
  };
  sink.add_step = [](void* self, uint32_t lane, const tutti_step* step, const tutti_span* sources) -> tutti_status {
    std::vector<tutti_span> spans(sources, sources ? sources + step->sources : sources);
    Draft::Step kept{lane, *step, std::move(spans)};
    kept.step.level = 0;
    return static_cast<Draft*>(self)->steps.push_back(std::move(kept)), TUTTI_OK;
  };
  return inner()->schedule(inner()->self, query, &sink);
}

tutti_status emit(const Draft& draft, const tutti_schedule_sink& sink) {
  const bool deaf = fault() == "ignores-sink",
             late = fault() == "cuts-late" && !draft.cuts.empty() && !draft.steps.empty();
  tutti_status status = TUTTI_OK;
  const auto failed = [&](tutti_status now) {
    if (now != TUTTI_OK && deaf) reached();
    return !deaf && (status = now) != TUTTI_OK;
  };
  const auto cut = [&] {
    return !draft.cuts.empty() &&
           failed(sink.set_cuts(sink.self, draft.cuts.data(), static_cast<uint32_t>(draft.cuts.size())));
  };
  if (!late && cut()) return status;
  if (!draft.scratch.empty() && failed(sink.set_scratch(sink.self, draft.scratch.data(),
                                                        static_cast<uint32_t>(draft.scratch.size()), draft.copies)))
    return status;
  if (draft.flags && failed(sink.set_flags(sink.self, draft.flags))) return status;
  bool first = true;
  for (const auto& [lane, step, sources] : draft.steps) {
    if (failed(sink.add_step(sink.self, lane, &step, sources.empty() ? nullptr : sources.data()))) return status;
    if (late && std::exchange(first, false) && (reached(), cut())) return status;
  }
  return TUTTI_OK;
}

// ---- what is changed; true: it was
bool insert_first(Draft& draft, std::initializer_list<tutti_step> steps) {
  size_t at = 0;
  for (const tutti_step& step : steps) draft.steps.insert(draft.steps.begin() + static_cast<long>(at++), {0, step, {}});
  return true;
}
bool lane_beyond(const tutti_query& q, Draft& draft) {
  draft.steps.push_back({q.lanes, step_of(TUTTI_STEP_NOP), {}});
  return true;
}
bool drops_receive(const tutti_query&, Draft& draft) {
  Draft::Step* step = draft.last(TUTTI_STEP_RECV);
  if (step) draft.steps.erase(draft.steps.begin() + (step - draft.steps.data()));
  return step;
}
bool waits_in_a_ring(const tutti_query& q, Draft& draft) {
  const uint32_t next = (q.rank + 1) % q.nranks, before = (q.rank + q.nranks - 1) % q.nranks;
  return q.nranks > 1 && insert_first(draft, {step_of(TUTTI_STEP_SIGNAL, before, {}, {}, TUTTI_STEP_WAIT),
                                              step_of(TUTTI_STEP_NOP), step_of(TUTTI_STEP_SIGNAL, next)});
}
bool off_by_one_chunk(const tutti_query& q, Draft& draft) {
  Draft::Step* step = draft.last(TUTTI_STEP_RECV_REDUCE);
  if (!step || q.collective != TUTTI_REDUCE_SCATTER) return false;
  step->step.src.first = (step->step.src.first + 1) % q.nranks;
  return true;
}
bool double_reduce(const tutti_query& q, Draft& draft) {
  if (q.collective != TUTTI_ALL_REDUCE || q.nranks < 2) return false;
  Draft::Step* step = draft.last(TUTTI_STEP_RECV_REDUCE);
  Draft::Step again = *step;
  again.step =
      step_of(TUTTI_STEP_REDUCE, 0, step->step.dst, {}, step->step.flags & ~uint32_t{TUTTI_STEP_INCOMING_LEFT});
  again.sources = {step->step.dst, {TUTTI_BUFFER_IN, step->step.src.first, 1, 0}};
  again.step.sources = 2;
  step->step.flags &= ~uint32_t{TUTTI_STEP_FINAL};
  draft.steps.insert(draft.steps.begin() + (step - draft.steps.data()) + 1, again);
  return true;
}
bool no_reduce(const tutti_query&, Draft& draft) {
  Draft::Step* step = draft.first(TUTTI_STEP_RECV_REDUCE);
  if (!step || (step->step.flags & TUTTI_STEP_FINAL)) return false;
  step->step = step_of(TUTTI_STEP_RECV, step->step.peer, step->step.dst);
  return true;
}
bool missing_dependency(const tutti_query& q, Draft& draft) {
  Draft::Step* copy = draft.last(TUTTI_STEP_COPY);
  if (q.collective != TUTTI_ALL_GATHER || !copy || q.nranks < 2 || q.lanes < 2) return false;
  const tutti_span held{TUTTI_BUFFER_SCRATCH, 0, 1, 0}, from = copy->step.src;
  draft.scratch = {{0, 0}};
  copy->step.src = held;
  draft.steps.push_back({1, step_of(TUTTI_STEP_COPY, 0, held, from), {}});
  return true;
}
bool writes_input(const tutti_query& q, Draft& draft) {
  if (q.collective != TUTTI_ALL_GATHER || (q.flags & TUTTI_QUERY_IN_PLACE)) return false;
  draft.steps.push_back(
      {0, step_of(TUTTI_STEP_COPY, 0, {TUTTI_BUFFER_IN, 0, 1, 0}, {TUTTI_BUFFER_OUT, q.rank, 1, 0}), {}});
  return true;
}
bool no_final(const tutti_query&, Draft& draft) {
  Draft::Step* step = draft.last(TUTTI_STEP_RECV_REDUCE);
  if (!step || !(step->step.flags & TUTTI_STEP_FINAL)) return false;
  step->step.flags &= ~uint32_t{TUTTI_STEP_FINAL};
  return true;
}
bool no_load(const tutti_query&, Draft& draft) {
  Draft::Step* step = draft.last(TUTTI_STEP_RECV_REDUCE);
  if (!step || !(step->step.flags & TUTTI_STEP_LOAD)) return false;
  step->step.flags &= ~uint32_t{TUTTI_STEP_LOAD};
  return true;
}
// In place the empty signals between neighbours go the other way round: legal in either form alone.
bool in_place_other_messages(const tutti_query& q, Draft& draft) {
  if (q.nranks < 2 || q.collective != TUTTI_ALL_REDUCE) return false;
  if (!(q.flags & TUTTI_QUERY_IN_PLACE)) return false;
  const uint32_t next = (q.rank + 1) % q.nranks, before = (q.rank + q.nranks - 1) % q.nranks;
  draft.steps.push_back({0, step_of(TUTTI_STEP_SIGNAL, next), {}});
  draft.steps.push_back({0, step_of(TUTTI_STEP_SIGNAL, before, {}, {}, TUTTI_STEP_WAIT), {}});
  return true;
}
// The copy of missing_dependency with its dependency, but all slices' copies go through one scratch chunk.
bool scratch_too_soon(const tutti_query& q, Draft& draft) {
  if (!missing_dependency(q, draft)) return false;
  tutti_step& reader = draft.last(TUTTI_STEP_COPY, 0)->step;
  reader.dependency_lane = 1;
  reader.dependency_step = 0;
  draft.copies = 1;
  return true;
}
bool alternates(const tutti_query&, Draft& draft) {
  static std::atomic<uint64_t> calls{0};
  if (++calls % 2) return false;
  draft.steps.push_back({0, step_of(TUTTI_STEP_NOP), {}});
  return true;
}
// Two schedules at once share a flag.
std::atomic<int> inside{0};
bool shared_state(const tutti_query&, Draft& draft) {
  if (inside < 2) return false;
  draft.steps.push_back({0, step_of(TUTTI_STEP_NOP), {}});
  return true;
}

// Every rank folds the values of all ranks, and begins with its own.
bool own_order(const tutti_query& q, Draft& draft) {
  Draft::Step* step = draft.last(TUTTI_STEP_REDUCE);
  if (q.collective != TUTTI_ALL_REDUCE || q.nranks < 3 || !step) return false;
  std::rotate(step->sources.begin(), step->sources.begin() + q.rank, step->sources.end());
  return true;
}

// ---- right in what is usual, wrong in a part of the queries: a value is lost there
uint32_t hosts_of(const tutti_query& q) { return 1 + *std::max_element(q.host_of_rank, q.host_of_rank + q.nranks); }
bool three_hosts(const tutti_query& q, Draft& draft) { return hosts_of(q) > 2 && no_reduce(q, draft); }
bool uneven_hosts(const tutti_query& q, Draft& draft) {
  const auto first = std::count(q.host_of_rank, q.host_of_rank + q.nranks, 0u);
  return hosts_of(q) > 1 && first != (q.nranks + 1) / 2 && first * hosts_of(q) != q.nranks && no_reduce(q, draft);
}
bool cyclic_odd(const tutti_query& q, Draft& draft) {
  const bool cyclic = !std::is_sorted(q.host_of_rank, q.host_of_rank + q.nranks);
  return cyclic && q.nranks % 2 && no_reduce(q, draft);
}
bool middle_roots(const tutti_query& q, Draft& draft) {
  const bool usual = q.root < 2 || q.root == q.nranks / 2 || q.root + 1 == q.nranks;
  return !usual && no_reduce(q, draft);
}
bool seven_lanes(const tutti_query& q, Draft& draft) { return q.lanes == 7 && no_reduce(q, draft); }
bool large_blocks(const tutti_query& q, Draft& draft) {
  return TUTTI_HAS_FIELD(tutti_query, &q, block_bytes) && q.block_bytes >> 20 && no_reduce(q, draft);
}
bool peers_in_bits(const tutti_query& q, Draft& draft, uint32_t bits) {
  if (q.nranks <= 1u << bits) return false;
  for (Draft::Step& step : draft.steps) step.step.peer &= (1u << bits) - 1;
  return true;
}
bool peers_of_6_bits(const tutti_query& q, Draft& draft) { return peers_in_bits(q, draft, 6); }
bool peers_of_8_bits(const tutti_query& q, Draft& draft) { return peers_in_bits(q, draft, 8); }

constexpr struct {
  std::string_view name;
  bool (*change)(const tutti_query& query, Draft& draft);
} changes[] = {{"lane-beyond", lane_beyond},
               {"drops-receive", drops_receive},
               {"waits-in-a-ring", waits_in_a_ring},
               {"off-by-one-chunk", off_by_one_chunk},
               {"double-reduce", double_reduce},
               {"no-reduce", no_reduce},
               {"missing-dependency", missing_dependency},
               {"writes-input", writes_input},
               {"no-final", no_final},
               {"no-load", no_load},
               {"in-place-other-messages", in_place_other_messages},
               {"scratch-too-soon", scratch_too_soon},
               {"alternates", alternates},
               {"shared-state", shared_state},
               {"own-order", own_order},
               {"three-hosts", three_hosts},
               {"uneven-hosts", uneven_hosts},
               {"cyclic-odd", cyclic_odd},
               {"middle-roots", middle_roots},
               {"seven-lanes", seven_lanes},
               {"large-blocks", large_blocks},
               {"peers-of-6-bits", peers_of_6_bits},
               {"peers-of-8-bits", peers_of_8_bits}};

constexpr uint64_t served = 1u << TUTTI_BROADCAST | 1u << TUTTI_REDUCE | 1u << TUTTI_ALL_REDUCE |
                            1u << TUTTI_ALL_GATHER | 1u << TUTTI_REDUCE_SCATTER;

bool serves(const tutti_query& query) { return query.collective < 64 && served >> query.collective & 1; }

tutti_status supports(void*, const tutti_query* query) {
  if (!serves(*query)) return sdk::report(TUTTI_NOT_SUPPORTED, "mutant: not for this collective");
  tutti_query asked = *query;
  if (fault() == "supports-any-flag" && query->struct_size == sizeof asked &&
      (asked.flags & ~uint64_t{TUTTI_QUERY_IN_PLACE}))
    asked.flags &= TUTTI_QUERY_IN_PLACE, reached();
  if (fault() == "another-no" && query->nranks == 17)
    return reached(), sdk::report(TUTTI_INTERNAL, "mutant: 17 ranks are too many");
  if (fault() == "supports-by-rank" && query->nranks == 7 && query->rank == 6)
    return reached(), sdk::report(TUTTI_NOT_SUPPORTED, "mutant: not for the last rank");
  return inner()->supports(inner()->self, query->struct_size == sizeof asked ? &asked : query);
}

tutti_status schedule(void*, const tutti_query* query, const tutti_schedule_sink* sink) {
  return sdk::guard([&]() -> tutti_status {
    if (!serves(*query)) return sdk::report(TUTTI_NOT_SUPPORTED, "mutant: not for this collective");
    if (fault() == "yes-then-no" && query->nranks == 5)
      return reached(), sdk::report(TUTTI_NOT_SUPPORTED, "mutant: schedule knows no 5 ranks");
    Draft draft;
    ++inside;
    if (fault() == "shared-state") usleep(50);
    tutti_status status = draft_of(query, draft);
    for (const auto& [name, change] : changes)
      if (status == TUTTI_OK && name == fault() && change(*query, draft)) reached();
    --inside;
    return status == TUTTI_OK ? emit(draft, *sink) : status;
  });
}

}  // namespace

const tutti_algorithm* algorithm_mutant() {
  static const tutti_algorithm* const table = [] {
    auto* made = new tutti_algorithm{};
    made->struct_size = sizeof *made;
    made->name = "mutant";
    made->summary = "a deliberately broken algorithm, for the suite's own test";
    made->collectives = served;
    if (fault() == "no-such-collective") made->collectives |= uint64_t{1} << 40, reached();
    made->supports = supports;
    made->schedule = schedule;
    return made;
  }();
  return table;
}

}  // namespace tutti::mutants
