// SPDX-License-Identifier: Apache-2.0
//
// The backward pass of a data-parallel step. The gradient is three tensors: the output layer's, which is there first,
// and two halves of the hidden layer's. tutti::Gradients sums each over the ranks while the next is computed; between
// blocks of rows the pass tests it, which is what moves the sums along: no second thread is needed.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <tutti/gradients.hpp>
#include <vector>

#include "device_gradient.hpp"
#include "mlp.hpp"

class BackwardPass {
 public:
  // Collective. `device`: where the ranks' sums are made, "host" or a device's name. `wire`: "plain", or the format in
  // which the gradient travels, as float32 that is rounded.
  BackwardPass(const tutti::Communicator& world, const std::string& device, const std::string& wire);

  // The backward pass of mlp's last forward. Collective. Afterwards gradient() is the sum over all ranks, the same bits
  // on every rank.
  void run(Mlp& mlp);
  std::span<const double> gradient() const { return values(); }
  // How many buckets were started so far, and how many of them were complete when their backward pass ended.
  tutti_gradients_facts facts() const { return buckets_->facts(); }

 private:
  std::span<double> values() const { return device_ ? device_->host() : host_->span(); }
  void ready(size_t tensor);

  std::unique_ptr<tutti::Buffer<double>> host_;  // as Mlp::parameters; one of the two
  std::unique_ptr<DeviceGradient> device_;
  std::vector<float> rounded_;  // where the wire is not plain
  std::unique_ptr<tutti::Gradients> buckets_;
};
