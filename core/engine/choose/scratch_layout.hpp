// SPDX-License-Identifier: Apache-2.0
//
// The places of a schedule's chunks at one size, and the scratch memory that it needs. A plugin's schedule may ask for
// more than there are numbers: sums and products stay at the largest, which no limit allows.
#pragma once

#include <tutti/schedule.h>

#include <cstdint>
#include <vector>

namespace tutti::core {

// Chunk addresses of one schedule at one size, in elements.
class ChunkLayout {
 public:
  ChunkLayout(const Schedule& schedule, uint64_t count);
  uint64_t length_of(uint32_t piece) const { return bounds_[piece + 1] - bounds_[piece]; }
  // The first element of a chunk; one past the last chunk of a buffer gives its end.
  uint64_t begin_of(uint32_t buffer, uint32_t chunk) const {
    if (buffer == TUTTI_BUFFER_SCRATCH) return scratch_[chunk];
    return chunk / pieces_ * bounds_.back() + bounds_[chunk % pieces_];
  }
  uint64_t scratch_elements() const { return scratch_.back(); }

 private:
  uint32_t pieces_;
  std::vector<uint64_t> bounds_;
  std::vector<uint64_t> scratch_;
};

struct ScratchLayout {
  uint64_t bytes = 0;           // of one launch
  uint64_t copy_bytes = 0;      // distance between two slices' copies
  uint32_t copies = 0;          // 0: laid out whole
  std::vector<uint64_t> slots;  // in copies: each chunk's byte offset in a copy
};
ScratchLayout lay_out_scratch(const Schedule& schedule, const ChunkLayout& layout, uint64_t slices,
                              uint32_t element_bytes);

// The scratch that a launch of the schedule would need, in bytes.
uint64_t scratch_need(const Schedule& schedule, uint64_t count, uint32_t element_bytes, uint64_t slices);
// The same in one slice for unequal blocks of which no class has more elements: what is there of several classes is
// no more together.
uint64_t unequal_scratch_need(const Schedule& schedule, uint64_t total, uint32_t element_bytes);

}  // namespace tutti::core
