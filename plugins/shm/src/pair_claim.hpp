// SPDX-License-Identifier: Apache-2.0
//
// Who of two ranks of this process connects to the other.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "wire.hpp"

namespace tutti::shm {

// The right to begin the connection between two endpoints, given to one endpoint of this process at a time and given
// back with the object. Endpoints that begin at the same moment would otherwise cross, and hold twice the descriptors
// until one of the two connections is let go. Between processes, crossing is what happens.
class PairClaim {
 public:
  // Nothing: the other endpoint has begun. [any thread]
  static std::optional<PairClaim> take(const Address& mine, const Address& theirs);
  ~PairClaim();
  PairClaim(PairClaim&& other) noexcept : pair_(std::exchange(other.pair_, std::nullopt)) {}
  PairClaim& operator=(PairClaim&&) = delete;

 private:
  using Name = std::array<uint8_t, sizeof Address::name>;
  using Pair = std::pair<Name, Name>;
  explicit PairClaim(const Pair& pair) : pair_(pair) {}
  struct Begun;
  static Begun& begun();
  std::optional<Pair> pair_;
};

}  // namespace tutti::shm
