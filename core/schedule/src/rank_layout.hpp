// SPDX-License-Identifier: Apache-2.0
//
// The layout of a rank's chunks: chunks of IN, OUT and SCRATCH become locations, and chunks that coincide in place are
// one location. Two accesses conflict when they touch the same location and at least one of them writes.
//
// With `slices` > 1 every slice has IN and OUT locations of its own (slices of a chunk are disjoint), while scratch has
// as many copies as the schedule declares: slice s uses copy s mod copies.
#pragma once

#include <tutti/schedule.h>

namespace tutti {

inline bool same_size(const tutti_extent& a, const tutti_extent& b) {
  return a.block_class == b.block_class && a.piece == b.piece;
}
// "piece 3", in v-forms "piece 0 of class 5".
std::string size_text(uint32_t collective, const tutti_extent& extent);

class RankLayout {
 public:
  RankLayout(const Problem& problem, const Schedule& schedule, uint32_t rank, uint32_t slices);

  // How many chunks a buffer has at this rank; 0: the buffer does not exist here.
  uint64_t chunks(uint32_t buffer) const;
  // How many locations there are, of all slices; a valid schedule has fewer than 2^32.
  uint64_t locations() const { return io_ * slices_ + scratch_ * copies_; }
  // The first location of a span that lies within its buffer; the others follow.
  uint32_t locate(const tutti_span& span, uint32_t slice = 0) const;
  // May the location range of this span be written: is it output or scratch?
  bool writable(const tutti_span& span) const;
  // The piece of a block that a chunk of a buffer is.
  uint32_t piece(uint32_t buffer, uint32_t chunk) const { return extent(buffer, chunk).piece; }
  // Its size.
  tutti_extent extent(uint32_t buffer, uint32_t chunk) const;
  // The same for a location.
  tutti_extent extent_at(uint32_t location) const;
  // "out[3]": a name of a chunk that lies at this location.
  std::string name(uint32_t location) const;

  uint32_t pieces() const { return pieces_; }
  uint32_t in_base() const { return uint32_t(in_base_); }
  uint32_t out_base() const { return uint32_t(out_base_); }

 private:
  const Schedule* schedule_;
  uint32_t collective_, nranks_, rank_;
  bool unequal_;
  uint32_t slices_;
  uint32_t pieces_;
  uint64_t in_ = 0, out_ = 0, scratch_ = 0;  // chunks
  uint64_t in_base_ = 0, out_base_ = 0;
  uint64_t io_ = 0;      // locations of IN and OUT together, of one slice
  uint64_t copies_ = 0;  // of the scratch
};

}  // namespace tutti
