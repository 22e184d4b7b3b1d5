// SPDX-License-Identifier: Apache-2.0
//
// What the examples of parallel training have in common: the digits, the loop over batches, and the comparison with the
// run of one rank. The example itself says how one step is shared between ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <tutti/tutti.hpp>
#include <vector>

#include "formula.hpp"
#include "layers.hpp"

namespace training {

inline constexpr size_t batch_size = 64;
inline constexpr double rate = 0.2;

// The network of all examples but the mixture of experts, 64-32-32-64-10, with gradients on a grid or not
// (Dense::grid).
std::vector<Dense> network(double grid = 0);

struct Batch {
  Matrix pixels;
  std::vector<int32_t> labels;
  size_t shift = 0;  // part 0 is dealt as part `shift`
  // Part `i` of `n` of its samples.
  Batch part(size_t i, size_t n) const;
};

// One way to train, on all ranks of its communicators.
struct Way {
  // Takes one step with all samples of the batch, which every rank has; returns this rank's part of the sum of their
  // losses.
  std::function<double(const Batch&)> step;
  // The logits of all samples, on all ranks.
  std::function<Matrix(const Matrix& pixels)> predict;
  // The bytes that a step with batch_size samples should send.
  std::vector<Formula> formulas;
  // The communicators that it works in besides the one that it was made of.
  std::function<std::vector<const tutti::Communicator*>()> parts = {};
  // The bytes that the library has sent for this rank in communicators of its own.
  std::function<uint64_t()> sent = {};
  // A text of this rank for the end of the training.
  std::function<std::string()> report = {};
  // Ranks take parts of a batch and sum their gradients, and sum nothing else: --exact may compare bits.
  bool deals_samples = false;
};
// For the network's layers: before the first step.
using MakeWay = std::function<Way(const tutti::Communicator&, const std::vector<Dense>& network)>;

// The whole of an example: trains on all ranks of the launcher (or with --threads N), then on rank 0 alone with the
// same function and a communicator of one rank. Fails unless the losses agree to 1e-5 of them and, with the default
// number of epochs, at least 94 % of the held-out digits are right. Prints both, the bytes that a step sent beside the
// formulas, and what communication there was. Fails where fewer bytes were counted than the formulas' least.
// The second step lies between the first two barriers of the communicator: a trace shows it (docs/training.md).
//
// --exact, where a way deals samples, sets TUTTI_ORDER=exact, unless the environment sets it, and compares bits. They
// must be the same when each rank takes the part of the next one. With gradients on a grid they must be those of one
// rank. Returns the program's exit status.
int run(int argc, char** argv, const std::string& program, const std::string& about, const MakeWay& make);

}  // namespace training
