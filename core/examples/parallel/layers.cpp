// SPDX-License-Identifier: Apache-2.0
#include "layers.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "digits.hpp"
#include "split_mix.hpp"

namespace {

double on_grid(double value, double grid) { return grid > 0 ? std::nearbyint(value / grid) * grid : value; }

}  // namespace

Dense::Dense(size_t inputs, size_t outputs, bool relu, uint64_t seed)
    : inputs(inputs), outputs(outputs), relu(relu), weights((inputs + 1) * outputs), gradient(weights.size()) {
  SplitMix random(seed);
  const double scale = std::sqrt(6.0 / static_cast<double>(inputs));
  for (double& w : std::span(weights).first(inputs * outputs)) w = scale * random.symmetric();
}

Matrix Dense::forward(const Matrix& x) const {
  const size_t rows = x.size() / inputs;
  Matrix y(rows * outputs);
  for (size_t i = 0; i < rows; ++i) {
    double* const out = &y[i * outputs];
    std::copy_n(&weights[inputs * outputs], outputs, out);
    for (size_t k = 0; k < inputs; ++k)
      for (size_t j = 0; j < outputs; ++j) out[j] += x[i * inputs + k] * weights[k * outputs + j];
  }
  if (relu)
    for (double& value : y) value = std::max(value, 0.0);
  return y;
}

Matrix Dense::backward(const Matrix& x, const Matrix& y, Matrix dy) {
  const size_t rows = x.size() / inputs;
  if (relu)
    for (size_t i = 0; i < y.size(); ++i)
      if (y[i] <= 0) dy[i] = 0;
  Matrix dx(x.size());
  for (size_t i = 0; i < rows; ++i) {
    const double* const error = &dy[i * outputs];
    for (size_t k = 0; k < inputs; ++k)
      for (size_t j = 0; j < outputs; ++j) {
        gradient[k * outputs + j] += on_grid(x[i * inputs + k] * error[j], grid);
        dx[i * inputs + k] += error[j] * weights[k * outputs + j];
      }
    if (has_bias)
      for (size_t j = 0; j < outputs; ++j) gradient[inputs * outputs + j] += on_grid(error[j], grid);
  }
  return dx;
}

void Dense::update(double rate) {
  for (size_t i = 0; i < weights.size(); ++i) weights[i] -= rate * gradient[i];
  std::ranges::fill(gradient, 0.0);
}

Dense Dense::columns(size_t first, size_t count) const {
  Dense part(inputs, count, relu, 0);
  part.grid = grid;
  for (size_t k = 0; k <= inputs; ++k)
    for (size_t j = 0; j < count; ++j) part.weights[k * count + j] = weights[k * outputs + first + j];
  return part;
}

Dense Dense::rows(size_t first, size_t count, bool with_bias) const {
  Dense part(count, outputs, relu, 0);
  part.grid = grid;
  std::copy_n(&weights[first * outputs], count * outputs, part.weights.data());
  if (with_bias) std::copy_n(&weights[inputs * outputs], outputs, &part.weights[count * outputs]);
  part.has_bias = with_bias;
  return part;
}

std::vector<Matrix> forward(std::span<const Dense> layers, Matrix x) {
  std::vector<Matrix> activations{std::move(x)};
  for (const Dense& layer : layers) activations.push_back(layer.forward(activations.back()));
  return activations;
}

Matrix backward(std::span<Dense> layers, const std::vector<Matrix>& activations, Matrix dy) {
  for (size_t i = layers.size(); i-- > 0;) dy = layers[i].backward(activations[i], activations[i + 1], std::move(dy));
  return dy;
}

void update(std::span<Dense> layers, double rate) {
  for (Dense& layer : layers) layer.update(rate);
}

double softmax_loss(const Matrix& logits, std::span<const int32_t> labels, Matrix& error) {
  constexpr size_t classes = digits::classes;
  error = logits;
  double loss = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    const std::span<double> row = std::span(error).subspan(i * classes, classes);
    const double largest = *std::ranges::max_element(row);  // so that exp cannot overflow
    const auto label = static_cast<size_t>(labels[i]);
    const double right = row[label] - largest;
    double sum = 0;
    for (double& value : row) sum += value = std::exp(value - largest);
    loss += std::log(sum) - right;
    for (double& value : row) value /= sum;
    row[label] -= 1;
  }
  return loss;
}
