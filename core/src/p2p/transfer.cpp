// SPDX-License-Identifier: Apache-2.0
#include "p2p/transfer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "bootstrap/failure.hpp"

namespace tutti::core {

std::string text_of(const Transfer& transfer) {
  return fmt::format("{} of {} bytes {} rank {} with tag {}", transfer.sending ? "send" : "receive", transfer.bytes,
                     transfer.sending ? "to" : "from", transfer.peer, transfer.tag);
}

std::vector<std::pair<const Transfer*, const Transfer*>> match_own(const std::vector<Transfer>& group, uint32_t rank) {
  std::vector<const Transfer*> sent, received;
  for (const Transfer& transfer : group)
    if (transfer.peer == rank) (transfer.sending ? sent : received).push_back(&transfer);
  if (sent.size() != received.size())
    throw Failure(TUTTI_INVALID_ARGUMENT,
                  fmt::format("{} sends to this rank itself and {} receives from it: within one group each send needs "
                              "its receive",
                              sent.size(), received.size()));
  std::vector<std::pair<const Transfer*, const Transfer*>> pairs;
  for (size_t i = 0; i < sent.size(); ++i) {
    if (sent[i]->bytes != received[i]->bytes || sent[i]->tag != received[i]->tag)
      throw Failure(TUTTI_MISMATCH, fmt::format("this rank's {} met its {}: both must be equal in size and tag",
                                                text_of(*sent[i]), text_of(*received[i])));
    pairs.emplace_back(sent[i], received[i]);
  }
  return pairs;
}

void require_apart(const std::vector<Transfer>& group) {
  if (group.size() < 2) return;
  std::vector<const Transfer*> sorted;
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
