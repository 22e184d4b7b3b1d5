// SPDX-License-Identifier: Apache-2.0
//
// The backward pass of a data-parallel step. The gradient travels in three buckets: the output layer's, which is
// there first, and two halves of the hidden layer's. Each is all-reduced, in place and asynchronously, as soon as it is
// complete, while the next is computed; between blocks of rows the requests are tested, which is what moves them along:
// no second thread is needed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <tutti/tutti.hpp>

#include "device_gradient.hpp"
#include "mlp.hpp"

class GradientBuckets {
 public:
  // `world` must outlive the buckets. `device`: where the ranks' sums are made, "host" or a device's name.
  GradientBuckets(const tutti::Communicator& world, const std::string& device);

  // The backward pass of mlp's last forward. Collective. Afterwards gradient() is the sum over all ranks, the same bits
  // on every rank.
  void backward(Mlp& mlp);
  std::span<const double> gradient() const { return values(); }

  // So many buckets were issued so far, and so many of them were already complete when the backward pass had computed
  // its last row. The last bucket of a step is issued only then, so it is never among these.
  uint64_t issued() const { return issued_; }
  uint64_t early() const { return early_; }

 private:
  static constexpr size_t buckets = 3;
  std::span<double> values() const { return device_ ? device_->host() : gradient_->span(); }
  void issue(std::span<double> bucket);
  size_t test();

  const tutti::Communicator& world_;
  std::unique_ptr<tutti::Buffer<double>> gradient_;  // as Mlp::parameters; one of the two
  std::unique_ptr<DeviceGradient> device_;
  std::array<tutti::Request, buckets> pending_;
  size_t pending_count_ = 0;
  uint64_t issued_ = 0;
  uint64_t early_ = 0;
};
