// SPDX-License-Identifier: Apache-2.0
//
// Schedules carried out on numbers: one 64-bit number stands for each chunk of each slice, all different and odd, so
// that no wrong combination comes out right by chance. A reduction adds; LOAD and FINAL multiply by constants.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mutants/schedules/mutation.hpp"

namespace tutti::conformance {

struct Sizes;

// A chunk of one slice: where it lies, and how many elements it has there.
struct Chunk {
  uint32_t location = 0;
  uint64_t elements = 0;
};

using Memory = std::vector<uint64_t>;  // by location

class Numbers {
 public:
  Numbers(const ScheduleSet& set, Sizes sizes);

  // The chunks of a span at a rank; none for a span of no buffer.
  std::vector<Chunk> chunks(uint32_t rank, const tutti_span& span, uint32_t slice) const;
  // Inputs in place, everything else a number that nobody expects.
  Memory memory() const;
  // "" when every output is right and no input was changed out of place.
  std::string judge(const Memory& memory) const;

  static uint64_t loaded(uint64_t value) { return value * 0x9e3779b97f4a7c15u; }
  static uint64_t finished(uint64_t value) { return value * 0xc2b2ae3d27d4eb4fu; }

 private:
  struct Rank {
    uint64_t in = 0, out = 0, scratch = 0;  // chunks
    uint64_t in_base = 0, out_base = 0;     // in locations of one slice
    uint64_t slice_locations = 0;           // of IN and OUT
    uint64_t base = 0, scratch_base = 0;
    uint32_t copies = 0;
    bool in_place = false;
  };
  // Of what has this size in one slice; block `block` of a buffer has the size of its class.
  uint64_t elements(const tutti_extent& extent, uint32_t slice) const;
  tutti_extent extent_of(uint32_t rank, uint32_t buffer, uint64_t chunk) const;
  uint64_t input(uint32_t rank, uint64_t chunk, uint32_t slice) const;
  uint64_t expected(uint32_t rank, uint64_t chunk, uint32_t slice) const;

  const ScheduleSet& set_;
  uint32_t slices_;
  uint64_t pieces_;
  std::vector<std::vector<uint64_t>> bounds_;  // of each class
  std::vector<Rank> ranks_;
  uint64_t locations_ = 0;
};

}  // namespace tutti::conformance
