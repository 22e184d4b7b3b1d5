// SPDX-License-Identifier: Apache-2.0
#include "mlp.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "digits.hpp"
#include "split_mix.hpp"

namespace {

struct Rows {
  std::vector<float> pixels;
  std::vector<int32_t> labels;
  std::vector<float> weights;
  Batch part(size_t first, size_t last) const {
    return {std::span(pixels).subspan(first * Mlp::inputs, (last - first) * Mlp::inputs),
            std::span(labels).subspan(first, last - first), std::span(weights).subspan(first, last - first)};
  }
  Batch all() const { return part(0, labels.size()); }
};

Rows random_rows(size_t n) {
  SplitMix random(7);
  Rows rows;
  for (size_t i = 0; i < n * Mlp::inputs; ++i) rows.pixels.push_back(0.5f + 0.5f * random.symmetric());
  for (size_t i = 0; i < n; ++i) rows.labels.push_back(static_cast<int32_t>(random.below(Mlp::classes)));
  rows.weights.assign(n, 1.0f);
  return rows;
}

// In blocks of `block` rows of the hidden layer.
std::vector<double> gradient_of(Mlp& mlp, const Batch& batch, size_t block = Mlp::hidden_rows) {
  std::vector<double> gradient(Mlp::parameter_count, std::nan(""));
  mlp.forward(batch);
  mlp.output_gradient(std::span(gradient).subspan(Mlp::hidden_parameters));
  for (size_t row = 0; row < Mlp::hidden_rows; row += block) {
    const size_t last = std::min(row + block, Mlp::hidden_rows);
    mlp.hidden_gradient(row, last, std::span(gradient).subspan(row * Mlp::hidden, (last - row) * Mlp::hidden));
  }
  return gradient;
}

void expect_near(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << "parameter " << i;
}

TEST(Mlp, GradientIsTheSlopeOfTheLoss) {
  const Rows rows = random_rows(5);
  Mlp mlp;
  mlp.initialise(3);
  const std::vector<double> gradient = gradient_of(mlp, rows.all());
  SplitMix random(11);
  const double step = 1e-6;
  for (int sample = 0; sample < 600; ++sample) {
    // Half of them in the output layer, which is the smaller one; the biases come first.
    const size_t i = sample < 10    ? Mlp::parameter_count - 1 - static_cast<size_t>(sample)
                     : sample < 100 ? Mlp::hidden_parameters - 1 - static_cast<size_t>(sample)
                     : sample < 350 ? Mlp::hidden_parameters + random.below(Mlp::output_parameters)
                                    : random.below(Mlp::hidden_parameters);
    const double value = mlp.parameters()[i];
    mlp.parameters()[i] = value + step;
    const double up = mlp.forward(rows.all());
    mlp.parameters()[i] = value - step;
    const double down = mlp.forward(rows.all());
    mlp.parameters()[i] = value;
    EXPECT_NEAR(gradient[i], (up - down) / (2 * step), 1e-6) << "parameter " << i;
  }
}

TEST(Mlp, PartsAddUpAndBlocksDoNotMatter) {
  const Rows rows = random_rows(9);
  Mlp mlp;
  mlp.initialise(3);
  const std::vector<double> whole = gradient_of(mlp, rows.all());
  EXPECT_EQ(whole, gradient_of(mlp, rows.all(), 4));
  std::vector<double> sum = gradient_of(mlp, rows.part(0, 2));
  for (const auto& [first, last] : {std::pair<size_t, size_t>{2, 2}, {2, 6}, {6, 9}}) {
    const std::vector<double> part = gradient_of(mlp, rows.part(first, last));
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  expect_near(whole, sum, 1e-12);
}

TEST(Mlp, RowsOfWeightZeroCountForNothing) {
  Rows rows = random_rows(4);
  Mlp mlp;
  mlp.initialise(3);
  const double loss = mlp.forward(rows.part(0, 3));
  const std::vector<double> gradient = gradient_of(mlp, rows.part(0, 3));
  rows.weights[3] = 0;
  EXPECT_EQ(mlp.forward(rows.all()), loss);
  expect_near(gradient_of(mlp, rows.all()), gradient, 0);
}

TEST(Mlp, LargeLogitsStayFinite) {
  const Rows rows = random_rows(3);
  Mlp mlp;
  mlp.initialise(3);
  for (double& w : mlp.parameters()) w *= 1000;
  EXPECT_TRUE(std::isfinite(mlp.forward(rows.all())));
  for (const double g : gradient_of(mlp, rows.all())) ASSERT_TRUE(std::isfinite(g));
}

// Trains on the digits as `nranks` ranks would, one after another; returns the last epoch's mean loss.
double train(const digits::Samples& samples, uint32_t nranks, int epochs) {
  const size_t group = 64;
  const digits::Dealt dealt = digits::deal(samples, group, nranks);
  const Rows rows{dealt.pixels, dealt.labels, dealt.weights};
  Mlp mlp;
  mlp.initialise(1);
  double loss = 0;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    loss = 0;
    for (size_t step = 0; step < dealt.groups; ++step) {
      std::vector<double> sum(Mlp::parameter_count);
      for (uint32_t rank = 0; rank < nranks; ++rank) {
        const size_t row = (rank * dealt.groups + step) * dealt.part;
        loss += mlp.forward(rows.part(row, row + dealt.part));
        const std::vector<double> part = gradient_of(mlp, rows.part(row, row + dealt.part));
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
      }
      mlp.update(sum, 0.2 / static_cast<double>(std::min(group, samples.size() - step * group)));
    }
  }
  return loss / static_cast<double>(samples.size());
}

TEST(Mlp, TrainingDoesNotDependOnTheNumberOfRanks) {
  digits::Samples samples = digits::read(DIGITS_FILE);
  digits::shuffle(samples, 1);
  digits::hold_out(samples, samples.size() - 650);  // so that the last batch is a short one
  const double one = train(samples, 1, 3);
  EXPECT_LT(one, 1.5);  // chance is 2.3
  for (const uint32_t nranks : {2u, 3u, 7u})
    EXPECT_NEAR(train(samples, nranks, 3) / one, 1, 1e-9) << nranks << " ranks";
}

}  // namespace
