// SPDX-License-Identifier: Apache-2.0
//
// A mixture of experts (Shazeer et al., 2017; Fedus et al., Switch Transformers, 2021: each sample goes to one expert).
// Each rank has some of the experts and a part of the batch. Samples travel to their experts and back:
//
//   gate            chooses an expert for each sample; an all_gather tells how many each expert gets, in every step
//   all_to_all_v    the samples to the experts' ranks, and what the experts make of them back
//   backward        the same two ways with gradients
//   all_reduce      the gradients of what all ranks have: the layers around the experts, and the gate
//
// y = p(e) * expert e(h), where e is the most probable expert.
#include <algorithm>
#include <cmath>
#include <memory>

#include "router.hpp"
#include "training.hpp"

namespace {

constexpr size_t experts = 4, width = 32;
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
    router_ = std::make_unique<Router>(world_, experts, width, choice_);
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
    const double loss = softmax_loss(logits_of_mine, mine.labels, error);
    gradients(logits_of_mine, std::move(error));
    world_.group([&] {
      for (Dense* layer : {&stem_, &gate_, &head_}) world_.all_reduce(layer->gradient, layer->gradient, tutti::Op::sum);
    });
    const double rate = training::rate / static_cast<double>(batch.labels.size());
    for (Dense* layer : {&stem_, &gate_, &head_}) layer->update(rate);
    update(experts_, rate);  // they have seen the samples of all ranks
    return loss;
  }

  // Samples go to any expert alike, says the formula; the gate decides what goes where.
  std::vector<training::Formula> formulas() const {
    const size_t shared = stem_.weights.size() + gate_.weights.size() + head_.weights.size();
    return {training::all_gather_of("the experts' samples", experts * world_.nranks(), world_),
            training::all_to_all_of("samples, 4 times", 4 * training::batch_size / world_.nranks() * width, world_),
            training::all_reduce_of("the shared layers", shared, world_)};
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
                         return training::Way{.step = [mixture](const training::Batch& b) { return mixture->step(b); },
                                              .predict = [mixture](const Matrix& x) { return mixture->logits(x); },
                                              .formulas = mixture->formulas()};
                       });
}
