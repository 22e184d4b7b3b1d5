// SPDX-License-Identifier: Apache-2.0
//
// Routing of a mixture of experts: how many samples each rank has for each expert, and their way to the experts' ranks
// and back. An all_gather makes the numbers known to all ranks; then each all_to_all_v carries blocks of those sizes.
#pragma once

#include <algorithm>
#include <numeric>
#include <tutti/tutti.hpp>
#include <vector>

#include "layers.hpp"

// The way of this rank's samples to the experts and back.
class Router {
 public:
  using Counts = std::vector<uint64_t>;

  // `choice`: the expert of each sample, which is `width` numbers. Collective.
  Router(const tutti::Communicator& world, size_t experts, size_t width, const std::vector<size_t>& choice)
      : world_(world), experts_(experts), width_(width), order_(choice.size()), of_rank_(experts * world.nranks()) {
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::ranges::stable_sort(order_, {}, [&](size_t sample) { return choice[sample]; });
    Counts mine(experts_);
    for (const size_t expert : choice) ++mine[expert];
    world.all_gather(mine, of_rank_);
    for (uint32_t rank = 0; rank < world.nranks(); ++rank) {
      sent_.push_back(width_ * sum(world.rank(), first(rank), first(rank + 1)));
      received_.push_back(width_ * sum(rank, first(world.rank()), first(world.rank() + 1)));
    }
  }
  // The experts of a rank are [first(rank), first(rank + 1)).
  size_t first(size_t rank) const { return part_begin(experts_, rank, world_.nranks()); }

  // Rows of this rank's samples to the experts: one matrix for each expert of this rank.
  std::vector<Matrix> to_experts(const Matrix& rows) const {
    Matrix sorted;
    for (const size_t sample : order_) append(sorted, rows, sample * width_, width_);
    Matrix arrived(std::accumulate(received_.begin(), received_.end(), uint64_t{0}));
    world_.all_to_all_v(sorted, sent_, arrived, received_);
    std::vector<Matrix> of_expert(first(world_.rank() + 1) - first(world_.rank()));
    each_block([&](size_t expert, size_t at, size_t size) { append(of_expert[expert], arrived, at, size); });
    return of_expert;
  }
  // And back, into the samples' order.
  Matrix from_experts(const std::vector<Matrix>& of_expert) const {
    Matrix leaving(std::accumulate(received_.begin(), received_.end(), uint64_t{0}));
    std::vector<size_t> taken(of_expert.size());
    each_block([&](size_t expert, size_t at, size_t size) {
      std::copy_n(&of_expert[expert][taken[expert]], size, &leaving[at]);
      taken[expert] += size;
    });
    Matrix sorted(order_.size() * width_), rows(sorted.size());
    world_.all_to_all_v(leaving, received_, sorted, sent_);
    for (size_t i = 0; i < order_.size(); ++i) std::copy_n(&sorted[i * width_], width_, &rows[order_[i] * width_]);
    return rows;
  }

 private:
  uint64_t sum(size_t rank, size_t first, size_t last) const {
    const auto row = of_rank_.begin() + static_cast<std::ptrdiff_t>(rank * experts_);
    return std::accumulate(row + static_cast<std::ptrdiff_t>(first), row + static_cast<std::ptrdiff_t>(last),
                           uint64_t{0});
  }
  static void append(Matrix& to, const Matrix& from, size_t at, size_t size) {
    to.insert(to.end(), from.begin() + static_cast<std::ptrdiff_t>(at),
              from.begin() + static_cast<std::ptrdiff_t>(at + size));
  }
  // The samples that came lie rank by rank, within that expert by expert: body(expert, where it begins, its size).
  template <typename Body>
  void each_block(Body&& body) const {
    size_t at = 0;
    const size_t begin = first(world_.rank()), end = first(world_.rank() + 1);
    for (uint32_t rank = 0; rank < world_.nranks(); ++rank)
      for (size_t expert = begin; expert < end; ++expert) {
        const size_t size = width_ * of_rank_[rank * experts_ + expert];
        if (size > 0) body(expert - begin, at, size);
        at += size;
      }
  }

  const tutti::Communicator& world_;
  const size_t experts_, width_;
  std::vector<size_t> order_;  // samples, by their expert
  Counts of_rank_;             // samples of each rank for each expert
  Counts sent_, received_;     // numbers to and from each rank
};
