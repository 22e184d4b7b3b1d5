// SPDX-License-Identifier: Apache-2.0
//
// The text behind an algorithm's name where it is a number: "4" of "bruck:4".
#pragma once

#include <charconv>
#include <tutti/sdk/algorithm.hpp>

namespace tutti::algorithms {

// The number after the algorithm's name; `without` where there is none; 0 where it is not a number from `least`, at
// least 1, to `most`.
inline uint32_t number_behind_name(const sdk::Query& q, uint32_t without, uint32_t least, uint32_t most) {
  if (q.parameters.empty()) return without;
  uint32_t number = 0;
  const char* end = q.parameters.data() + q.parameters.size();
  const auto [rest, error] = std::from_chars(q.parameters.data(), end, number);
  return error == std::errc() && rest == end && number >= least && number <= most ? number : 0;
}

}  // namespace tutti::algorithms
