// SPDX-License-Identifier: Apache-2.0
#include "engine/choose/scratch_layout.hpp"

#include <algorithm>
#include <unordered_map>

namespace tutti::core {
namespace {

uint64_t sum(uint64_t a, uint64_t b) {
  uint64_t result = 0;
  return __builtin_add_overflow(a, b, &result) ? UINT64_MAX : result;
}
uint64_t product(uint64_t a, uint64_t b) {
  uint64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? UINT64_MAX : result;
}

}  // namespace

ChunkLayout::ChunkLayout(const Schedule& schedule, uint64_t count)
    : pieces_(schedule.pieces()), bounds_(piece_bounds(schedule, count)) {
  scratch_.reserve(schedule.scratch.size() + 1);
  scratch_.push_back(0);
  for (const tutti_extent& extent : schedule.scratch) scratch_.push_back(sum(scratch_.back(), length_of(extent.piece)));
}

ScratchLayout lay_out_scratch(const Schedule& schedule, const ChunkLayout& layout, uint64_t slices,
                              uint32_t element_bytes) {
  ScratchLayout made;
  if (schedule.scratch_copies == 0 || slices <= schedule.scratch_copies) {
    made.bytes = product(layout.scratch_elements(), element_bytes);
    return made;
  }
  made.copies = schedule.scratch_copies;
  for (const tutti_extent& extent : schedule.scratch) {
    made.slots.push_back(made.copy_bytes);
    const uint64_t most = (layout.length_of(extent.piece) + slices - 1) / slices;
    made.copy_bytes = sum(made.copy_bytes, sum(product(most, element_bytes), 63) / 64 * 64);
  }
  made.bytes = product(made.copy_bytes, made.copies);
  return made;
}

uint64_t scratch_need(const Schedule& schedule, uint64_t count, uint32_t element_bytes, uint64_t slices) {
  return lay_out_scratch(schedule, ChunkLayout(schedule, count), slices, element_bytes).bytes;
}

uint64_t unequal_scratch_need(const Schedule& schedule, uint64_t total, uint32_t element_bytes) {
  std::unordered_map<uint64_t, uint64_t> chunks;  // of each extent
  uint64_t most = 0;
  for (const tutti_extent& extent : schedule.scratch)
    most = std::max(most, ++chunks[uint64_t{extent.block_class} << 32 | extent.piece]);
  return product(product(most, total), element_bytes);
}

}  // namespace tutti::core
