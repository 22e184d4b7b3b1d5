// SPDX-License-Identifier: Apache-2.0
#include "layers.hpp"

#include <gtest/gtest.h>

#include "split_mix.hpp"

namespace {

Matrix random_matrix(size_t size, uint64_t seed) {
  SplitMix random(seed);
  Matrix made(size);
  for (double& value : made) value = random.symmetric();
  return made;
}

constexpr size_t samples = 5;
const std::vector<int32_t> labels{3, 0, 9, 3, 7};

double loss_of(const std::vector<Dense>& layers, const Matrix& x) {
  Matrix error;
  return softmax_loss(forward(layers, x).back(), labels, error);
}

TEST(Layers, GradientsAreTheSlopesOfTheLoss) {
  std::vector<Dense> layers{{6, 8, true, 1}, {8, 10, false, 2}};
  Matrix x = random_matrix(samples * 6, 3);
  const std::vector<Matrix> activations = forward(layers, x);
  Matrix error;
  softmax_loss(activations.back(), labels, error);
  const Matrix dx = backward(layers, activations, error);
  const double step = 1e-6;
  const auto expect_slope = [&](double& value, double slope) {
    const double before = value;
    value = before + step;
    const double up = loss_of(layers, x);
    value = before - step;
    const double down = loss_of(layers, x);
    value = before;
    EXPECT_NEAR(slope, (up - down) / (2 * step), 1e-6);
  };
  for (Dense& layer : layers)
    for (size_t i = 0; i < layer.weights.size(); ++i) expect_slope(layer.weights[i], layer.gradient[i]);
  for (size_t i = 0; i < x.size(); ++i) expect_slope(x[i], dx[i]);
}

TEST(Layers, OnAGridTheGradientIsTheSameHoweverSamplesAreDealt) {
  constexpr size_t many = 60, inputs = 6;
  Matrix x = random_matrix(many * inputs, 3);
  for (double& value : x) value /= 3;  // random_matrix has few digits: its sums would not round
  const Matrix dy = random_matrix(many * 7, 4);
  const auto gradient_of = [&](size_t parts, double grid) {
    std::vector<double> sum(7 * (inputs + 1));
    for (size_t part = 0; part < parts; ++part) {
      Dense layer(inputs, 7, false, 1);
      layer.grid = grid;
      const size_t first = part_begin(many, part, parts), last = part_begin(many, part + 1, parts);
      const Matrix rows(&x[first * inputs], &x[0] + last * inputs);
      layer.backward(rows, Matrix((last - first) * 7), Matrix(&dy[first * 7], &dy[0] + last * 7));
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += layer.gradient[i];
    }
    return sum;
  };
  EXPECT_EQ(gradient_of(1, 0x1p-40), gradient_of(4, 0x1p-40));
  EXPECT_NE(gradient_of(1, 0), gradient_of(4, 0));
  const auto whole = gradient_of(1, 0), on_grid = gradient_of(1, 0x1p-40);
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(on_grid[i], whole[i], many * 0x1p-41);
}

TEST(Layers, ColumnsAndRowsAddUp) {
  const Dense first(6, 7, true, 1), second(7, 10, false, 2);
  const Matrix x = random_matrix(samples * 6, 3);
  const Matrix whole = second.forward(first.forward(x));
  Matrix sum(whole.size());
  for (size_t part = 0; part < 3; ++part) {
    const size_t begin = part_begin(7, part, 3), size = part_begin(7, part + 1, 3) - begin;
    const Matrix y = second.rows(begin, size, part == 1).forward(first.columns(begin, size).forward(x));
    for (size_t i = 0; i < y.size(); ++i) sum[i] += y[i];
  }
  for (size_t i = 0; i < sum.size(); ++i) EXPECT_NEAR(sum[i], whole[i], 1e-12);
}

}  // namespace
