// SPDX-License-Identifier: Apache-2.0
#include "gradient_buckets.hpp"

#include <algorithm>
#include <thread>

namespace {
// Rows of the hidden layer's gradient between two looks at the requests.
constexpr size_t rows_per_block = 4;
// Where the hidden layer's buckets begin and end.
constexpr std::array<size_t, 3> hidden_cuts{0, Mlp::hidden_rows / 2, Mlp::hidden_rows};
}  // namespace

GradientBuckets::GradientBuckets(const tutti::Communicator& world, const std::string& device) : world_(world) {
  if (device == "host")
    gradient_ = std::make_unique<tutti::Buffer<double>>(Mlp::parameter_count);
  else
    device_ = std::make_unique<DeviceGradient>(world, device, Mlp::parameter_count);
}

void GradientBuckets::issue(std::span<double> bucket) {
  pending_[pending_count_++] =
      device_ ? device_->all_reduce(bucket) : world_.async().all_reduce<double>(bucket, bucket, tutti::Op::sum);
  ++issued_;
}

// Moves the requests along; how many are complete.
size_t GradientBuckets::test() {
  return static_cast<size_t>(
      std::count_if(pending_.begin(), pending_.begin() + pending_count_, [](tutti::Request& r) { return r.test(); }));
}

void GradientBuckets::backward(Mlp& mlp) {
  const std::span<double> gradient = values();
  const std::span<double> output = gradient.subspan(Mlp::hidden_parameters);
  mlp.output_gradient(output);
  issue(output);
  size_t complete = 0;
  for (size_t bucket = 0; bucket + 1 < hidden_cuts.size(); ++bucket) {
    const size_t end = hidden_cuts[bucket + 1];
    for (size_t row = hidden_cuts[bucket]; row < end; row += rows_per_block) {
      const size_t last = std::min(row + rows_per_block, end);
      mlp.hidden_gradient(row, last, gradient.subspan(row * Mlp::hidden, (last - row) * Mlp::hidden));
      complete = test();
      // Where ranks share cores, the others may be waiting for this core to bring their part.
      if (complete < pending_count_) std::this_thread::yield();
    }
    if (end == Mlp::hidden_rows) early_ += complete;
    issue(gradient.subspan(hidden_cuts[bucket] * Mlp::hidden, (end - hidden_cuts[bucket]) * Mlp::hidden));
  }
  for (tutti::Request& request : pending_) request.wait();
  if (device_) device_->finish();
  pending_count_ = 0;
}
