// SPDX-License-Identifier: Apache-2.0
#include "mutants/schedules/numbers.hpp"

#include <algorithm>

#include "mutants/schedules/interleavings.hpp"
#include "oracle/reference.hpp"

namespace tutti::conformance {
namespace {

uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return (x ^ (x >> 31)) | 1;
}

// Blocks of unequal sizes: some empty, some twice as long as others.
uint64_t length_of(const Problem& p, uint64_t block_class, uint64_t length) {
  if (!has_unequal_blocks(p.collective)) return length;
  return (block_class + length) % 3 == 2 ? 0 : length * (1 + block_class % 2);
}

}  // namespace

Numbers::Numbers(const ScheduleSet& set, Sizes sizes)
    : set_(set), slices_(sizes.slices), pieces_(set.schedules.front().pieces()) {
  const Problem& p = set.problem;
  for (uint64_t c = 0; c < block_classes(p.collective, p.nranks); ++c)
    bounds_.push_back(piece_bounds(set.schedules.front(), length_of(p, c, sizes.length)));
  const Operation operation{p.collective, p.nranks, p.root, 1};
  for (uint32_t rank = 0; rank < p.nranks; ++rank) {
    const Schedule& schedule = set.schedules[rank];
    Rank& r = ranks_.emplace_back();
    r.in = blocks_in(operation, rank) * pieces_;
    r.out = blocks_out(operation, rank) * pieces_;
    r.scratch = schedule.scratch.size();
    r.copies = schedule.scratch_copies ? std::min(schedule.scratch_copies, slices_) : slices_;
    r.in_place = rank < p.in_place.size() && p.in_place[rank] && r.in && r.out;
    r.out_base = r.in_place ? 0 : r.in;
    if (r.in_place && overlay_of(p.collective) == Overlay::in_is_block) r.in_base = rank * pieces_;
    if (r.in_place && overlay_of(p.collective) == Overlay::out_is_block) r.out_base = rank * pieces_;
    r.slice_locations = r.in_place ? std::max(r.in, r.out) : r.in + r.out;
    r.base = locations_;
    r.scratch_base = r.base + r.slice_locations * slices_;
    locations_ = r.scratch_base + r.scratch * r.copies;
  }
}

tutti_extent Numbers::extent_of(uint32_t rank, uint32_t buffer, uint64_t chunk) const {
  if (buffer == TUTTI_BUFFER_SCRATCH) return set_.schedules[rank].scratch[chunk];
  const Problem& p = set_.problem;
  return {block_class(p.collective, p.nranks, rank, buffer, static_cast<uint32_t>(chunk / pieces_)),
          static_cast<uint32_t>(chunk % pieces_)};
}

uint64_t Numbers::elements(const tutti_extent& extent, uint32_t slice) const {
  const std::vector<uint64_t>& bounds = bounds_[extent.block_class];
  const uint64_t length = bounds[extent.piece + 1] - bounds[extent.piece];
  return slice_begin(length, slice + 1, slices_) - slice_begin(length, slice, slices_);
}

std::vector<Chunk> Numbers::chunks(uint32_t rank, const tutti_span& span, uint32_t slice) const {
  const Rank& r = ranks_[rank];
  std::vector<Chunk> list;
  for (uint64_t i = span.first; span.buffer && i < uint64_t{span.first} + span.chunks; ++i) {
    const uint64_t here = elements(extent_of(rank, span.buffer, i), slice);
    if (span.buffer == TUTTI_BUFFER_SCRATCH) {
      list.push_back({static_cast<uint32_t>(r.scratch_base + slice % r.copies * r.scratch + i), here});
      continue;
    }
    const uint64_t at = (span.buffer == TUTTI_BUFFER_IN ? r.in_base : r.out_base) + i;
    list.push_back({static_cast<uint32_t>(r.base + slice * r.slice_locations + at), here});
  }
  return list;
}

uint64_t Numbers::input(uint32_t rank, uint64_t chunk, uint32_t slice) const {
  return mixed((uint64_t{rank} << 48 | chunk << 16 | slice) + 0x1234567);
}

Memory Numbers::memory() const {
  Memory memory(locations_);
  for (uint64_t i = 0; i < locations_; ++i) memory[i] = mixed(~i);
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank)
    for (uint32_t slice = 0; slice < slices_; ++slice)
      for (uint64_t chunk = 0; chunk < ranks_[rank].in; ++chunk)
        memory[ranks_[rank].base + slice * ranks_[rank].slice_locations + ranks_[rank].in_base + chunk] =
            input(rank, chunk, slice);
  return memory;
}

uint64_t Numbers::expected(uint32_t rank, uint64_t chunk, uint32_t slice) const {
  const Problem& p = set_.problem;
  // Chunks of a slice are the "elements" of an operation whose blocks have `pieces_` of them, whatever their sizes.
  const Operation operation{equal_form(p.collective), p.nranks, p.root, pieces_};
  if (!reduces(p.collective)) {
    const Origin origin = origin_of(operation, rank, chunk);
    return input(origin.rank, origin.index, slice);
  }
  const uint64_t index = equal_form(p.collective) == TUTTI_REDUCE_SCATTER ? rank * pieces_ + chunk : chunk;
  uint64_t sum = 0;
  for (uint32_t r = 0; r < reduced_ranks(operation, rank); ++r) sum += loaded(input(r, index, slice));
  return finished(sum);
}

std::string Numbers::judge(const Memory& memory) const {
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    const Rank& r = ranks_[rank];
    for (uint32_t slice = 0; slice < slices_; ++slice) {
      const uint64_t base = r.base + slice * r.slice_locations;
      const std::string of_slice = slices_ > 1 ? " in slice " + std::to_string(slice) : "";
      for (uint64_t chunk = 0; chunk < r.out; ++chunk)
        if (elements(extent_of(rank, TUTTI_BUFFER_OUT, chunk), slice) &&
            memory[base + r.out_base + chunk] != expected(rank, chunk, slice))
          return "rank " + std::to_string(rank) + ": out[" + std::to_string(chunk) + "] is wrong" + of_slice;
      if (r.in_place) continue;
      for (uint64_t chunk = 0; chunk < r.in; ++chunk)
        if (memory[base + r.in_base + chunk] != input(rank, chunk, slice))
          return "rank " + std::to_string(rank) + ": in[" + std::to_string(chunk) + "] was changed" + of_slice;
    }
  }
  return {};
}

}  // namespace tutti::conformance
