// SPDX-License-Identifier: Apache-2.0
//
// Messages from one rank to another: what was sent and not yet taken, and what has come. Nothing here does any I/O.
//
// Every message has a number of its (sender, receiver), from 1. The receiver reports the last number that its
// application has taken; until then the sender keeps the message, so that it can be sent again when a rank on its route
// has died. The receiver drops what comes twice and holds back what comes too early.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tutti::core {

inline constexpr uint64_t kMaxPairMessage = 4096 + 64;
// The most pair messages that one rank may have sent to another and that the other has not taken.
inline constexpr uint64_t kMaxPairsUntaken = 256;

struct PairMessage {
  uint32_t from = 0;
  std::string bytes;
};

// One thread at a time.
class PairLedger {
 public:
  // Before the first message: what one may hold, and how many one rank may have sent that another has not taken.
  void allow(uint64_t bytes, uint64_t untaken) {
    max_bytes_ = bytes;
    max_untaken_ = untaken;
  }
  uint64_t max_bytes() const { return max_bytes_; }
  uint64_t max_untaken() const { return max_untaken_; }
  // The message's number; 0: too many are not taken.
  uint64_t send(uint32_t peer, std::string_view bytes);
  // The peer has taken all up to `number`. Throws Failure{TUTTI_MISMATCH} when they were never sent.
  void taken(uint32_t peer, uint64_t number);
  // A message has come. False: its sender has missed that it was taken before. Throws Failure{TUTTI_MISMATCH} for a
  // number that the peer may not use yet, and for too long a message. After a std::bad_alloc the message may be given
  // again.
  bool receive(uint32_t peer, uint64_t number, std::string_view bytes);
  // Received messages, in order per sender. Now the senders can be told: taken_from.
  std::vector<PairMessage> take();
  bool has_messages() const { return !ready_.empty(); }
  // The last number taken from a rank.
  uint64_t taken_from(uint32_t peer) const;
  // Calls visit(peer, number) with the last number taken from each rank.
  template <typename Visit>
  void for_each_taken(Visit&& visit) const {
    for (const auto& [peer, in] : incoming_)
      if (in.taken) visit(peer, in.taken);
  }
  // Calls visit(peer, number, bytes) for every message not taken, in order per peer.
  template <typename Visit>
  void for_each_untaken(Visit&& visit) const {
    for (const auto& [peer, out] : outgoing_)
      for (size_t i = 0; i < out.untaken.size(); ++i) visit(peer, out.taken + 1 + i, std::string_view(out.untaken[i]));
  }
  // Has the peer taken all that was sent to it?
  bool all_taken(uint32_t peer) const {
    const auto out = outgoing_.find(peer);
    return out == outgoing_.end() || out->second.untaken.empty();
  }
  // The peer is gone: it takes nothing more.
  void forget(uint32_t peer);

 private:
  struct Outgoing {
    uint64_t taken = 0;
    std::deque<std::string> untaken;  // numbers taken + 1, ...
  };
  struct Incoming {
    uint64_t taken = 0, complete = 0;  // all up to these numbers were taken, have come
    std::map<uint64_t, std::string> early;
  };
  uint64_t max_bytes_ = kMaxPairMessage, max_untaken_ = kMaxPairsUntaken;
  std::unordered_map<uint32_t, Outgoing> outgoing_;
  std::unordered_map<uint32_t, Incoming> incoming_;
  std::vector<PairMessage> ready_;
};

}  // namespace tutti::core
