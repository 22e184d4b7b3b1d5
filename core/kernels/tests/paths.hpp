// SPDX-License-Identifier: Apache-2.0
//
// The kernels of each instruction set that this processor has.
#pragma once

#include <utility>
#include <vector>

#include "kernels/kernel_table.hpp"

namespace tutti::core {

struct Path {
  const char* name;
  const KernelTable* table;
};
inline std::vector<Path> paths() {
  std::vector<Path> found;
  for (const auto& [name, path] :
       {std::pair{"baseline", CpuPath::baseline}, {"avx2", CpuPath::avx2}, {"avx512", CpuPath::avx512}})
    if (const KernelTable* table = kernel_table(path)) found.push_back({name, table});
  return found;
}

}  // namespace tutti::core
