// SPDX-License-Identifier: Apache-2.0
//
// A mixture of experts (Shazeer et al., 2017; Fedus et al., Switch Transformers, 2021: each sample goes to one expert).
// Each rank has some of the experts and a part of the batch. Samples travel to their experts and back:
//
//   gate            chooses an expert for each sample: how many each expert gets differs in every step
//   all_gather      of these numbers, so that all ranks know them
//   all_to_all_v    the samples to the experts' ranks, and what the experts make of them back
//   backward        the same two ways with gradients
//   all_reduce      the gradients of what all ranks have: the layers around the experts, and the gate
//
// y = p(e) * expert e(h), where e is the expert that the gate finds most probable.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "training.hpp"

namespace {

constexpr size_t experts = 4, width = 32;
using Counts = std::vector<uint64_t>;

// The way of this rank's samples to the experts and back.
class Router {
 public:
  // `choice`: the expert of each sample. Collective.
  Router(const tutti::Communicator& world, const std::vector<size_t>& choice)
      : world_(world), order_(choice.size()), of_rank_(experts * world.nranks()) {
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::ranges::stable_sort(order_, {}, [&](size_t sample) { return choice[sample]; });
    Counts mine(experts);
    for (const size_t expert : choice) ++mine[expert];
    world.all_gather(mine, of_rank_);
    for (uint32_t rank = 0; rank < world.nranks(); ++rank) {
      sent_.push_back(width * sum(world.rank(), first(rank), first(rank + 1)));
      received_.push_back(width * sum(rank, first(world.rank()), first(world.rank() + 1)));
    }
  }
  // The experts of a rank are [first(rank), first(rank + 1)).
  size_t first(size_t rank) const { return part_begin(experts, rank, world_.nranks()); }

  // Rows of this rank's samples to the experts: one matrix for each expert of this rank.
  std::vector<Matrix> to_experts(const Matrix& rows) const {
    Matrix sorted;
    for (const size_t sample : order_) append(sorted, rows, sample * width, width);
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
    Matrix sorted(order_.size() * width), rows(sorted.size());
    world_.all_to_all_v(leaving, received_, sorted, sent_);
    for (size_t i = 0; i < order_.size(); ++i) std::copy_n(&sorted[i * width], width, &rows[order_[i] * width]);
    return rows;
  }

 private:
  uint64_t sum(size_t rank, size_t first, size_t last) const {
    const auto row = of_rank_.begin() + static_cast<std::ptrdiff_t>(rank * experts);
    return std::accumulate(row + static_cast<std::ptrdiff_t>(first), row + static_cast<std::ptrdiff_t>(last),
                           uint64_t{0});
  }
  static void append(Matrix& to, const Matrix& from, size_t at, size_t size) {
    to.insert(to.end(), from.begin() + static_cast<std::ptrdiff_t>(at),
              from.begin() + static_cast<std::ptrdiff_t>(at + size));
  }
  // What has arrived lies rank by rank, within that expert by expert: body(expert, where it begins, its size).
  template <typename Body>
  void each_block(Body&& body) const {
    size_t at = 0;
    const size_t begin = first(world_.rank()), end = first(world_.rank() + 1);
    for (uint32_t rank = 0; rank < world_.nranks(); ++rank)
      for (size_t expert = begin; expert < end; ++expert) {
        const size_t size = width * of_rank_[rank * experts + expert];
        if (size > 0) body(expert - begin, at, size);
        at += size;
      }
  }

  const tutti::Communicator& world_;
  std::vector<size_t> order_;  // samples, by their expert
  Counts of_rank_;             // samples of each rank for each expert
  Counts sent_, received_;     // numbers to and from each rank
};

class Mixture {
 public:
  explicit Mixture(const tutti::Communicator& world) : world_(world) {
    const size_t first = part_begin(experts, world.rank(), world.nranks());
    for (size_t expert = first; expert < part_begin(experts, world.rank() + 1, world.nranks()); ++expert)
      experts_.emplace_back(width, width, true, 10 + expert);
  }

  Matrix logits(const Matrix& pixels) {
    pixels_ = pixels;
    hidden_ = stem_.forward(pixels);
    probability_ = gate_.forward(hidden_);
    choice_.clear();
    for (size_t i = 0; i < hidden_.size() / width; ++i) {
      const std::span<double> row = std::span(probability_).subspan(i * experts, experts);
      const auto largest = std::ranges::max_element(row);
      choice_.push_back(static_cast<size_t>(largest - row.begin()));
      double sum = 0;
      for (const double most = *largest; double& value : row) sum += value = std::exp(value - most);
      for (double& value : row) value /= sum;
    }
    router_ = std::make_unique<Router>(world_, choice_);
    inputs_ = router_->to_experts(hidden_);
    outputs_.clear();
    for (size_t e = 0; e < experts_.size(); ++e) outputs_.push_back(experts_[e].forward(inputs_[e]));
    made_ = router_->from_experts(outputs_);
    mixed_ = made_;
    for (size_t i = 0; i < mixed_.size(); ++i) mixed_[i] *= chosen(i / width);
    return head_.forward(mixed_);
  }

  // Of the last logits().
  void gradients(const Matrix& logits, Matrix error) {
    const Matrix d_mixed = head_.backward(mixed_, logits, std::move(error));
    Matrix d_made = d_mixed, d_gate(probability_.size());
    for (size_t i = 0; i < choice_.size(); ++i) {
      double d_probability = 0;
      for (size_t j = 0; j < width; ++j) d_probability += d_mixed[i * width + j] * made_[i * width + j];
      for (size_t j = 0; j < width; ++j) d_made[i * width + j] *= chosen(i);
      for (size_t e = 0; e < experts; ++e)  // through the softmax
        d_gate[i * experts + e] =
            d_probability * chosen(i) * ((e == choice_[i] ? 1.0 : 0.0) - probability_[i * experts + e]);
    }
    std::vector<Matrix> d_outputs = router_->to_experts(d_made), d_inputs;
    for (size_t e = 0; e < experts_.size(); ++e)
      d_inputs.push_back(experts_[e].backward(inputs_[e], outputs_[e], std::move(d_outputs[e])));
    Matrix d_hidden = router_->from_experts(d_inputs);
    const Matrix by_gate = gate_.backward(hidden_, probability_, std::move(d_gate));
    for (size_t i = 0; i < d_hidden.size(); ++i) d_hidden[i] += by_gate[i];
    stem_.backward(pixels_, hidden_, std::move(d_hidden));
  }

  double step(const training::Batch& batch) {
    const training::Batch mine = batch.part(world_.rank(), world_.nranks());
    const Matrix logits_of_mine = logits(mine.pixels);
    Matrix error;
    double loss = softmax_loss(logits_of_mine, mine.labels, error);
    gradients(logits_of_mine, std::move(error));
    world_.group([&] {
      for (Dense* layer : {&stem_, &gate_, &head_}) world_.all_reduce(layer->gradient, layer->gradient, tutti::Op::sum);
      world_.all_reduce(std::span(&loss, 1), std::span(&loss, 1), tutti::Op::sum);
    });
    const double rate = training::rate / static_cast<double>(batch.labels.size());
    for (Dense* layer : {&stem_, &gate_, &head_}) layer->update(rate);
    update(experts_, rate);  // they have seen the samples of all ranks
    return loss;
  }

 private:
  // The probability of a sample's expert.
  double chosen(size_t sample) const { return probability_[sample * experts + choice_[sample]]; }

  const tutti::Communicator& world_;
  Dense stem_{64, width, true, 1}, gate_{width, experts, false, 2}, head_{width, 10, false, 3};
  std::vector<Dense> experts_;  // this rank's
  std::unique_ptr<Router> router_;
  Matrix pixels_, hidden_, probability_, made_, mixed_;
  std::vector<size_t> choice_;
  std::vector<Matrix> inputs_, outputs_;  // of this rank's experts
};

}  // namespace

int main(int argc, char** argv) {
  return training::run(argc, argv, "mixture_of_experts", "Samples travel to the ranks of their experts and back",
                       [](const tutti::Communicator& world) {
                         const auto mixture = std::make_shared<Mixture>(world);
                         return training::Way{[mixture](const training::Batch& batch) { return mixture->step(batch); },
                                              [mixture](const Matrix& pixels) { return mixture->logits(pixels); }};
                       });
}
