// SPDX-License-Identifier: Apache-2.0
//
// A multi-layer perceptron 64-128-10 with ReLU and softmax cross-entropy. It knows nothing of ranks: it gives the SUM
// of its samples' gradients, which adds up over the parts of a batch. The gradient comes in pieces, the output layer's
// first, so that a caller can send one piece on its way while it asks for the next.
//
// Values are double. How a batch is cut into parts changes a gradient by its last bits, and a ReLU turns last bits into
// a visible difference when they move a sample across its kink: in float this happens about once in a training of
// millions of activations (the losses of 1 and 2 ranks then differ by up to 5e-4); in double it does not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

// Rows of samples. All three agree in length: 64 pixels, one label (0..9) and one weight per row. A row of weight 0
// counts for nothing.
struct Batch {
  std::span<const float> pixels;
  std::span<const int32_t> labels;
  std::span<const float> weights;
  size_t rows() const { return labels.size(); }
};

class Mlp {
 public:
  static constexpr size_t inputs = 64;
  static constexpr size_t hidden = 128;
  static constexpr size_t classes = 10;
  // A layer is a matrix with a row per input; the last row, whose input is the constant 1, is the bias.
  static constexpr size_t hidden_rows = inputs + 1;
  static constexpr size_t output_rows = hidden + 1;
  static constexpr size_t hidden_parameters = hidden_rows * hidden;
  static constexpr size_t output_parameters = output_rows * classes;
  static constexpr size_t parameter_count = hidden_parameters + output_parameters;

  // All parameters are 0.
  Mlp() : parameters_(parameter_count) {}

  // The hidden layer's matrix, then the output layer's, row by row.
  std::span<double> parameters() { return parameters_; }
  // Uniform in +-sqrt(6 / inputs of the layer) (He et al., Delving Deep into Rectifiers, 2015), biases 0.
  void initialise(uint64_t seed);

  // The weighted sum of the samples' losses. The gradient functions below speak of this batch, whose data must live
  // until they have been called.
  double forward(const Batch& batch);
  // Writes output_parameters values. Called before hidden_gradient.
  void output_gradient(std::span<double> gradient);
  // Writes rows [first, last) of the hidden layer's gradient, (last - first) * hidden values.
  void hidden_gradient(size_t first, size_t last, std::span<double> gradient) const;

  // parameters -= factor * gradient.
  void update(std::span<const double> gradient, double factor);
  // The most probable class of each row of `pixels`.
  void predict(std::span<const float> pixels, std::span<int32_t> labels) const;

 private:
  // The hidden and the output layer's values for one sample.
  void hidden_layer(const float* pixels, double* activation) const;
  void output_layer(const double* activation, double* logits) const;
  std::span<const double> output_matrix() const { return std::span(parameters_).subspan(hidden_parameters); }

  std::vector<double> parameters_;
  Batch batch_;
  std::vector<double> activations_;   // rows * hidden
  std::vector<double> output_error_;  // rows * classes: d loss / d logit
  std::vector<double> hidden_error_;  // rows * hidden: d loss / d sum before ReLU
};
