// SPDX-License-Identifier: Apache-2.0
#include "comm/departures.hpp"

#include <fmt/format.h>

#include "engine/fabric/pair_messages.hpp"

namespace tutti::core {
namespace {

// A transfer that has waited for less asks nobody.
constexpr uint64_t short_wait_ns = 10'000'000;

struct LeavingWord {
  bool asks = false;
  TransferCounts counts;  // of a rank that leaves

  static void fields(auto& wire, auto& word) { wire(word.asks, word.counts.told, word.counts.answered); }
};

// Without room for it the other rank waits for its deadline, as it would have without a question.
void say(ControlPlane& control, uint32_t rank, const LeavingWord& word) try {
  control.send_pair(rank, encode(PairMessageParts{std::string(words_of_leaving), encode(word)}));
} catch (const Failure&) {
}

}  // namespace

void Departures::look(uint64_t now_ns) {
  if (now_ns > short_wait_ns) {
    transfers_.visit_awaited(now_ns - short_wait_ns, [this](uint32_t rank) { ask(rank); });
    if (!asked_all_ && transfers_.awaits_any(now_ns - short_wait_ns)) {
      for (uint32_t r = 0; r < control_.nranks(); ++r) ask(r);
      asked_all_ = true;
    }
  }
  if (departed_.empty()) return;
  const Transfer* const left = transfers_.left_behind(departed_);
  if (!left) return;
  const uint32_t culprit = left->any_peer ? departed_.begin()->first : left->peer;
  breakdown_.fail({TUTTI_PEER_FAILED, culprit,
                   fmt::format("has not matched rank {}'s {}: it destroys the communicator instead{}", control_.rank(),
                               text_of(*left), left->any_peer ? ", as all other ranks do" : "")});
}

void Departures::ask(uint32_t rank) {
  if (rank == control_.rank() || asked_[rank]) return;
  asked_[rank] = true;
  say(control_, rank, {.asks = true});
}

void Departures::answer(uint32_t rank) const { say(control_, rank, {false, transfers_.counts(rank)}); }

void Departures::receive(uint32_t from, std::string_view bytes) {
  const auto word = decode<LeavingWord>(bytes, fmt::format("rank {}'s word about leaving", from).c_str());
  if (!word.asks) {
    departed_[from] = word.counts;
    return;
  }
  askers_.push_back(from);
  if (leaves_) answer(from);
}

void Departures::leave() {
  leaves_ = true;
  for (const uint32_t rank : askers_) answer(rank);
}

}  // namespace tutti::core
