// SPDX-License-Identifier: Apache-2.0
#include "comm/call_group.hpp"

#include <tutti/registry.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <cstring>

namespace tutti::core {
namespace {

// Larger ones gain nothing: the copies cost what the messages would. Equal on all ranks, like all that decides.
constexpr uint64_t largest_joined = 8 * 1024, largest_part = 512 * 1024;
constexpr size_t alignment = 64;

bool may_join(const GroupedCall& made) {
  const Shape& shape = made.call.shape;
  return !made.on_stream && !is_of_application(shape.op) && !made.blocks && shape.collective != TUTTI_BARRIER;
}

}  // namespace

uint64_t CallGroup::call_bytes(const Shape& shape) const {
  const auto at_root = [&](uint32_t buffer) -> uint64_t {
    return block_count(shape.collective, nranks_, shape.root, shape.root, buffer);
  };
  return std::max(at_root(TUTTI_BUFFER_IN), at_root(TUTTI_BUFFER_OUT)) * shape.count * dtype_bytes(shape.dtype);
}

bool CallGroup::joins(const GroupPart& part, const GroupedCall& made) const {
  const GroupedCall& first = calls[part.calls.front()];
  const Shape &a = first.call.shape, &b = made.call.shape;
  return may_join(first) && a.collective == b.collective && a.dtype == b.dtype && a.op == b.op && a.order == b.order &&
         a.algorithms == b.algorithms && a.root == b.root && first.call.tag == made.call.tag &&
         call_bytes(part.shape) <= largest_part && call_bytes(a) <= largest_joined;
}

void CallGroup::divide(uint32_t rank, uint32_t nranks) {
  rank_ = rank;
  nranks_ = nranks;
  parts_.clear();
  for (uint32_t i = 0; i < calls.size(); ++i) {
    const GroupedCall& made = calls[i];
    const bool small = may_join(made) && call_bytes(made.call.shape) <= largest_joined;
    const auto found =
        small ? std::ranges::find_if(parts_, [&](const GroupPart& part) { return joins(part, made); }) : parts_.end();
    if (found == parts_.end()) {
      GroupPart& part = parts_.emplace_back();
      part.calls = {i};
      part.shape = made.call.shape;
    } else {
      found->calls.push_back(i);
      found->shape.count += made.call.shape.count;
      found->shape.in_place = 0;
    }
  }
  size_t end = 0;
  const auto place = [&](const GroupPart& part, uint32_t buffer) {
    const size_t begin = (end + alignment - 1) / alignment * alignment;
    end = begin + part.block_bytes * block_count(part.shape.collective, nranks_, part.shape.root, rank_, buffer);
    return begin;
  };
  for (GroupPart& part : parts_) {
    if (!part.several()) continue;
    part.block_bytes = part.shape.count * dtype_bytes(part.shape.dtype);
    part.in = place(part, TUTTI_BUFFER_IN);
    part.out = place(part, TUTTI_BUFFER_OUT);
  }
  memory_.resize(end);
}

// Calls `copy(call, place in the call's buffer, place in the part's, bytes)` for each block of each call.
template <typename Copy>
void CallGroup::for_each_block(const GroupPart& part, uint32_t buffer, Copy&& copy) const {
  const Shape& shape = part.shape;
  const uint32_t blocks = block_count(shape.collective, nranks_, shape.root, rank_, buffer);
  uint64_t before = 0;  // bytes of earlier calls in each block
  for (const uint32_t i : part.calls) {
    const StreamCall& call = calls[i].call;
    const uint64_t bytes = call.shape.count * dtype_bytes(shape.dtype);
    for (uint32_t b = 0; b < blocks && bytes; ++b) copy(call, b * bytes, b * part.block_bytes + before, bytes);
    before += bytes;
  }
}

HostBuffers CallGroup::buffers(const GroupPart& part) {
  if (!part.several()) {
    const GroupedCall& made = calls[part.calls.front()];
    return {made.call.in, made.call.out, made.factor, made.call.tag};
  }
  std::byte* const in = memory_.data() + part.in;
  for_each_block(part, TUTTI_BUFFER_IN, [in](const StreamCall& call, uint64_t from, uint64_t to, uint64_t bytes) {
    std::memcpy(in + to, static_cast<const std::byte*>(call.in) + from, bytes);
  });
  return {in, memory_.data() + part.out, {}, calls[part.calls.front()].call.tag};
}

void CallGroup::unpack(const GroupPart& part) const {
  if (!part.several() || (part.shape.collective == TUTTI_EXCLUSIVE_SCAN && rank_ == 0)) return;  // which has no result
  const std::byte* const out = memory_.data() + part.out;
  for_each_block(part, TUTTI_BUFFER_OUT, [out](const StreamCall& call, uint64_t to, uint64_t from, uint64_t bytes) {
    std::memcpy(static_cast<std::byte*>(call.out) + to, out + from, bytes);
  });
}

}  // namespace tutti::core
