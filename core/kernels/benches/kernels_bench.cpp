// SPDX-License-Identifier: Apache-2.0
//
// The host kernels beside what the memory system gives: memcpy and a plain loop. Arguments are bytes of one buffer: 16
// KiB and 256 KiB lie in the first and second cache level, 64 MiB in memory. bytes_per_second counts what is written.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "kernels/kernels.hpp"

namespace tutti::core {
namespace {

// A buffer at a page boundary, touched.
struct Buffer {
  explicit Buffer(uint64_t bytes) : data(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096), std::free) {
    std::memset(data.get(), 0, bytes);
  }
  std::unique_ptr<void, void (*)(void*)> data;
};

void sizes(benchmark::internal::Benchmark* bench) { bench->Arg(16 << 10)->Arg(256 << 10)->Arg(64 << 20); }

void written(benchmark::State& state) { state.SetBytesProcessed(state.iterations() * state.range(0)); }

void plain_memcpy(benchmark::State& state) {
  Buffer src(state.range(0)), dst(state.range(0));
  for (auto _ : state) {
    std::memcpy(dst.data.get(), src.data.get(), state.range(0));
    benchmark::ClobberMemory();
  }
  written(state);
}
BENCHMARK(plain_memcpy)->Apply(sizes);

void plain_add_float32(benchmark::State& state) {
  Buffer a(state.range(0)), b(state.range(0)), c(state.range(0));
  const float* x = static_cast<const float*>(a.data.get());
  const float* y = static_cast<const float*>(b.data.get());
  float* z = static_cast<float*>(c.data.get());
  for (auto _ : state) {
    for (int64_t i = 0; i < state.range(0) / 4; ++i) z[i] = x[i] + y[i];
    benchmark::ClobberMemory();
  }
  written(state);
}
BENCHMARK(plain_add_float32)->Apply(sizes);

template <bool Streaming>
void copy_once(benchmark::State& state) {
  Buffer src(state.range(0)), dst(state.range(0));
  for (auto _ : state) copy(dst.data.get(), src.data.get(), state.range(0), Streaming);
  written(state);
}
BENCHMARK(copy_once<false>)->Apply(sizes);
BENCHMARK(copy_once<true>)->Apply(sizes);

template <bool Streaming>
void copy_twice(benchmark::State& state) {
  Buffer src(state.range(0)), one(state.range(0)), two(state.range(0));
  for (auto _ : state) copy(one.data.get(), false, two.data.get(), Streaming, src.data.get(), state.range(0));
  written(state);
}
BENCHMARK(copy_twice<false>)->Apply(sizes);
BENCHMARK(copy_twice<true>)->Apply(sizes);

// nsrcs sources into ndsts destinations, the last of them streamed to if asked.
void reduce(benchmark::State& state, uint32_t dtype, uint32_t bytes, uint32_t op, uint32_t nsrcs, uint32_t ndsts,
            bool streaming, uint64_t divisor) {
  std::vector<Buffer> buffers;
  for (uint32_t k = 0; k < nsrcs + ndsts; ++k) buffers.emplace_back(state.range(0));
  std::vector<const void*> srcs;
  for (uint32_t k = 0; k < nsrcs; ++k) srcs.push_back(buffers[k].data.get());
  Reduction r{};
  for (uint32_t k = 0; k < ndsts; ++k) r.dsts[k] = buffers[nsrcs + k].data.get();
  r.ndsts = ndsts;
  r.srcs = srcs.data();
  r.nsrcs = nsrcs;
  r.count = static_cast<uint64_t>(state.range(0)) / bytes;
  r.divisor = divisor;
  r.streaming[ndsts - 1] = streaming;
  const ReduceFunction function = find_reduction(dtype, op);
  for (auto _ : state) function(r);
  written(state);
}
#define TUTTI_REDUCE(name, ...) BENCHMARK_CAPTURE(reduce, name, __VA_ARGS__)->Apply(sizes)
TUTTI_REDUCE(float32_sum_2, TUTTI_FLOAT32, 4, TUTTI_SUM, 2, 1, false, 0);
TUTTI_REDUCE(float32_sum_2_streaming, TUTTI_FLOAT32, 4, TUTTI_SUM, 2, 1, true, 0);
TUTTI_REDUCE(float32_sum_2_to_two, TUTTI_FLOAT32, 4, TUTTI_SUM, 2, 2, false, 0);
TUTTI_REDUCE(float32_sum_2_to_two_streaming, TUTTI_FLOAT32, 4, TUTTI_SUM, 2, 2, true, 0);
TUTTI_REDUCE(float32_sum_4, TUTTI_FLOAT32, 4, TUTTI_SUM, 4, 1, false, 0);
TUTTI_REDUCE(float32_avg_2, TUTTI_FLOAT32, 4, TUTTI_AVG, 2, 1, false, 3);
TUTTI_REDUCE(float32_max_2, TUTTI_FLOAT32, 4, TUTTI_MAX, 2, 1, false, 0);
TUTTI_REDUCE(float64_sum_2, TUTTI_FLOAT64, 8, TUTTI_SUM, 2, 1, false, 0);
TUTTI_REDUCE(float16_sum_2, TUTTI_FLOAT16, 2, TUTTI_SUM, 2, 1, false, 0);
TUTTI_REDUCE(float16_max_2, TUTTI_FLOAT16, 2, TUTTI_MAX, 2, 1, false, 0);
TUTTI_REDUCE(bfloat16_sum_2, TUTTI_BFLOAT16, 2, TUTTI_SUM, 2, 1, false, 0);
TUTTI_REDUCE(bfloat16_avg_2, TUTTI_BFLOAT16, 2, TUTTI_AVG, 2, 1, false, 3);
TUTTI_REDUCE(int8_sum_2, TUTTI_INT8, 1, TUTTI_SUM, 2, 1, false, 0);
TUTTI_REDUCE(int8_prod_2, TUTTI_INT8, 1, TUTTI_PROD, 2, 1, false, 0);
TUTTI_REDUCE(int32_avg_2, TUTTI_INT32, 4, TUTTI_AVG, 2, 1, false, 3);
TUTTI_REDUCE(int8_avg_2, TUTTI_INT8, 1, TUTTI_AVG, 2, 1, false, 3);
TUTTI_REDUCE(int64_avg_2, TUTTI_INT64, 8, TUTTI_AVG, 2, 1, false, 3);
TUTTI_REDUCE(int64_prod_2, TUTTI_INT64, 8, TUTTI_PROD, 2, 1, false, 0);

// The cost of a call: a few elements.
void reduce_small(benchmark::State& state) {
  alignas(64) float a[64] = {}, b[64] = {}, c[64];
  const void* srcs[] = {a, b};
  const Reduction r{{c, nullptr}, 1, srcs, 2, static_cast<uint64_t>(state.range(0)), 0, {false, false}};
  const ReduceFunction function = find_reduction(TUTTI_FLOAT32, TUTTI_SUM);
  for (auto _ : state) {
    function(r);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(reduce_small)->Arg(1)->Arg(2)->Arg(15)->Arg(16)->Arg(64);

}  // namespace
}  // namespace tutti::core
