// SPDX-License-Identifier: Apache-2.0
#include "mlp.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "split_mix.hpp"

void Mlp::initialise(uint64_t seed) {
  SplitMix random(seed);
  const auto fill = [&](std::span<double> matrix, size_t layer_inputs, size_t width) {
    const double scale = std::sqrt(6.0 / static_cast<double>(layer_inputs));
    for (double& w : matrix.first(layer_inputs * width)) w = scale * random.symmetric();
    std::ranges::fill(matrix.subspan(layer_inputs * width), 0.0);
  };
  fill(parameters().first(hidden_parameters), inputs, hidden);
  fill(parameters().subspan(hidden_parameters), hidden, classes);
}

void Mlp::hidden_layer(const float* pixels, double* activation) const {
  std::copy_n(parameters_.data() + inputs * hidden, hidden, activation);
  for (size_t k = 0; k < inputs; ++k) {
    const double* row = parameters_.data() + k * hidden;
    for (size_t j = 0; j < hidden; ++j) activation[j] += pixels[k] * row[j];
  }
  for (size_t j = 0; j < hidden; ++j) activation[j] = std::max(activation[j], 0.0);
}

void Mlp::output_layer(const double* activation, double* logits) const {
  const double* matrix = output_matrix().data();
  std::copy_n(matrix + hidden * classes, classes, logits);
  for (size_t j = 0; j < hidden; ++j)
    for (size_t c = 0; c < classes; ++c) logits[c] += activation[j] * matrix[j * classes + c];
}

double Mlp::forward(const Batch& batch) {
  batch_ = batch;
  activations_.resize(batch.rows() * hidden);
  output_error_.resize(batch.rows() * classes);
  double loss = 0;
  for (size_t i = 0; i < batch.rows(); ++i) {
    double* error = output_error_.data() + i * classes;
    hidden_layer(batch.pixels.data() + i * inputs, activations_.data() + i * hidden);
    output_layer(activations_.data() + i * hidden, error);
    const auto label = static_cast<size_t>(batch.labels[i]);
    const double largest = *std::max_element(error, error + classes);  // so that exp cannot overflow
    std::array<double, classes> power;
    double sum = 0;
    for (size_t c = 0; c < classes; ++c) sum += power[c] = std::exp(error[c] - largest);
    const double weight = batch.weights[i];
    loss += weight * (std::log(sum) - (error[label] - largest));
    for (size_t c = 0; c < classes; ++c) error[c] = weight * (power[c] / sum - (c == label ? 1.0 : 0.0));
  }
  return loss;
}

void Mlp::output_gradient(std::span<double> gradient) {
  std::array<double, classes> sum;
  for (size_t j = 0; j < output_rows; ++j) {
    sum.fill(0);
    for (size_t i = 0; i < batch_.rows(); ++i) {
      const double input = j < hidden ? activations_[i * hidden + j] : 1.0;
      for (size_t c = 0; c < classes; ++c) sum[c] += input * output_error_[i * classes + c];
    }
    std::ranges::copy(sum, gradient.begin() + static_cast<std::ptrdiff_t>(j * classes));
  }
  // Back through the output matrix and the ReLU, for hidden_gradient.
  const double* matrix = output_matrix().data();
  hidden_error_.resize(batch_.rows() * hidden);
  for (size_t i = 0; i < batch_.rows(); ++i)
    for (size_t j = 0; j < hidden; ++j) {
      double error = 0;
      for (size_t c = 0; c < classes; ++c) error += output_error_[i * classes + c] * matrix[j * classes + c];
      hidden_error_[i * hidden + j] = activations_[i * hidden + j] > 0 ? error : 0.0;
    }
}

void Mlp::hidden_gradient(size_t first, size_t last, std::span<double> gradient) const {
  std::array<double, hidden> sum;
  for (size_t k = first; k < last; ++k) {
    sum.fill(0);
    for (size_t i = 0; i < batch_.rows(); ++i) {
      const double input = k < inputs ? batch_.pixels[i * inputs + k] : 1.0;
      const double* error = hidden_error_.data() + i * hidden;
      for (size_t j = 0; j < hidden; ++j) sum[j] += input * error[j];
    }
    std::ranges::copy(sum, gradient.begin() + static_cast<std::ptrdiff_t>((k - first) * hidden));
  }
}

void Mlp::update(std::span<const double> gradient, double factor) {
  for (size_t i = 0; i < parameter_count; ++i) parameters_[i] -= factor * gradient[i];
}

void Mlp::predict(std::span<const float> pixels, std::span<int32_t> labels) const {
  std::array<double, hidden> activation;
  std::array<double, classes> logits;
  for (size_t i = 0; i < labels.size(); ++i) {
    hidden_layer(pixels.data() + i * inputs, activation.data());
    output_layer(activation.data(), logits.data());
    labels[i] = static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
  }
}
