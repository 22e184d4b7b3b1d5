// SPDX-License-Identifier: Apache-2.0
//
// The contents of cells, as symbols: a chunk of the input, reduced over some ranks.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan.hpp"

namespace tutti::plans {

class Values {
 public:
  using Id = uint32_t;
  static constexpr Id none = UINT32_MAX;

  explicit Values(uint32_t ranks) : ranks_(ranks), words_((ranks + 63) / 64) {}

  // Chunk `chunk` of rank `rank`'s input.
  Id input(uint32_t rank, uint32_t chunk) {
    const Id id = add(chunk);
    bits_[id * words_ + rank / 64] |= uint64_t{1} << rank % 64;
    return id;
  }
  // Both reduced to one; nothing where they are of different chunks or have a rank in common.
  std::optional<Id> reduce(Id a, Id b) {
    if (chunks_[a] != chunks_[b] || common(a, b) != nobody) return std::nullopt;
    const Id id = add(chunks_[a]);
    for (size_t w = 0; w < words_; ++w) bits_[id * words_ + w] = bits_[a * words_ + w] | bits_[b * words_ + w];
    return id;
  }

  uint32_t chunk(Id id) const { return chunks_[id]; }
  bool complete(Id id) const { return count(id) == ranks_; }
  uint32_t count(Id id) const {
    uint32_t count = 0;
    for (size_t w = 0; w < words_; ++w) count += static_cast<uint32_t>(std::popcount(bits_[id * words_ + w]));
    return count;
  }
  bool has(Id id, uint32_t rank) const { return bits_[id * words_ + rank / 64] >> rank % 64 & 1; }
  // The lowest rank; each value has one.
  uint32_t first(Id id) const {
    for (size_t w = 0;; ++w)
      if (const uint64_t word = bits_[id * words_ + w]) return static_cast<uint32_t>(w * 64 + std::countr_zero(word));
  }
  uint32_t last(Id id) const {
    for (size_t w = words_;; --w)
      if (const uint64_t word = bits_[id * words_ + w - 1])
        return static_cast<uint32_t>(w * 64 - 1 - std::countl_zero(word));
  }
  // A rank that contributes to both, or nobody.
  uint32_t common(Id a, Id b) const {
    for (size_t w = 0; w < words_; ++w)
      if (const uint64_t both = bits_[a * words_ + w] & bits_[b * words_ + w])
        return static_cast<uint32_t>(w * 64 + std::countr_zero(both));
    return nobody;
  }
  // A rank that does not contribute, or nobody.
  uint32_t missing(Id id) const {
    for (uint32_t rank = 0; rank < ranks_; ++rank)
      if (!has(id, rank)) return rank;
    return nobody;
  }
  // "chunk 3 of gpu 1's input", "chunk 3 of 2 gpus' inputs".
  std::string text(Id id) const {
    if (id == none) return "nothing";
    return count(id) == 1 ? fmt::format("chunk {} of gpu {}'s input", chunk(id), first(id))
                          : fmt::format("chunk {} of {} gpus' inputs", chunk(id), count(id));
  }

 private:
  Id add(uint32_t chunk) {
    chunks_.push_back(chunk);
    bits_.resize(bits_.size() + words_);
    return static_cast<Id>(chunks_.size() - 1);
  }

  uint32_t ranks_;
  size_t words_;
  std::vector<uint32_t> chunks_;
  std::vector<uint64_t> bits_;
};

}  // namespace tutti::plans
