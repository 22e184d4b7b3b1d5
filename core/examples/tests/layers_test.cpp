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
