// SPDX-License-Identifier: Apache-2.0
//
// The mean over ranks, element by element, in two ways that give the same bits: all_reduce sum and a division, and
// all_reduce avg.
#include "ranks.hpp"

static void distributed_mean(const tutti::Communicator& world) {
  const auto rank = static_cast<float>(world.rank());
  const std::vector<float> mine{rank + 1, 10 * rank, 0.5f * rank, 100 - rank};

  std::vector<float> mean(mine.size());
  world.all_reduce(mine, mean, tutti::Op::sum);
  for (float& value : mean) value /= static_cast<float>(world.nranks());

  std::vector<float> average(mine.size());
  world.all_reduce(mine, average, tutti::Op::avg);

  ranks::print_in_order(world, "rank " + std::to_string(world.rank()) + ": mine " + ranks::show(mine) + " | sum / n " +
                                   ranks::show(mean) + " | avg " + ranks::show(average) + "\n");
  const float middle = static_cast<float>(world.nranks() - 1) / 2;  // of the ranks 0 ... n-1
  ranks::require(mean == average, "sum / n and avg differ: " + ranks::show(mean) + " and " + ranks::show(average));
  ranks::require(average == std::vector<float>{middle + 1, 10 * middle, 0.5f * middle, 100 - middle},
                 "the mean is wrong: " + ranks::show(average));
}

int main(int argc, char** argv) {
  return ranks::run(argc, argv, "distributed_mean", "The mean over ranks: sum and divide, and the operator avg",
                    distributed_mean);
}
