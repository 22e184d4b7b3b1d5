// SPDX-License-Identifier: Apache-2.0
#include "expression.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace tutti {

Expressions::Expressions(uint32_t nranks, uint32_t blocks, uint32_t pieces)
    : nranks_(nranks),
      chunks_(std::max(blocks * pieces, 1u)),
      leaves_(nranks * chunks_),
      words_((nranks + 63) / 64),
      table_(1024, none) {}

uint64_t Expressions::hash(std::span<const Id> operands) const {
  uint64_t h = operands.size();
  for (const Id id : operands) {
    h = (h ^ id) * 0x9e3779b97f4a7c15u;
    h ^= h >> 29;
  }
  return h;
}

Expressions::Summary Expressions::summary(Id id) const {
  if (is_leaf(id)) {
    const uint32_t rank = leaf_rank(id);
    return {leaf_chunk(id), rank, rank, 1, none, true, false};
  }
  const ReductionNode& r = reductions_[id - leaves_];
  return {r.chunk, r.low, r.high, r.contributors, r.twice, r.in_order, r.others};
}

bool Expressions::contributes(Id id, uint32_t rank) const {
  if (is_leaf(id)) return leaf_rank(id) == rank;
  return bits_[size_t{id - leaves_} * words_ + rank / 64] >> (rank % 64) & 1;
}

uint32_t Expressions::next_contributor(Id id, uint32_t rank) const {
  while (rank < nranks_ && !contributes(id, rank)) ++rank;
  return rank;
}

void Expressions::grow_table() {
  table_.assign(table_.size() * 2, none);
  const size_t mask = table_.size() - 1;
  for (uint32_t i = 0; i < reductions_.size(); ++i) {
    size_t slot = hash(operands_of(reductions_[i])) & mask;
    while (table_[slot] != none) slot = (slot + 1) & mask;
    table_[slot] = i;
  }
}

Expressions::Id Expressions::cons(std::span<const Id> operands) {
  if (reductions_.size() * 2 >= table_.size()) grow_table();
  const size_t mask = table_.size() - 1;
  size_t slot = hash(operands) & mask;
  for (; table_[slot] != none; slot = (slot + 1) & mask)
    if (std::ranges::equal(operands_of(reductions_[table_[slot]]), operands)) return leaves_ + table_[slot];

  const auto index = uint32_t(reductions_.size());
  table_[slot] = index;
  Summary sum = summary(operands[0]);
  const size_t base = bits_.size();
  bits_.resize(base + words_, 0);
  for (size_t i = 0; i < operands.size(); ++i) {
    const Id id = operands[i];
    const Summary term = summary(id);
    for (uint32_t word = 0; word < words_; ++word) {
      const uint64_t theirs = is_leaf(id) ? (leaf_rank(id) / 64 == word ? uint64_t{1} << (leaf_rank(id) % 64) : 0)
                                          : bits_[size_t{id - leaves_} * words_ + word];
      if (const uint64_t both = bits_[base + word] & theirs; both && sum.twice == none)
        sum.twice = word * 64 + uint32_t(std::countr_zero(both));
      bits_[base + word] |= theirs;
    }
    if (i == 0) continue;
    if (sum.twice == none) sum.twice = term.twice;
    sum.others = sum.others || term.others || term.chunk != sum.chunk;
    sum.in_order = sum.in_order && term.in_order && term.low == sum.high + 1;
    sum.high = term.high;
  }
  sum.contributors = 0;
  for (uint32_t word = 0; word < words_; ++word) sum.contributors += uint32_t(std::popcount(bits_[base + word]));
  const auto first = uint32_t(operands_.size());
  operands_.insert(operands_.end(), operands.begin(), operands.end());
  reductions_.push_back({first, uint32_t(operands.size()), leaves_ + index, sum.chunk, sum.low, sum.high,
                         sum.contributors, sum.twice, sum.in_order, sum.others,
                         std::ranges::all_of(operands, [this](Id operand) { return is_leaf(operand); })});
  return leaves_ + index;
}

Expressions::Id Expressions::reduce(std::span<const Id> operands) {
  const size_t before = reductions_.size();
  const Id id = cons(operands);
  if (reductions_.size() == before) return id;  // known, with its canonical form
  std::vector<Id> sorted(operands.size());
  std::ranges::transform(operands, sorted.begin(), [this](Id operand) { return canonical(operand); });
  if (sorted[1] < sorted[0]) std::swap(sorted[0], sorted[1]);
  // A canonical form is its own: its operands are canonical and sorted.
  const Id form = cons(sorted);
  reductions_[id - leaves_].canonical = form;
  return id;
}

bool Expressions::is_canonical(Id id, uint32_t first, uint32_t count) const {
  if (is_leaf(id)) return count == 1 && leaf_rank(id) == first;
  const std::span<const Id> operands = operands_of(reductions_[id - leaves_]);
  if (count < 2 || operands.size() != 2) return false;
  const uint32_t lower = std::bit_ceil(count) / 2;
  return is_canonical(operands[0], first, lower) && is_canonical(operands[1], first + lower, count - lower);
}

bool Expressions::is_complete(Id id, uint32_t chunk, uint32_t ranks) const {
  const Summary sum = summary(id);
  return sum.contributors == ranks && sum.chunk == chunk && !sum.others && sum.twice == none &&
         next_contributor(id, ranks) == nranks_;
}

std::string Expressions::explain_incomplete(Id id, uint32_t chunk, uint32_t ranks) const {
  const Summary sum = summary(id);
  if (sum.others) return "mixes different chunks of IN in one reduction";
  if (sum.chunk != chunk) return fmt::format("holds in[{}] instead of in[{}]", sum.chunk, chunk);
  if (sum.twice != none) return fmt::format("holds the contribution of rank {} more than once", sum.twice);
  if (const uint32_t other = next_contributor(id, ranks); other < nranks_)
    return fmt::format("holds the contribution of rank {}, which is not to be in it", other);
  uint32_t missing = 0;
  while (missing < ranks && contributes(id, missing)) ++missing;
  const uint32_t lacking = ranks - sum.contributors;
  if (lacking > 1)
    return fmt::format("lacks the contributions of {} ranks, the first of which is rank {}", lacking, missing);
  return fmt::format("lacks the contribution of rank {}", missing);
}

std::string Expressions::text(Id id) const {
  if (is_leaf(id)) return fmt::format("in[{}] of rank {}", leaf_chunk(id), leaf_rank(id));
  const Summary sum = summary(id);
  return fmt::format("a reduction of in[{}] of {} ranks", sum.chunk, sum.contributors);
}

}  // namespace tutti
