// SPDX-License-Identifier: Apache-2.0
//
// A layer of which each rank keeps 1/n of the parameters. It is whole between gather and drop. gather and scatter
// return at once: what they begin goes on while the caller computes with other layers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <tutti/tutti.hpp>
#include <vector>

#include "layers.hpp"

// Parameters of all layers that a rank has in memory, beside its shards.
struct Memory {
  size_t now = 0, most = 0;
};

class ShardedLayer {
 public:
  ShardedLayer(const tutti::Communicator& world, const Dense& whole, Memory& memory)
      : world_(world), memory_(memory), layer_(whole) {
    padded_ = (whole.weights.size() + world.nranks() - 1) / world.nranks() * world.nranks();
    layer_.weights.resize(padded_);  // the last shard may end in padding
    const auto shard = static_cast<std::ptrdiff_t>(padded_ / world.nranks());
    const auto first = layer_.weights.begin() + shard * static_cast<std::ptrdiff_t>(world.rank());
    mine_.assign(first, first + shard);
    layer_.weights = {};
    layer_.gradient.resize(padded_);
  }
  size_t padded() const { return padded_; }

  // Begins to gather the parameters. Until drop the layer is whole, after the request's end.
  void gather() {
    layer_.weights.resize(padded_);
    memory_.most = std::max(memory_.most, memory_.now += padded_);
    gathered_ = world_.async().all_gather(mine_, layer_.weights);
  }
  Dense& whole() {
    gathered_.wait();
    return layer_;
  }
  void drop() {
    layer_.weights = {};
    memory_.now -= padded_;
  }
  // Begins to sum this rank's shard of the gradient.
  void scatter() {
    sum_.resize(mine_.size());
    scattered_ = world_.async().reduce_scatter(layer_.gradient, sum_, tutti::Op::sum);
  }
  void update(double rate) {
    scattered_.wait();
    for (size_t i = 0; i < mine_.size(); ++i) mine_[i] -= rate * sum_[i];
    layer_.gradient.assign(padded_, 0.0);
  }

 private:
  const tutti::Communicator& world_;
  Memory& memory_;
  Dense layer_;
  size_t padded_;
  std::vector<double> mine_, sum_;       // this rank's shard of the parameters, and of the gradient
  tutti::Request gathered_, scattered_;  // end before the memory that they use
};
