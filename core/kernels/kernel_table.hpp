// SPDX-License-Identifier: Apache-2.0
//
// The kernels of one instruction set. Each is compiled from kernel_loops.hpp in a file of its own with its own flags.
#pragma once

#include "kernels/kernels.hpp"

namespace tutti::core {

enum class CpuPath { baseline, avx2, avx512 };

// float32 to codes of one wire format and back (codec.hpp).
struct CodeKernels {
  static constexpr int block_numbers = 32, block_bytes = block_numbers + 1;
  void (*encode)(const float* from, uint64_t count, unsigned char* to);
  void (*decode)(const unsigned char* from, uint64_t count, float* to);
};

struct KernelTable {
  static constexpr uint32_t dtypes = TUTTI_FLOAT64_INT64 + 1, ops = TUTTI_MAXLOC + 1;
  ReduceFunction reduce[dtypes][ops];                          // [dtype][op]; nullptr: not defined
  ReduceFunction exact[4];                                     // sums of FLOAT16, BFLOAT16, FLOAT32, FLOAT64
  void (*stream)(void* dst, const void* src, uint64_t bytes);  // copy with streaming stores, fenced
  CodeKernels float16_codes, bfloat16_codes, block_codes;
  ReduceFunction sum_blocks;
};

// nullptr where this build or this CPU lacks the path.
const KernelTable* kernel_table(CpuPath path);
// The best path of this CPU; chosen once.
const KernelTable& best_kernels();

// A Reduction of one source without divisor: copies count * element_bytes bytes.
void reduce_by_copy(const Reduction& reduction, uint64_t element_bytes);

extern const KernelTable kernels_baseline;
extern const KernelTable kernels_avx2;
extern const KernelTable kernels_avx512;

}  // namespace tutti::core
