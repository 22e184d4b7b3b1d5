// SPDX-License-Identifier: Apache-2.0
//
// A network whose last two layers are divided among the ranks of a communicator (Shoeybi et al., Megatron-LM, 2019):
// the first by columns, the second by rows. Between them each rank has what it needs, so a pass costs one all_reduce:
//
//   forward    each rank's rows give a part of every logit:                the sum over ranks is the logits
//   backward   each rank's columns give a part of d loss / d their input:  the sum is what the layers before need
//
// The layers before are the same on all ranks, and so are their gradients.
#pragma once

#include <tutti/tutti.hpp>

#include "training.hpp"

class TensorParallel {
 public:
  TensorParallel(const tutti::Communicator& model, const std::vector<Dense>& whole) : model_(model) {
    const size_t hidden = whole[2].outputs;
    const size_t first = part_begin(hidden, model.rank(), model.nranks());
    const size_t last = part_begin(hidden, model.rank() + 1, model.nranks());
    replicated_ = {whole[0], whole[1]};
    divided_ = {whole[2].columns(first, last - first),
                whole[3].rows(first, last - first, model.rank() == 0)};  // one rank adds the bias
  }

  Matrix logits(const Matrix& pixels) {
    below_ = forward(replicated_, pixels);
    above_ = forward(divided_, below_.back());
    Matrix sum = above_.back();
    model_.all_reduce(sum, sum, tutti::Op::sum);
    return sum;
  }
  // Of the last logits().
  void gradients(Matrix error) {
    Matrix dx = backward(divided_, above_, std::move(error));
    model_.all_reduce(dx, dx, tutti::Op::sum);
    backward(replicated_, below_, std::move(dx));
  }
  // The bytes that both passes of so many samples send.
  std::vector<training::Formula> formulas(size_t samples) const {
    return {training::all_reduce_of("the logits", samples * divided_[1].outputs, model_),
            training::all_reduce_of("d loss / d input", samples * divided_[0].inputs, model_)};
  }
  // Calls body for each of this rank's layers.
  template <typename Body>
  void each(Body&& body) {
    for (auto* const layers : {&replicated_, &divided_})
      for (Dense& layer : *layers) body(layer);
  }

 private:
  const tutti::Communicator& model_;
  std::vector<Dense> replicated_, divided_;
  std::vector<Matrix> below_, above_;
};
