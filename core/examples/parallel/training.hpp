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

// A line of what the tutorials' formulas say of one step: what a rank sends, on average over the ranks.
struct Formula {
  std::string what, text;  // "all_reduce of the gradient", "2 D (n-1)/n"
  uint64_t data = 0;       // D, in bytes
  double bytes = 0;        // what the formula gives
  bool least = true;       // no algorithm sends less; else an estimate
};
// Of a collective on so many numbers: of the whole vector, not of a rank's part.
Formula all_reduce_of(const std::string& what, size_t numbers, const tutti::Communicator& comm);
Formula reduce_scatter_of(const std::string& what, size_t numbers, const tutti::Communicator& comm);
Formula all_gather_of(const std::string& what, size_t numbers, const tutti::Communicator& comm);
// Of a rank's numbers, when as many go to each rank: an estimate.
Formula all_to_all_of(const std::string& what, size_t numbers, const tutti::Communicator& comm);
// Of messages that all ranks together send.
Formula messages_of(const std::string& what, size_t numbers, const tutti::Communicator& comm);

// One way to train, on all ranks of its communicators.
struct Way {
  // Takes one step with all samples of the batch, which every rank has; returns this rank's part of the sum of their
  // losses.
  std::function<double(const Batch&)> step;
  // The logits of all samples, on all ranks.
  std::function<Matrix(const Matrix& pixels)> predict;
  // What a step with batch_size samples should send.
  std::vector<Formula> formulas;
  // The communicators that it works in besides the one that it was made of.
  std::function<std::vector<const tutti::Communicator*>()> parts = {};
  // The bytes that the library has sent for this rank in communicators of its own.
  std::function<uint64_t()> sent = {};
  // What this rank has to say when the training is over.
  std::function<std::string()> report = {};
};
using MakeWay = std::function<Way(const tutti::Communicator&)>;

// The whole of an example: trains on all ranks of the launcher (or with --threads N), then on rank 0 alone with the
// same function and a communicator of one rank. Fails unless the losses agree to 1e-5 of them and, with the default
// number of epochs, at least 94 % of the held-out digits are right. Prints both, the bytes that a step sent beside the
// formulas, and what communication there was. Fails where fewer bytes were counted than the formulas' least.
// The second step lies between the first two barriers of the communicator: a trace shows it (docs/training.md).
// Returns the program's exit status.
int run(int argc, char** argv, const std::string& program, const std::string& about, const MakeWay& make);

}  // namespace training
