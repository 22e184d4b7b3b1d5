// SPDX-License-Identifier: Apache-2.0
//
// The host executor's own cost: a launch of a plan of many steps that move next to nothing, per step.
#include <benchmark/benchmark.h>
#include <tutti/schedule.h>

#include "engine/host/executor.hpp"

namespace tutti::core {
namespace {

// One rank, `steps` steps in one lane: NOPs, or copies of one element each.
Schedule schedule_of(uint32_t steps, uint32_t kind) {
  Schedule schedule;
  for (uint32_t p = 1; p < steps; ++p) schedule.cuts.push_back({p, steps});
  schedule.lanes.resize(1);
  for (uint32_t i = 0; i < steps; ++i) {
    Step step;
    step.op.kind = kind;
    step.op.dependency_lane = TUTTI_NO_DEPENDENCY;
    if (kind == TUTTI_STEP_COPY) {
      step.op.dst = {TUTTI_BUFFER_OUT, i, 1, 0};
      step.op.src = {TUTTI_BUFFER_IN, i, 1, 0};
    }
    schedule.lanes[0].push_back(step);
  }
  return schedule;
}

void run(benchmark::State& state, uint32_t kind) {
  const auto steps = static_cast<uint32_t>(state.range(0));
  std::vector<Link> links(1);
  Shape shape;
  shape.collective = TUTTI_BROADCAST;
  shape.count = steps;
  shape.dtype = TUTTI_FLOAT32;
  Plan plan = bind_plan(schedule_of(steps, kind), shape, 1, 1, 0, links);
  std::vector<float> in(steps, 1), out(steps);
  Execution execution;
  execution.init(0);
  for (auto _ : state) {
    execution.launch(plan, 0, in.data(), out.data(), 0, {}, {});
    while (!execution.advance()) {
    }
  }
  state.counters["per_step"] =
      benchmark::Counter(steps, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void Nops(benchmark::State& state) { run(state, TUTTI_STEP_NOP); }
void Copies(benchmark::State& state) { run(state, TUTTI_STEP_COPY); }
BENCHMARK(Nops)->Arg(1)->Arg(16)->Arg(1024);
BENCHMARK(Copies)->Arg(1)->Arg(16)->Arg(1024);

}  // namespace
}  // namespace tutti::core
