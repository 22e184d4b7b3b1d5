// SPDX-License-Identifier: Apache-2.0
//
// A stage of a pipeline: consecutive layers, and the messages to the stages before and after it, which are ranks of a
// communicator. A forward pass receives activations from the stage before and sends its own to the next one. A backward
// pass receives d loss / d output from the next stage and sends d loss / d input to the one before. Receives wait; what
// is sent goes on while the stage computes.
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <stdexcept>
#include <string>
#include <utility>

#include "training.hpp"

class Stage {
 public:
  explicit Stage(const tutti::Communicator& world) : world_(world) {
    if (world.nranks() > all_.size())
      throw std::runtime_error("the network has " + std::to_string(all_.size()) + " layers, at most one rank for each");
    for (size_t i = first_layer(world.rank()); i < first_layer(world.rank() + 1); ++i) layers_.push_back(all_[i]);
  }

  // The forward pass of some samples; returns the stage's output, which lives until their backward pass or drop().
  const Matrix& pass(const Matrix& pixels) {
    Matrix x = is_first_ ? pixels : Matrix(pixels.size() / all_[0].inputs * layers_.front().inputs);
    if (!is_first_) receive(x, world_.rank() - 1);
    Kept& kept = activations_.emplace_back(forward(layers_, std::move(x)));
    if (!is_last_) kept.sent = world_.async().send(kept.matrices.back(), world_.rank() + 1);
    most_kept_ = std::max(most_kept_, activations_.size());
    return kept.matrices.back();
  }
  // The backward pass of the oldest samples that have had none; returns their loss on the last stage, else 0.
  double back(std::span<const int32_t> labels) {
    const Kept kept = std::move(activations_.front());
    activations_.pop_front();
    Matrix error(kept.matrices.back().size());
    double loss = 0;
    if (is_last_)
      loss = softmax_loss(kept.matrices.back(), labels, error);
    else
      receive(error, world_.rank() + 1);
    Kept& dx = errors_.emplace_back(std::vector<Matrix>{backward(layers_, kept.matrices, std::move(error))});
    if (!is_first_) dx.sent = world_.async().send(dx.matrices.back(), world_.rank() - 1);
    return loss;
  }
  // After the backward passes of a batch; waits until what they sent has gone.
  void update(double rate) {
    errors_.clear();
    ::update(layers_, rate);
  }
  // Forgets samples that need no backward pass.
  void drop() { activations_.clear(); }

  size_t most_kept() const { return most_kept_; }                   // samples' activations at a time
  std::chrono::duration<double> waited() const { return waited_; }  // in receives
  // The numbers that cross the borders of all stages, for so many samples: activations forward, errors backward.
  size_t crossing(size_t samples) const {
    size_t width = 0;
    for (size_t rank = 1; rank < world_.nranks(); ++rank) width += all_[first_layer(rank)].inputs;
    return 2 * samples * width;
  }

 private:
  // Matrices of some samples, of which the last is on its way to another stage. The request ends first.
  struct Kept {
    std::vector<Matrix> matrices;
    tutti::Request sent;
  };

  size_t first_layer(size_t rank) const { return part_begin(all_.size(), rank, world_.nranks()); }
  void receive(Matrix& into, uint32_t from) {
    const auto start = std::chrono::steady_clock::now();
    world_.receive(into, from);
    waited_ += std::chrono::steady_clock::now() - start;
  }

  const tutti::Communicator& world_;
  const std::vector<Dense> all_ = training::network();
  const bool is_first_ = world_.rank() == 0, is_last_ = world_.rank() + 1 == world_.nranks();
  std::vector<Dense> layers_;              // this stage's
  std::deque<Kept> activations_, errors_;  // between the two passes; on their way to the stage before
  size_t most_kept_ = 0;
  std::chrono::duration<double> waited_{0};
};
