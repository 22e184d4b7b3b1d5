// SPDX-License-Identifier: Apache-2.0
//
// The proof: each part relies on the ones before it.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "levels.hpp"
#include "provenance.hpp"
#include "races.hpp"
#include "resources.hpp"

namespace tutti {
namespace {

// Locations of all ranks that one proof may need; beyond it the memory would not be sane.
constexpr uint64_t most_locations = uint64_t{1} << 30;

Finding check_set(const Problem& problem, const std::vector<Schedule>& schedules) {
  if (Finding finding = check_problem(problem)) return finding;
  if (schedules.size() != problem.nranks)
    return {Fault::form, fmt::format("there are {} schedules for {} ranks", schedules.size(), problem.nranks)};
  uint64_t locations = 0, steps = 0;
  for (uint32_t rank = 0; rank < problem.nranks; ++rank) {
    const Schedule& schedule = schedules[rank];
    if (Finding finding = check_form(problem, rank, schedule)) return finding;
    locations += RankLayout(problem, schedule, rank, 1).locations();
    for (const auto& lane : schedule.lanes) steps += lane.size();
  }
  if (Finding finding = check_alike(schedules)) return finding;
  const uint64_t blocks = std::max(
      block_count(problem.collective, problem.nranks, problem.root, problem.root, TUTTI_BUFFER_IN), uint32_t{1});
  locations = std::max(locations, uint64_t{problem.nranks} * blocks * schedules[0].pieces());  // values to tell apart
  if (locations > most_locations || steps > UINT32_MAX / (ScheduleLimits::scratch_copies + 1))
    return {Fault::form, fmt::format("{} chunks and {} steps of all ranks are too many to verify", locations, steps)};
  return {};
}

Finding prove(const Problem& problem, const std::vector<Schedule>& schedules, Proof* proof) {
  if (Finding finding = check_set(problem, schedules)) return finding;
  StepGraph graph(problem, schedules, slices_to_unroll(schedules));
  if (Finding finding = graph.match()) return finding;
  if (Finding finding = graph.run()) return finding;
  if (Finding finding = check_races(graph)) return finding;
  if (Finding finding = check_levels(graph, schedules)) return finding;
  Trees trees;
  if (Finding finding = check_provenance(graph, &trees)) return finding;
  if (problem.collective == TUTTI_BARRIER)
    if (Finding finding = check_barrier(graph)) return finding;
  proof->same_tree = trees.same;
  proof->rank_order = trees.rank_order;
  proof->canonical = is_reducing(problem.collective) && trees.canonical;
  proof->flat = is_reducing(problem.collective) && trees.flat;
  count_resources(graph, schedules, proof);
  return {};
}

// The part of a step that other ranks can see: its peer, its message and its place in the order.
struct Exchange {
  uint32_t peer, lane, level;
  bool signal, sending;
  std::vector<tutti_extent> extents;
  bool operator==(const Exchange& o) const {
    return std::tie(peer, lane, level, signal, sending) == std::tie(o.peer, o.lane, o.level, o.signal, o.sending) &&
           std::ranges::equal(extents, o.extents, same_size);
  }
};

std::vector<Exchange> exchanges(const Problem& problem, const Schedule& schedule, uint32_t rank) {
  const RankLayout layout(problem, schedule, rank, 1);
  std::vector<Exchange> list;
  for (uint32_t lane = 0; lane < schedule.lanes.size(); ++lane)
    for (const Step& step : schedule.lanes[lane]) {
      if (!sends(step.op) && !receives(step.op)) continue;
      Exchange& exchange = list.emplace_back(
          Exchange{step.op.peer, lane, step.op.level, step.op.kind == TUTTI_STEP_SIGNAL, sends(step.op), {}});
      const tutti_span& span = exchange.sending ? step.op.src : step.op.dst;
      for (uint32_t i = 0; i < span.chunks; ++i) exchange.extents.push_back(layout.extent(span.buffer, span.first + i));
    }
  // Only the order per peer and lane is seen.
  std::stable_sort(list.begin(), list.end(), [](const Exchange& a, const Exchange& b) {
    return std::pair(a.peer, a.lane) < std::pair(b.peer, b.lane);
  });
  return list;
}

std::string exchange_text(const Exchange& exchange) {
  const char* what = exchange.signal    ? (exchange.sending ? "a signal to" : "a signal from")
                     : exchange.sending ? "a send to"
                                        : "a receive from";
  return fmt::format("{} rank {} on lane {} of {} chunks at level {}", what, exchange.peer, exchange.lane,
                     exchange.extents.size(), exchange.level);
}

Finding compare_exchanges(const std::vector<std::vector<Exchange>>& usual, const Problem& problem,
                          const std::vector<Schedule>& schedules) {
  for (uint32_t rank = 0; rank < problem.nranks; ++rank) {
    const auto mine = exchanges(problem, schedules[rank], rank);
    const auto& theirs = usual[rank];
    if (mine == theirs) continue;
    const auto [a, b] = std::mismatch(mine.begin(), mine.end(), theirs.begin(), theirs.end());
    return {Fault::in_place_order,
            fmt::format("rank {}: in place it exchanges other messages than out of place: {} instead of {}", rank,
                        a == mine.end() ? "nothing" : exchange_text(*a),
                        b == theirs.end() ? "nothing" : exchange_text(*b))};
  }
  return {};
}

struct Variant {
  std::string text;
  std::vector<bool> in_place;
};

// Up to so many ranks every mix is proved.
constexpr uint32_t most_ranks_of_every_mix = 4;

// The other mixes of ranks in place and out of place, where they have a meaning.
void add_mixes(const Problem& problem, std::vector<Variant>& list) {
  if (problem.nranks > most_ranks_of_every_mix) return;
  for (uint32_t mask = 1; mask + 1 < 1u << problem.nranks; ++mask) {
    Variant mix{"in place on ranks", std::vector<bool>(problem.nranks, false)};
    for (uint32_t rank = 0; rank < problem.nranks; ++rank) {
      mix.in_place[rank] = mask >> rank & 1;
      if (mix.in_place[rank]) mix.text += fmt::format(" {}", rank);
    }
    list.push_back(std::move(mix));
  }
}

// The forms that are proved. With a root in-place has a meaning there only.
std::vector<Variant> variants(const Problem& problem) {
  std::vector<bool> odd(problem.nranks, false);
  for (uint32_t rank = 1; rank < problem.nranks; rank += 2) odd[rank] = true;
  std::vector<Variant> list{{"out of place", std::vector<bool>(problem.nranks, false)}};
  if (!has_form_in_place(problem.collective)) return list;
  list.push_back({"in place everywhere", std::vector<bool>(problem.nranks, true)});
  if (problem.nranks == 1 || problem.collective == TUTTI_BARRIER) return list;
  if (has_root(problem.collective)) {  // the one rank that has both buffers, and so what really happens
    std::vector<bool> root(problem.nranks, false);
    root[problem.root] = true;
    list.push_back({"in place at the root only", std::move(root)});
  } else {
    list.push_back({"in place on odd ranks only", std::move(odd)});
    add_mixes(problem, list);
  }
  return list;
}

Proof failure(Fault fault, std::string text) {
  Proof proof;
  proof.fault = fault;
  proof.error = std::move(text);
  return proof;
}

}  // namespace

Proof verify(const Problem& problem, const std::vector<Schedule>& schedules) {
  Proof proof;
  if (Finding finding = prove(problem, schedules, &proof)) return failure(finding.fault, std::move(finding.text));
  return proof;
}

Proof verify_algorithm(const tutti_algorithm& algorithm, Problem problem) {
  if (Finding finding = check_problem(problem)) return failure(finding.fault, std::move(finding.text));
  Proof whole;
  std::vector<std::vector<Exchange>> usual(problem.nranks);
  bool first = true;
  for (Variant& variant : variants(problem)) {
    problem.in_place = std::move(variant.in_place);
    std::vector<Schedule> schedules;
    std::string error;
    if (build_schedules(algorithm, problem, &schedules, &error) != TUTTI_OK)
      return failure(Fault::form, fmt::format("{}: {}", variant.text, error));
    Proof proof = verify(problem, schedules);
    if (!proof.ok()) return failure(proof.fault, fmt::format("{}: {}", variant.text, proof.error));
    if (first) {
      for (uint32_t rank = 0; rank < problem.nranks; ++rank) usual[rank] = exchanges(problem, schedules[rank], rank);
      whole = proof;
    } else if (Finding finding = compare_exchanges(usual, problem, schedules)) {
      return failure(finding.fault, std::move(finding.text));
    }
    first = false;
    whole.same_tree = whole.same_tree && proof.same_tree;
    whole.rank_order = whole.rank_order && proof.rank_order;
    whole.canonical = whole.canonical && proof.canonical;
    whole.flat = whole.flat && proof.flat;
    whole.steps = std::max(whole.steps, proof.steps);
    whole.rounds = std::max(whole.rounds, proof.rounds);
    whole.scratch_chunks = std::max(whole.scratch_chunks, proof.scratch_chunks);
    whole.most_in_flight = std::max(whole.most_in_flight, proof.most_in_flight);
  }
  return whole;
}

}  // namespace tutti
