// SPDX-License-Identifier: Apache-2.0
//
// A small network, layer by layer, that knows nothing of ranks. Matrices are row by row, one row per sample. Values are
// double, so that a sum in another order changes a loss in its last digits only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

using Matrix = std::vector<double>;

// y = x W + b, then maybe ReLU.
struct Dense {
  // Uniform in +-sqrt(6 / inputs), biases 0: the same for the same seed everywhere.
  Dense(size_t inputs, size_t outputs, bool relu, uint64_t seed);

  size_t inputs, outputs;
  bool relu;
  bool has_bias = true;
  // Not 0: what each sample adds to the gradient is rounded to a multiple of it, a power of two. Then sums of up to
  // 2^53 multiples do not round, and the gradient is the same however the samples are dealt to ranks.
  double grid = 0;
  std::vector<double> weights;   // a row of `outputs` for each input, and one for the bias
  std::vector<double> gradient;  // likewise: the sum over the samples of all calls of backward since the last update

  Matrix forward(const Matrix& x) const;
  // d loss / d x, from d loss / d y; x and y are those of the forward.
  Matrix backward(const Matrix& x, const Matrix& y, Matrix dy);
  // weights -= rate * gradient, and the gradient is 0 again.
  void update(double rate);

  // The layer that computes these outputs alone, or takes these inputs alone (with or without the bias).
  Dense columns(size_t first, size_t count) const;
  Dense rows(size_t first, size_t count, bool with_bias) const;
};

// x and the outputs of all layers; and d loss / d x from d loss / d (last output).
std::vector<Matrix> forward(std::span<const Dense> layers, Matrix x);
Matrix backward(std::span<Dense> layers, const std::vector<Matrix>& activations, Matrix dy);
void update(std::span<Dense> layers, double rate);

// The sum of the samples' cross-entropies, and d of it / d logits.
double softmax_loss(const Matrix& logits, std::span<const int32_t> labels, Matrix& error);

// Part `i` of `n` of `count` things, as evenly as possible.
inline size_t part_begin(size_t count, size_t i, size_t n) { return count * i / n; }
