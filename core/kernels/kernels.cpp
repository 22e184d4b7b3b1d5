// SPDX-License-Identifier: Apache-2.0
#include "kernels/kernels.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/kernel_table.hpp"

namespace tutti::core {

const KernelTable* kernel_table(CpuPath path) {
  if (path == CpuPath::baseline) return &kernels_baseline;
#if defined(TUTTI_KERNELS_X86)
  if (path == CpuPath::avx2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) return &kernels_avx2;
  if (path == CpuPath::avx512 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return &kernels_avx512;
#endif
  return nullptr;
}

const KernelTable& best_kernels() {
  static const KernelTable& best = []() -> const KernelTable& {
    for (const CpuPath path : {CpuPath::avx512, CpuPath::avx2})
      if (const KernelTable* table = kernel_table(path)) return *table;
    return kernels_baseline;
  }();
  return best;
}

ReduceFunction find_reduction(uint32_t dtype, uint32_t op) {
  if (op == TUTTI_AVG || op == op_premul_sum) op = TUTTI_SUM;
  if (dtype >= KernelTable::dtypes || op >= KernelTable::ops) return nullptr;
  return best_kernels().reduce[dtype][op];
}

ReduceFunction find_exact_sum(uint32_t dtype) {
  static_assert(TUTTI_FLOAT64 == TUTTI_FLOAT16 + 3);
  return dtype >= TUTTI_FLOAT16 && dtype <= TUTTI_FLOAT64 ? best_kernels().exact[dtype - TUTTI_FLOAT16] : nullptr;
}

void copy(void* dst, const void* src, uint64_t bytes, bool streaming) {
  if (dst == src || bytes == 0) return;
  if (streaming)
    best_kernels().stream(dst, src, bytes);
  else
    std::memcpy(dst, src, bytes);
}

void copy(void* dst0, bool streaming0, void* dst1, bool streaming1, const void* src, uint64_t bytes) {
  constexpr uint64_t block = 16384;  // stays in the first-level cache between the two writes
  for (uint64_t at = 0; at < bytes; at += block) {
    const uint64_t n = std::min(block, bytes - at);
    const char* from = static_cast<const char*>(src) + at;
    copy(static_cast<char*>(dst0) + at, from, n, streaming0);
    copy(static_cast<char*>(dst1) + at, from, n, streaming1);
  }
}

void reduce_by_copy(const Reduction& r, uint64_t element_bytes) {
  const uint64_t bytes = r.count * element_bytes;
  if (r.ndsts == 2)
    copy(r.dsts[0], r.streaming[0], r.dsts[1], r.streaming[1], r.srcs[0], bytes);
  else
    copy(r.dsts[0], r.srcs[0], bytes, r.streaming[0]);
}

}  // namespace tutti::core
