// SPDX-License-Identifier: Apache-2.0
#include "rank_layout.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti {

std::string size_text(uint32_t collective, const tutti_extent& extent) {
  return has_unequal_blocks(collective) ? fmt::format("piece {} of class {}", extent.piece, extent.block_class)
                                        : fmt::format("piece {}", extent.piece);
}

RankLayout::RankLayout(const Problem& problem, const Schedule& schedule, uint32_t rank, uint32_t slices)
    : schedule_(&schedule),
      collective_(problem.collective),
      nranks_(problem.nranks),
      rank_(rank),
      unequal_(has_unequal_blocks(problem.collective)),
      slices_(slices),
      pieces_(schedule.pieces()) {
  const auto blocks = [&](uint32_t buffer) {
    return uint64_t{block_count(problem.collective, problem.nranks, problem.root, rank, buffer)};
  };
  in_ = blocks(TUTTI_BUFFER_IN) * pieces_;
  out_ = blocks(TUTTI_BUFFER_OUT) * pieces_;
  scratch_ = schedule.scratch.size();
  copies_ = schedule.scratch_copies == 0 ? slices : std::min(schedule.scratch_copies, slices);
  io_ = in_ + out_;
  out_base_ = in_;
  const bool in_place = !problem.in_place.empty() && problem.in_place[rank] && in_ && out_;
  if (!in_place) return;
  io_ = std::max(in_, out_);
  in_base_ = uint64_t{block_in_place(problem.collective, rank, TUTTI_BUFFER_IN)} * pieces_;
  out_base_ = uint64_t{block_in_place(problem.collective, rank, TUTTI_BUFFER_OUT)} * pieces_;
}

uint64_t RankLayout::chunks(uint32_t buffer) const {
  switch (buffer) {
    case TUTTI_BUFFER_IN:
      return in_;
    case TUTTI_BUFFER_OUT:
      return out_;
    case TUTTI_BUFFER_SCRATCH:
      return scratch_;
    default:
      return 0;
  }
}

uint32_t RankLayout::locate(const tutti_span& span, uint32_t slice) const {
  if (span.buffer == TUTTI_BUFFER_SCRATCH) return uint32_t(io_ * slices_ + (slice % copies_) * scratch_ + span.first);
  return uint32_t(io_ * slice + (span.buffer == TUTTI_BUFFER_IN ? in_base_ : out_base_) + span.first);
}

bool RankLayout::writable(const tutti_span& span) const {
  if (span.buffer != TUTTI_BUFFER_IN) return true;
  const uint64_t first = in_base_ + span.first;
  return first >= out_base_ && first + span.chunks <= out_base_ + out_;
}

tutti_extent RankLayout::extent(uint32_t buffer, uint32_t chunk) const {
  if (buffer == TUTTI_BUFFER_SCRATCH) return schedule_->scratch[chunk];
  if (!unequal_) return {0, chunk % pieces_};
  return {block_class(collective_, nranks_, rank_, buffer, chunk / pieces_), chunk % pieces_};
}

tutti_extent RankLayout::extent_at(uint32_t location) const {
  if (location >= io_ * slices_) return schedule_->scratch[(location - io_ * slices_) % scratch_];
  const uint64_t at = location % io_;
  const bool is_out = at >= out_base_ && at < out_base_ + out_;
  return is_out ? extent(TUTTI_BUFFER_OUT, uint32_t(at - out_base_)) : extent(TUTTI_BUFFER_IN, uint32_t(at - in_base_));
}

std::string RankLayout::name(uint32_t location) const {
  if (location >= io_ * slices_) return fmt::format("scratch[{}]", (location - io_ * slices_) % scratch_);
  const uint64_t at = location % io_;
  if (at >= out_base_ && at < out_base_ + out_) return fmt::format("out[{}]", at - out_base_);
  return fmt::format("in[{}]", at - in_base_);
}

}  // namespace tutti
