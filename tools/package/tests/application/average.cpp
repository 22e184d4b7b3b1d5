// SPDX-License-Identifier: Apache-2.0
//
// Ranks 0 .. n-1 sum their numbers; rank 0 prints "n ranks, sum S".
#include <array>
#include <cstdio>
#include <tutti/tutti.hpp>

int main() {
  tutti::Communicator world;
  std::array<int64_t, 1> sum{static_cast<int64_t>(world.rank())};
  world.all_reduce(sum, sum, tutti::Op::sum);
  if (world.rank() == 0) std::printf("%u ranks, sum %lld\n", world.nranks(), static_cast<long long>(sum[0]));
}
