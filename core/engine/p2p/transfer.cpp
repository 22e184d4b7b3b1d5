// SPDX-License-Identifier: Apache-2.0
#include "engine/p2p/transfer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/failure.hpp"

namespace tutti::core {

std::string text_of(const Transfer& transfer) {
  return fmt::format("{} of {} bytes {} {}", transfer.sending ? "send" : "receive", transfer.bytes,
                     transfer.sending ? "to" : "from", other_end_of(transfer));
}

std::string other_end_of(const Transfer& transfer) {
  return (transfer.any_peer ? std::string("any rank") : fmt::format("rank {}", transfer.peer)) + " with " +
         (transfer.any_tag ? std::string("any tag") : fmt::format("tag {}", transfer.tag));
}

void check_own(std::span<const Transfer> group, uint32_t rank) {
  const auto count = [&](bool sending) {
    return std::ranges::count_if(group, [&](const Transfer& t) { return t.peer == rank && t.sending == sending; });
  };
  if (count(true) != count(false))
    throw Failure(TUTTI_INVALID_ARGUMENT,
                  fmt::format("{} sends to this rank itself and {} receives from it: within one group each send needs "
                              "its receive",
                              count(true), count(false)));
  for_each_own(group, rank, [](const Transfer& send, const Transfer& receive) {
    if (send.bytes != receive.bytes || send.tag != receive.tag)
      throw Failure(TUTTI_MISMATCH, fmt::format("this rank's {} met its {}: both must be equal in size and tag",
                                                text_of(send), text_of(receive)));
  });
}

void require_apart(std::span<const Transfer> group, std::vector<const Transfer*>& sorted) {
  if (group.size() < 2) return;
  sorted.clear();
  for (const Transfer& transfer : group)
    if (transfer.bytes) sorted.push_back(&transfer);
  std::ranges::sort(sorted, {}, &Transfer::data);
  const Transfer *any = nullptr, *received = nullptr;  // of those before, the ones that end last
  const auto later = [](const Transfer* a, const Transfer* b) { return !a || b->data + b->bytes > a->data + a->bytes; };
  for (const Transfer* t : sorted) {
    const Transfer* other = t->sending ? received : any;
    if (other && other->data + other->bytes > t->data)
      throw Failure(TUTTI_INVALID_ARGUMENT,
                    fmt::format("exchange: the {} at {} and the {} at {} overlap", text_of(*other),
                                static_cast<const void*>(other->data), text_of(*t), static_cast<const void*>(t->data)));
    if (later(any, t)) any = t;
    if (!t->sending && later(received, t)) received = t;
  }
}

}  // namespace tutti::core
