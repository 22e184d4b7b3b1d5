// SPDX-License-Identifier: Apache-2.0
//
// Which rank holds the largest value? all_reduce max gives the value to everyone; all_gather of each rank's own largest
// tells who has it (the lowest rank, if several do). The same answer without the all_gather: all_reduce min over the
// ranks that hold it.
#include <algorithm>

#include "ranks.hpp"

static void arg_max(const tutti::Communicator& world) {
  const uint32_t rank = world.rank(), n = world.nranks();
  // A few values per rank; the largest is on rank n / 2, and again on the last rank.
  std::vector<float> mine{static_cast<float>(rank), 3.5f, -7};
  if (rank == n / 2 || rank == n - 1) mine[1] = 1000;

  const std::vector<float> my_largest{std::ranges::max(mine)};
  std::vector<float> largest(1);
  world.all_reduce(my_largest, largest, tutti::Op::max);

  std::vector<float> largest_of_rank(n);
  world.all_gather(my_largest, largest_of_rank);
  const auto holder = static_cast<uint32_t>(std::ranges::find(largest_of_rank, largest[0]) - largest_of_rank.begin());

  std::vector<uint32_t> lowest{my_largest == largest ? rank : n};
  world.all_reduce(lowest, lowest, tutti::Op::min);  // in place

  ranks::print_in_order(world, "rank " + std::to_string(rank) + ": mine " + ranks::show(mine) + " | largest " +
                                   ranks::show(largest) + " is on rank " + std::to_string(holder) + "\n");
  ranks::require(largest[0] == 1000, "the largest value should be 1000, not " + ranks::show(largest));
  ranks::require(holder == n / 2 && lowest[0] == holder,
                 "rank " + std::to_string(n / 2) + " holds the largest value; all_gather found rank " +
                     std::to_string(holder) + ", all_reduce min rank " + std::to_string(lowest[0]));
}

int main(int argc, char** argv) {
  return ranks::run(argc, argv, "arg_max", "Which rank holds the largest value", arg_max);
}
