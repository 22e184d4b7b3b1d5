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

#include "layers.hpp"

namespace training {

inline constexpr size_t batch_size = 64;
inline constexpr double rate = 0.2;

// The network of all examples but the mixture of experts: 64-32-32-64-10.
std::vector<Dense> network();

struct Batch {
  Matrix pixels;
  std::vector<int32_t> labels;
  // Part `i` of `n` of its samples.
  Batch part(size_t i, size_t n) const;
};

// One way to train, on all ranks of its communicators.
struct Way {
  // Takes one step with all samples of the batch, which every rank has; returns the sum of their losses on all ranks.
  std::function<double(const Batch&)> step;
  // The logits of all samples, on all ranks.
  std::function<Matrix(const Matrix& pixels)> predict;
  // The communicators that it works in besides the one that it was made of.
  std::function<std::vector<const tutti::Communicator*>()> parts = {};
};
using MakeWay = std::function<Way(const tutti::Communicator&)>;

// The whole of an example: trains on all ranks of the launcher (or with --threads N), then on rank 0 alone with the
// same function and a communicator of one rank. Fails unless the losses agree to 1e-5 of them and, with the default
// number of epochs, at least 94 % of the held-out digits are right. Prints both, and what communication there was.
// Returns the program's exit status.
int run(int argc, char** argv, const std::string& program, const std::string& about, const MakeWay& make);

}  // namespace training
