// SPDX-License-Identifier: Apache-2.0
//
// How long an algorithm takes to emit one rank's schedule, into a sink that only counts.
#include <benchmark/benchmark.h>
#include <tutti/plugin/algorithm.h>
#include <tutti/plugin/entry.h>

#include <cstring>

extern "C" const tutti_plugin_entry_table tutti_plugin_entry_algorithms;

namespace {

void emit(benchmark::State& state, const char* name, uint32_t collective) {
  const tutti_algorithm* algorithm = nullptr;
  for (uint32_t i = 0; !algorithm || std::strcmp(algorithm->name, name) != 0; ++i) {
    algorithm = static_cast<const tutti_algorithm*>(tutti_plugin_entry_algorithms.get_interface(TUTTI_ALGORITHM_ID, i));
    if (!algorithm) return state.SkipWithError("no such algorithm");
  }
  uint64_t steps = 0;
  tutti_schedule_sink sink{};
  sink.struct_size = sizeof sink;
  sink.self = &steps;
  sink.set_cuts = [](void*, const tutti_cut*, uint32_t) { return tutti_status{TUTTI_OK}; };
  sink.set_scratch = [](void*, const tutti_extent*, uint32_t, uint32_t) { return tutti_status{TUTTI_OK}; };
  sink.set_flags = [](void*, uint64_t) { return tutti_status{TUTTI_OK}; };
  sink.add_step = [](void* self, uint32_t, const tutti_step*, const tutti_span*) {
    ++*static_cast<uint64_t*>(self);
    return tutti_status{TUTTI_OK};
  };
  tutti_query query{};
  query.struct_size = sizeof query;
  query.collective = collective;
  query.nranks = static_cast<uint32_t>(state.range(0));
  query.rank = query.nranks / 2;
  query.lanes = 8;
  for (auto _ : state)
    if (algorithm->schedule(algorithm->self, &query, &sink) != TUTTI_OK) return state.SkipWithError("refused");
  state.counters["per_step"] =
      benchmark::Counter(static_cast<double>(steps), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

BENCHMARK_CAPTURE(emit, ring_all_reduce, "ring", TUTTI_ALL_REDUCE)->Arg(2)->Arg(64)->Arg(4096);
BENCHMARK_CAPTURE(emit, direct_all_to_all, "direct", TUTTI_ALL_TO_ALL)->Arg(64)->Arg(4096);
BENCHMARK_CAPTURE(emit, doubling_all_reduce, "doubling", TUTTI_ALL_REDUCE)->Arg(64)->Arg(4096);
BENCHMARK_CAPTURE(emit, halving_all_reduce, "halving", TUTTI_ALL_REDUCE)->Arg(64)->Arg(4096);

}  // namespace
