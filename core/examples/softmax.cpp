// SPDX-License-Identifier: Apache-2.0
//
// The softmax of a vector that is spread over the ranks: all_reduce max (so that exp cannot overflow), local exp,
// all_reduce sum, divide. No rank ever holds the whole vector, except here to check the result.
#include <algorithm>
#include <cmath>

#include "ranks.hpp"

// The reference: the softmax of a whole vector, in double.
static std::vector<double> softmax_of(const std::vector<float>& values) {
  const double largest = std::ranges::max(values);
  double sum = 0;
  std::vector<double> result;
  for (const float value : values) sum += result.emplace_back(std::exp(value - largest));
  for (double& value : result) value /= sum;
  return result;
}

static void distributed_softmax(const tutti::Communicator& world) {
  const size_t length = 5;
  std::vector<float> mine;  // some values are beyond what exp can take in float
  for (size_t i = 0; i < length; ++i)
    mine.push_back(90.0f + 0.75f * static_cast<float>((world.rank() * 7 + i * 3) % 11));

  std::vector<float> largest{std::ranges::max(mine)};
  world.all_reduce(largest, largest, tutti::Op::max);
  std::vector<float> result;
  for (const float value : mine) result.push_back(std::exp(value - largest[0]));
  std::vector<float> sum{0};
  for (const float value : result) sum[0] += value;
  world.all_reduce(sum, sum, tutti::Op::sum);
  for (float& value : result) value /= sum[0];

  std::vector<float> whole(length * world.nranks());
  world.all_gather(mine, whole);
  const std::vector<double> expected = softmax_of(whole);
  double worst = 0;
  for (size_t i = 0; i < length; ++i)
    worst = std::max(worst, std::abs(result[i] - expected[world.rank() * length + i]));

  ranks::print_in_order(world, "rank " + std::to_string(world.rank()) + ": mine " + ranks::show(mine) + " | softmax " +
                                   ranks::show(result) + "\n");
  ranks::require(worst <= 1e-6, "differs from the softmax of the concatenation by " + std::to_string(worst));
}

int main(int argc, char** argv) {
  return ranks::run(argc, argv, "softmax", "The softmax of a vector spread over the ranks", distributed_softmax);
}
