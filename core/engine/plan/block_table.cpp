// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/block_table.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/hash.hpp"
#include "engine/plan/plan.hpp"

namespace tutti::core {
namespace {

// The blocks of which all ranks that know all sizes have n: of OUT where a rank collects, of IN where it hands out.
const BlockList& all_blocks(const BlockTable& table, uint32_t nranks) {
  return table.out.counts.size() == nranks ? table.out : table.in;
}

// The lengths of a plan's chunks, by the table that the plan has.
class Lengths {
 public:
  Lengths(const Plan& plan, uint32_t nranks, uint32_t rank)
      : blocks_(plan.unequal), shape_(plan.shape), collective_(plan.shape.collective), nranks_(nranks), rank_(rank) {}

  uint64_t of_scratch(uint32_t chunk) const {
    const tutti_extent& extent = blocks_.scratch[chunk];
    const uint64_t length = blocks().length_of(collective_, nranks_, rank_, extent.block_class);
    return bound(length, extent.piece + 1) - bound(length, extent.piece);
  }
  // A chunk of IN or OUT: its first element, and how many there are.
  std::pair<uint64_t, uint64_t> in_buffer(uint32_t buffer, uint32_t chunk) const {
    const BlockList& list = buffer == TUTTI_BUFFER_IN ? blocks().in : blocks().out;
    const auto pieces = static_cast<uint32_t>(blocks_.cuts.size()) + 1;
    const uint32_t block = chunk / pieces, piece = chunk % pieces;
    const uint64_t begin = bound(list.counts[block], piece);
    return {list.begins[block] + begin, bound(list.counts[block], piece + 1) - begin};
  }

 private:
  const BlockTable& blocks() const { return blocks_.carried(shape_); }
  uint64_t bound(uint64_t length, uint32_t piece) const { return piece_bound(blocks_.cuts, length, piece); }

  const UnequalBlocks& blocks_;
  const Shape& shape_;
  uint32_t collective_, nranks_, rank_;
};

// Gives the operands of one plan their elements.
class Binding {
 public:
  Binding(Plan& plan, const Lengths& lengths) : plan_(plan), lengths_(lengths) {
    uint64_t at = 0;
    plan_.unequal.scratch_begins.resize(plan_.unequal.scratch.size());
    for (size_t i = 0; i < plan_.unequal.scratch.size(); ++i) {
      plan_.unequal.scratch_begins[i] = at;
      at += lengths_.of_scratch(static_cast<uint32_t>(i));
    }
    plan_.scratch.bytes = at * plan_.element_bytes;
  }

  void bind(Operand& operand) const {
    if (!operand.buffer) return;
    if (operand.parts) {  // parts are placed before
      operand.length = 0;
      operand.first = plan_.parts[operand.first_part].first;
      for (uint32_t i = 0; i < operand.parts; ++i) operand.length += plan_.parts[operand.first_part + i].length;
    } else if (operand.buffer == TUTTI_BUFFER_SCRATCH) {
      operand.first = plan_.unequal.scratch_begins[operand.chunk];
      operand.length = lengths_.of_scratch(operand.chunk);
    } else {
      std::tie(operand.first, operand.length) = lengths_.in_buffer(operand.buffer, operand.chunk);
    }
  }

 private:
  Plan& plan_;
  const Lengths& lengths_;
};

// The list in units of a wire format.
void fill_units(uint32_t wire, const BlockList& elements, BlockList& units) {
  units.counts.clear();
  units.begins.clear();
  uint64_t end = 0;
  for (const uint64_t count : elements.counts) {
    units.begins.push_back(end);
    units.counts.push_back(units_of(wire, count));
    end += units.counts.back();
  }
}

}  // namespace

uint64_t BlockList::total() const { return std::accumulate(counts.begin(), counts.end(), uint64_t{0}); }

uint64_t BlockList::extent() const {
  uint64_t end = 0;
  for (size_t i = 0; i < counts.size(); ++i)
    if (counts[i]) end = std::max(end, begins[i] + counts[i]);
  return end;
}

uint64_t BlockTable::length_of(uint32_t collective, uint32_t nranks, uint32_t rank, uint32_t block_class) const {
  if (equal_form(collective) == TUTTI_ALL_TO_ALL)
    return block_class / nranks == rank ? in.counts[block_class % nranks] : out.counts[block_class / nranks];
  const BlockList& all = all_blocks(*this, nranks);
  if (all.counts.size() == nranks) return all.counts[block_class];
  return in.counts.empty() ? out.counts[0] : in.counts[0];  // its own, the only one that it knows
}

uint64_t BlockTable::shape_count(uint32_t collective, uint32_t nranks) const {
  if (!all_know_blocks(collective)) return 0;
  const uint64_t mean = all_blocks(*this, nranks).total() / nranks;
  return mean ? ~uint64_t{0} >> std::countl_zero(mean) : 1;
}

uint64_t chunk_length(const Plan& plan, uint32_t nranks, uint32_t rank, uint32_t buffer, uint32_t chunk) {
  const Lengths lengths(plan, nranks, rank);
  return buffer == TUTTI_BUFFER_SCRATCH ? lengths.of_scratch(chunk) : lengths.in_buffer(buffer, chunk).second;
}

void bind_blocks(Plan& plan, const BlockTable& table, uint32_t nranks, uint32_t rank) {
  plan.unequal.table.in = table.in;
  plan.unequal.table.out = table.out;
  if (plan.shape.wire) {
    fill_units(plan.shape.wire, table.in, plan.unequal.units.in);
    fill_units(plan.shape.wire, table.out, plan.unequal.units.out);
  }
  const Lengths lengths(plan, nranks, rank);
  const Binding binding(plan, lengths);
  for (Operand& part : plan.parts) binding.bind(part);
  for (Operand& source : plan.sources) binding.bind(source);
  for (auto& lane : plan.lanes)
    for (BoundStep& step : lane) {
      binding.bind(step.dst);
      binding.bind(step.src);
    }
  if (plan.shape.wire) place_codes(plan, plan.unequal.units.in.total(), plan.unequal.units.out.total());
  const uint64_t bytes_before = plan.call_bytes, element = plan.shape.number_bytes();
  plan.in_bytes = table.in.extent() * element;
  plan.out_bytes = table.out.extent() * element;
  plan.call_bytes = std::max(table.in.total(), table.out.total()) * element;
  if (std::bit_width(plan.call_bytes) != std::bit_width(bytes_before)) plan.moves = nullptr;
  plan.common_hash = plan.unequal.way_hash;
  plan.count = 0;
  if (!all_know_blocks(plan.shape.collective)) return;
  const BlockList& all = all_blocks(table, nranks);
  plan.count = all.total();
  plan.common_hash = hash_bytes(all.counts.data(), all.counts.size() * sizeof(uint64_t), plan.common_hash);
}

}  // namespace tutti::core
