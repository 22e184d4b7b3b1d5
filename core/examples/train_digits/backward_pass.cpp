// SPDX-License-Identifier: Apache-2.0
#include "backward_pass.hpp"

#include <algorithm>
#include <array>
#include <thread>

namespace {

// Rows of the hidden layer's gradient between two looks at the requests.
constexpr size_t rows_per_block = 4;
// Where the hidden layer's tensors begin and end.
constexpr std::array<size_t, 3> hidden_cuts{0, Mlp::hidden_rows / 2, Mlp::hidden_rows};

struct Part {
  size_t first, size;  // of Mlp::parameters
};
// In the order in which they become ready.
constexpr std::array<Part, 3> parts{
    Part{Mlp::hidden_parameters, Mlp::output_parameters}, Part{0, hidden_cuts[1] * Mlp::hidden},
    Part{hidden_cuts[1] * Mlp::hidden, (hidden_cuts[2] - hidden_cuts[1]) * Mlp::hidden}};

tutti::Wire wire_named(const std::string& name) {
  return name == "float16"    ? tutti::Wire::float16
         : name == "bfloat16" ? tutti::Wire::bfloat16
         : name == "float8"   ? tutti::Wire::float8
                              : tutti::Wire::plain;
}

}  // namespace

BackwardPass::BackwardPass(const tutti::Communicator& world, const std::string& device, const std::string& wire) {
  if (device == "host")
    host_ = std::make_unique<tutti::Buffer<double>>(Mlp::parameter_count);
  else
    device_ = std::make_unique<DeviceGradient>(world, device, Mlp::parameter_count);
  const bool rounds = wire_named(wire) != tutti::Wire::plain;
  if (rounds) rounded_.resize(Mlp::parameter_count);
  std::vector<tutti_tensor> tensors;
  for (const Part& part : parts)
    tensors.push_back(rounds ? tutti::tensor<float>(part.size) : tutti::tensor<double>(part.size));
  // Each tensor is a bucket of its own: together they are too small for the default sizes.
  buckets_ =
      std::make_unique<tutti::Gradients>(world, tensors,
                                         tutti::GradientSettings{.op = tutti::Op::sum,
                                                                 .wire = wire_named(wire),
                                                                 .feedback = rounds,
                                                                 .bucket_bytes = 1,
                                                                 .first_bucket_bytes = 1,
                                                                 .device = device_ != nullptr,
                                                                 .stream = device_ ? device_->stream() : nullptr});
}

void BackwardPass::ready(size_t tensor) {
  const std::span<double> part = values().subspan(parts[tensor].first, parts[tensor].size);
  if (device_) {
    buckets_->ready(tensor, device_->send(part));
  } else if (rounded_.empty()) {
    buckets_->ready(tensor, part);
  } else {
    const std::span<float> rounded = std::span(rounded_).subspan(parts[tensor].first, part.size());
    std::ranges::transform(part, rounded.begin(), [](double x) { return static_cast<float>(x); });
    buckets_->ready(tensor, rounded);
  }
}

void BackwardPass::run(Mlp& mlp) {
  mlp.output_gradient(values().subspan(Mlp::hidden_parameters));
  ready(0);
  for (size_t half = 0; half + 1 < hidden_cuts.size(); ++half) {
    const size_t end = hidden_cuts[half + 1];
    for (size_t row = hidden_cuts[half]; row < end; row += rows_per_block) {
      const size_t last = std::min(row + rows_per_block, end);
      mlp.hidden_gradient(row, last, values().subspan(row * Mlp::hidden, (last - row) * Mlp::hidden));
      // Where ranks share cores, the others may be waiting for this core to bring their part.
      if (!buckets_->test()) std::this_thread::yield();
    }
    ready(half + 1);
  }
  buckets_->wait();
  if (device_) device_->fetch();
  if (!rounded_.empty()) std::ranges::copy(rounded_, values().begin());
}
