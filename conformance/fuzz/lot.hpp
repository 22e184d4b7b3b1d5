// SPDX-License-Identifier: Apache-2.0
//
// Chance from a seed, the same on every machine.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>
#include <utility>
#include <vector>

#include "fuzz/themes.hpp"

namespace tutti::conformance::fuzz {

class Lot {
 public:
  explicit Lot(uint64_t seed) : random_(seed * 0x9e3779b97f4a7c15u + 1) {}

  // The modulus favours no value noticeably: there are a few hundred at most.
  uint64_t below(uint64_t n) { return random_() % n; }
  uint32_t in(Range range) {
    return range.least + static_cast<uint32_t>(below(uint64_t{range.most} - range.least + 1));
  }
  bool chance(uint32_t percent) { return below(100) < percent; }
  template <typename T>
  T pick(std::initializer_list<T> list) {
    return list.begin()[below(list.size())];
  }
  template <typename List>
  auto pick(const List& list) {
    return std::begin(list)[below(std::size(list))];
  }
  template <typename T>
  void shuffle(std::vector<T>& list) {
    for (size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[below(i)]);
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace tutti::conformance::fuzz
