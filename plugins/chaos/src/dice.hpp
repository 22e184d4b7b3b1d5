// SPDX-License-Identifier: Apache-2.0
//
// Random numbers by seed: the same on every machine (SplitMix64).
#pragma once

#include <cstdint>

namespace tutti::chaos {

class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // From 0 to limit - 1; limit > 0.
  uint64_t below(uint64_t limit) { return next() % limit; }
  bool chance(double p) { return static_cast<double>(next() >> 11) * 0x1p-53 < p; }

 private:
  uint64_t state_;
};

}  // namespace tutti::chaos
