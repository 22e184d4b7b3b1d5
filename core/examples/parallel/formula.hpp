// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a step by the formulas of textbooks and tutorials: those that a rank sends, on average over the ranks.
// D is what a collective works on, n the number of ranks in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <tutti/tutti.hpp>
#include <vector>

namespace training {

struct Formula {
  std::string what, text;  // "all_reduce of the gradient", "2 D (n-1)/n"
  uint64_t data = 0;       // D, in bytes
  double bytes = 0;        // what the formula gives
  bool least = true;       // no algorithm sends less; else an estimate
};
// The formula of a collective on so many numbers, which are those of the whole vector, not of a rank's part.
Formula all_reduce_of(const std::string& what, size_t numbers, const tutti::Communicator& comm);
Formula reduce_scatter_of(const std::string& what, size_t numbers, const tutti::Communicator& comm);
Formula all_gather_of(const std::string& what, size_t numbers, const tutti::Communicator& comm);
// An estimate: as many of a rank's numbers go to each rank.
Formula all_to_all_of(const std::string& what, size_t numbers, const tutti::Communicator& comm);
// Of messages that all ranks together send.
Formula messages_of(const std::string& what, size_t numbers, const tutti::Communicator& comm);

// Prints the formulas, and beside them the bytes that were counted. Fails where fewer were counted than the formulas'
// least.
void print_sent(const std::vector<Formula>& formulas, double counted);

}  // namespace training
