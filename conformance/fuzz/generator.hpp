// SPDX-License-Identifier: Apache-2.0
//
// Draws programs by lot. A program is a function of its seed and the choice; it is legal (legality.hpp).
#pragma once

#include <string>
#include <vector>

#include "fuzz/program.hpp"

namespace tutti::conformance::fuzz {

// The sets to draw from. An empty list allows everything.
struct Choice {
  std::vector<std::string> themes;
  std::vector<std::string> mixes;  // "shm", "shm+tcp", "chaos"; never empty
  std::vector<uint32_t> ranks;
  double longest_sleep = 20;  // seconds; themes that sleep longer are left out
};

// The mixes of all transports that reach other processes, or of those that the user named. Throws
// std::invalid_argument.
std::vector<std::string> mixes_from(const std::vector<std::string>& wanted);

Program generate(uint64_t seed, const Choice& choice);

}  // namespace tutti::conformance::fuzz
