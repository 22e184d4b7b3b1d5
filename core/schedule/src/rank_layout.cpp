// SPDX-License-Identifier: Apache-2.0
#include "rank_layout.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti {

RankLayout::RankLayout(const Problem& problem, const Schedule& schedule, uint32_t rank, uint32_t slices)
    : schedule_(&schedule), slices_(slices), pieces_(schedule.pieces()) {
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
  in_base_ = out_base_ = 0;
  // If the block counts differ, the smaller buffer is block `rank` of the larger.
  if (in_ < out_) in_base_ = uint64_t{rank} * pieces_;
  if (out_ < in_) out_base_ = uint64_t{rank} * pieces_;
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

uint32_t RankLayout::piece(uint32_t buffer, uint32_t chunk) const {
  return buffer == TUTTI_BUFFER_SCRATCH ? schedule_->scratch[chunk].piece : chunk % pieces_;
}

uint32_t RankLayout::piece_at(uint32_t location) const {
  if (location >= io_ * slices_) return schedule_->scratch[(location - io_ * slices_) % scratch_].piece;
  return uint32_t(location % io_ % pieces_);
}

std::string RankLayout::name(uint32_t location) const {
  if (location >= io_ * slices_) return fmt::format("scratch[{}]", (location - io_ * slices_) % scratch_);
  const uint64_t at = location % io_;
  if (at >= out_base_ && at < out_base_ + out_) return fmt::format("out[{}]", at - out_base_);
  return fmt::format("in[{}]", at - in_base_);
}

}  // namespace tutti
