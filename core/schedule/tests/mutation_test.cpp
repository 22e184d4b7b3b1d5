// SPDX-License-Identifier: Apache-2.0
//
// Correct schedules, changed in one place in every way that comes to mind: the verifier refuses the mutant, or an
// executor that tries random legal orders of its steps finds only right results. What survives is right by another road
// (two sends in the other order, say) and is counted.
#include <gtest/gtest.h>
#include <tutti/schedule.h>

#include <cstdio>
#include <functional>
#include <map>

#include "interpreter.hpp"
#include "schedule/stream_order.hpp"
#include "schedule_builder.hpp"

namespace tutti {
namespace {
using namespace hand;

struct Mutation {
  const char* name;
  // Changes step `i` of a lane; false when it has nothing to change there.
  std::function<bool(Case&, uint32_t rank, uint32_t lane, size_t i)> apply;
};

Step& at(Case& c, uint32_t rank, uint32_t lane, size_t i) { return c.schedules[rank].lanes[lane][i]; }

// Steps behind `i` of a lane move by `by`: dependencies on them follow.
void renumber(Schedule& s, uint32_t lane, size_t i, int by) {
  for (auto& steps : s.lanes)
    for (Step& step : steps)
      if (step.op.dependency_lane == lane && step.op.dependency_step > i) step.op.dependency_step += uint32_t(by);
}

bool toggle(Case& c, uint32_t rank, uint32_t lane, size_t i, uint32_t flag) {
  at(c, rank, lane, i).op.flags ^= flag;
  return true;
}

bool shift(tutti_span& span, uint32_t by) {
  if (!span.buffer) return false;
  span.first += by;
  return true;
}

bool rename(tutti_span& span) {
  if (!span.buffer) return false;
  span.buffer = span.buffer % 3 + 1;
  return true;
}

const Mutation mutations[] = {
    {"drop",
     [](Case& c, uint32_t r, uint32_t l, size_t i) {
       auto& lane = c.schedules[r].lanes[l];
       lane.erase(lane.begin() + std::ptrdiff_t(i));
       renumber(c.schedules[r], l, i, -1);
       return true;
     }},
    {"duplicate",
     [](Case& c, uint32_t r, uint32_t l, size_t i) {
       auto& lane = c.schedules[r].lanes[l];
       const Step copied = lane[i];
       lane.insert(lane.begin() + std::ptrdiff_t(i), copied);
       renumber(c.schedules[r], l, i, 1);
       return true;
     }},
    {"swap",
     [](Case& c, uint32_t r, uint32_t l, size_t i) {
       auto& lane = c.schedules[r].lanes[l];
       if (i + 1 >= lane.size()) return false;
       std::swap(lane[i], lane[i + 1]);
       return true;
     }},
    {"peer",
     [](Case& c, uint32_t r, uint32_t l, size_t i) {
       tutti_step& op = at(c, r, l, i).op;
       if (op.kind > TUTTI_STEP_RECV_REDUCE && op.kind != TUTTI_STEP_SIGNAL) return false;
       op.peer = (op.peer + 1) % c.problem.nranks;
       return true;
     }},
    {"src", [](Case& c, uint32_t r, uint32_t l, size_t i) { return shift(at(c, r, l, i).op.src, 1); }},
    {"src_down", [](Case& c, uint32_t r, uint32_t l, size_t i) { return shift(at(c, r, l, i).op.src, ~0u); }},
    {"dst", [](Case& c, uint32_t r, uint32_t l, size_t i) { return shift(at(c, r, l, i).op.dst, 1); }},
    {"dst_down", [](Case& c, uint32_t r, uint32_t l, size_t i) { return shift(at(c, r, l, i).op.dst, ~0u); }},
    {"src_buffer", [](Case& c, uint32_t r, uint32_t l, size_t i) { return rename(at(c, r, l, i).op.src); }},
    {"dst_buffer", [](Case& c, uint32_t r, uint32_t l, size_t i) { return rename(at(c, r, l, i).op.dst); }},
    {"load", [](Case& c, uint32_t r, uint32_t l, size_t i) { return toggle(c, r, l, i, TUTTI_STEP_LOAD); }},
    {"final", [](Case& c, uint32_t r, uint32_t l, size_t i) { return toggle(c, r, l, i, TUTTI_STEP_FINAL); }},
    {"incoming_left",
     [](Case& c, uint32_t r, uint32_t l, size_t i) { return toggle(c, r, l, i, TUTTI_STEP_INCOMING_LEFT); }},
    {"kind",
     [](Case& c, uint32_t r, uint32_t l, size_t i) {
       tutti_step& op = at(c, r, l, i).op;
       if (op.kind != TUTTI_STEP_RECV_REDUCE) return false;
       op.kind = TUTTI_STEP_RECV;
       op.flags = 0;
       op.src = {};
       return true;
     }},
    {"independent",
     [](Case& c, uint32_t r, uint32_t l, size_t i) {
       tutti_step& op = at(c, r, l, i).op;
       if (op.dependency_lane == TUTTI_NO_DEPENDENCY) return false;
       op.dependency_lane = TUTTI_NO_DEPENDENCY;
       op.dependency_step = 0;
       return true;
     }},
    {"dependency",
     [](Case& c, uint32_t r, uint32_t l, size_t i) {
       tutti_step& op = at(c, r, l, i).op;
       if (op.dependency_lane == TUTTI_NO_DEPENDENCY || op.dependency_step == 0) return false;
       --op.dependency_step;
       return true;
     }},
    {"source",
     [](Case& c, uint32_t r, uint32_t l, size_t i) {
       Step& step = at(c, r, l, i);
       if (step.sources.empty()) return false;
       step.sources[0] = step.sources.back();
       return true;
     }},
    {"other_lane",
     [](Case& c, uint32_t r, uint32_t l, size_t i) {
       // Local steps leave their lane: nothing orders them any more.
       auto& lanes = c.schedules[r].lanes;
       if (lanes[l][i].op.kind != TUTTI_STEP_COPY && lanes[l][i].op.kind != TUTTI_STEP_REDUCE) return false;
       lanes.push_back({lanes[l][i]});
       lanes[l][i] = nop();
       return true;
     }},
    {"shorter_run",
     [](Case& c, uint32_t r, uint32_t l, size_t i) {
       tutti_step& op = at(c, r, l, i).op;
       bool any = false;
       for (tutti_span* span : {&op.dst, &op.src})
         if (span->chunks > 1) --span->chunks, any = true;
       return any;
     }},
    {"level",
     [](Case& c, uint32_t r, uint32_t l, size_t i) {
       if (!at(c, r, l, i).op.level) return false;
       ++at(c, r, l, i).op.level;
       return true;
     }},
    {"fewer_copies",
     [](Case& c, uint32_t r, uint32_t l, size_t i) {
       if (l || i || c.schedules[r].scratch.empty() || c.schedules[r].scratch_copies == 1) return false;
       c.schedules[r].scratch_copies = 1;
       return true;
     }},
};

std::vector<std::pair<std::string, Case>> correct_cases() {
  std::vector<std::pair<std::string, Case>> cases;
  for (const bool in_place : {false, true}) {
    const auto add = [&](const char* name, uint32_t n, Case c) {
      cases.emplace_back(std::string(name) + " n=" + std::to_string(n) + (in_place ? " in place" : ""), std::move(c));
    };
    for (uint32_t n = 2; n <= 4; ++n) {
      add("ring all_reduce", n, ring_all_reduce(n, in_place));
      add("direct all_reduce", n, direct_all_reduce(n, in_place, 2));
      add("all_to_all", n, all_to_all(n, in_place));
      add("line broadcast", n, line_broadcast(n, n - 1, in_place));
      add("line reduce", n, line_reduce(n, 1, in_place));
      add("direct reduce_scatter", n, direct_reduce_scatter(n, in_place));
    }
    add("staged all_gather", 2, staged_all_gather(in_place));
    add("staged run all_gather", 2, staged_run_all_gather(1, in_place));
    add("torus all_reduce", 4, torus_all_reduce(2, 2, in_place));
    Case levelled = torus_all_reduce(2, 2, in_place);
    std::vector<Schedule> forms[2] = {torus_all_reduce(2, 2).schedules, torus_all_reduce(2, 2, true).schedules};
    EXPECT_EQ(give_levels(levelled.problem, forms), "");
    levelled.schedules = forms[in_place];
    add("torus all_reduce with levels", 4, std::move(levelled));
  }
  return cases;
}

// The first wrong result over many random orders; empty when there is none.
std::string try_orders(const Case& c, unsigned tries) {
  const uint32_t slices = c.schedules[0].sliced() ? 3 : 1;
  for (uint64_t seed = 0; seed < tries; ++seed)
    for (const Pace pace : {Pace::free, Pace::strict})
      if (std::string text = interpret(c, slices, pace, seed); !text.empty())
        return text + " (seed " + std::to_string(seed) + (pace == Pace::strict ? ", strict)" : ", free)");
  return {};
}

TEST(Mutation, TheInterpreterAgreesOnCorrectSchedules) {
  for (const auto& [name, c] : correct_cases()) {
    EXPECT_TRUE(verify(c.problem, c.schedules).ok()) << name;
    EXPECT_EQ(try_orders(c, 5), "") << name;
  }
}

TEST(Mutation, TheInterpreterSeesARace) {
  Case c = staged_all_gather();
  c.schedules[1].lanes[0][1].op.dependency_lane = TUTTI_NO_DEPENDENCY;
  c.schedules[1].lanes[0][1].op.dependency_step = 0;
  EXPECT_NE(try_orders(c, 20), "");
}

TEST(Mutation, RefusedOrRight) {
  std::map<std::string, unsigned> refused, survivors;
  for (const auto& [name, original] : correct_cases())
    for (const Mutation& mutation : mutations)
      for (uint32_t rank = 0; rank < original.problem.nranks; ++rank)
        for (uint32_t lane = 0; lane < original.schedules[rank].lanes.size(); ++lane)
          for (size_t i = 0; i < original.schedules[rank].lanes[lane].size(); ++i) {
            Case mutant = original;
            if (!mutation.apply(mutant, rank, lane, i)) continue;
            if (!verify(mutant.problem, mutant.schedules).ok()) {
              ++refused[mutation.name];
              continue;
            }
            ++survivors[mutation.name];
            EXPECT_EQ(try_orders(mutant, 8), "")
                << name << ", " << mutation.name << " at rank " << rank << " lane " << lane << " step " << i << ": "
                << describe(original.schedules[rank].lanes[lane][i]);
          }
  for (const Mutation& mutation : mutations) {
    std::printf("%-14s %5u refused %5u right by another road\n", mutation.name, refused[mutation.name],
                survivors[mutation.name]);
    EXPECT_GT(refused[mutation.name] + survivors[mutation.name], 0u) << mutation.name << " never applied";
  }
  // These always break something.
  for (const char* name : {"drop", "peer", "load", "kind", "independent", "source", "shorter_run", "level"})
    EXPECT_EQ(survivors[name], 0u) << name;
}

}  // namespace
}  // namespace tutti
