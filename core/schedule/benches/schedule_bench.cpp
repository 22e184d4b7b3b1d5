// SPDX-License-Identifier: Apache-2.0
//
// The cost of building, verifying and simulating a ring all_reduce.
#include <benchmark/benchmark.h>
#include <tutti/schedule.h>

#include "schedule_builder.hpp"

namespace {
using namespace tutti;

void verify_ring(benchmark::State& state) {
  const hand::Case c = hand::ring_all_reduce(uint32_t(state.range(0)));
  for (auto _ : state) {
    const Proof proof = verify(c.problem, c.schedules);
    if (!proof.ok()) state.SkipWithError(proof.error.c_str());
  }
}
BENCHMARK(verify_ring)->Arg(8)->Arg(64)->Arg(512)->Unit(benchmark::kMillisecond);

void simulate_ring(benchmark::State& state) {
  const hand::Case c = hand::ring_all_reduce(uint32_t(state.range(0)));
  CostModel model;
  model.link = [](uint32_t, uint32_t) { return LinkCost{1e-6, 1e-10}; };
  for (auto _ : state) benchmark::DoNotOptimize(simulate(c.problem, c.schedules, 1 << 20, 4, 4, model));
}
BENCHMARK(simulate_ring)->Arg(8)->Arg(64)->Arg(512)->Unit(benchmark::kMillisecond);

// One rank's steps through the sink of the ABI, check of form included.
tutti_status emit_ring(void*, const tutti_query* query, const tutti_schedule_sink* sink) {
  static thread_local hand::Case c;
  if (c.schedules.size() != query->nranks) c = hand::ring_all_reduce(query->nranks);
  const Schedule& s = c.schedules[query->rank];
  sink->set_cuts(sink->self, s.cuts.data(), uint32_t(s.cuts.size()));
  sink->set_flags(sink->self, s.flags);
  for (const Step& step : s.lanes[0])
    if (const tutti_status status = sink->add_step(sink->self, 0, &step.op, nullptr); status != TUTTI_OK) return status;
  return TUTTI_OK;
}

void build_ring(benchmark::State& state) {
  tutti_algorithm ring{};
  ring.struct_size = sizeof ring;
  ring.name = "ring";
  ring.collectives = ~uint64_t{0};
  ring.supports = [](void*, const tutti_query*) { return tutti_status{TUTTI_OK}; };
  ring.schedule = emit_ring;
  Problem problem;
  problem.collective = TUTTI_ALL_REDUCE;
  problem.nranks = uint32_t(state.range(0));
  Schedule schedule;
  std::string error;
  const tutti_query query = make_query(problem, 0);
  for (auto _ : state)
    if (build_schedule(ring, query, &schedule, &error) != TUTTI_OK) state.SkipWithError(error.c_str());
  state.SetItemsProcessed(state.iterations() * 4 * (state.range(0) - 1));
}
BENCHMARK(build_ring)->Arg(64)->Arg(512)->Unit(benchmark::kMicrosecond);

}  // namespace
