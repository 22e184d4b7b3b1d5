// SPDX-License-Identifier: Apache-2.0
//
// Do all ranks make the same call? Two ways to know, both over control messages, so that no lane of an operation is
// touched:
//
//   checked mode    Before each collective is launched all ranks learn of all calls, by dissemination: in round k a
//   rank
//                   tells what it knows to the rank 2^k after it and hears from the rank 2^k before it; after
//                   ceil(log2 n) rounds everybody knows the lowest rank's call and the lowest rank that differs from
//                   it. Where one differs the rounds are run once more, so that nobody ends before all know; then all
//                   fail with the same words and no result has been written.
//   otherwise       When a rank uses a plan for the first time it tells the plan's peers which call it is for, before
//                   the first byte, and waits for nothing. A rank compares such news with its own call of that number:
//                   one that it has made, or when it comes to make it. News can be lost where a link has no room.
//
// Calls whose plans have all been used before are told apart by the marks of their messages (FlightRecorder::begin),
// which a rank meets only where it receives one. Checked mode finds every difference before anything is written.
//
// Checked mode also warns of ranks that use two communicators in different order without a deadlock, since their calls
// do not block. With its call a rank tells the rank after it which calls of other communicators it made before. That
// rank compares with its own order when all ranks have made the call. Ranks of the same two communicators that differ
// are found, whatever the timing: around the ring of ranks the order changes at least twice, and one of these
// neighbours has made both calls when it compares.
//
// Since every rank of checked mode needs all others to finish a check, a peer is at most one check ahead.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/failure.hpp"
#include "engine/fabric/link.hpp"
#include "record/call.hpp"

namespace tutti::core {

class FlightRecorder;

// Control messages of this file begin with one of these (point_to_point.hpp has the others).
enum : uint32_t { type_call_check = 0x54544331, type_call_news };

// Thrown by check(): `text` is a CallDifference's reason.
struct CallsDiffer : Failure {
  explicit CallsDiffer(const CallDifference& difference)
      : Failure(TUTTI_MISMATCH, difference.reason), culprit(difference.culprit) {}
  uint32_t culprit;
};

class CallCheck {
 public:
  // `checked`: every call of check() exchanges; all ranks agree on it. `links` and the recorder outlive this object;
  // `name`: the communicator's.
  void place(uint32_t rank, uint32_t nranks, bool checked, std::vector<Link>* links, FlightRecorder* recorder,
             const std::string& name);
  bool checked() const { return checked_; }

  // ---- Checked mode. To be called again until true: all ranks make this call. Throws CallsDiffer on every rank when
  // they do not. `connect` tells whether a link is ready.
  bool check(const Call& mine, const std::function<bool(Link&)>& connect);
  bool under_way() const { return begun_; }
  // Where the check under way stands, as text.
  std::string where() const;

  // ---- Otherwise.
  // Tells the peers of `links` about the first use of a plan.
  void tell(const Call& mine, const std::vector<Link*>& links);
  // Has somebody told of calls that this rank has not made yet?
  bool has_news() const { return news_waiting_ != 0; }
  // Compares such news with the call that this rank is about to make.
  std::optional<CallDifference> compare_news(const Call& mine);

  // A control message of one of the types above. `call` gives this rank's own of a number, if it is still known, and
  // `next` is the number of its next one. Returns "", or how the message breaks the protocol.
  std::string on_control(uint32_t peer, const std::byte* data, uint64_t bytes, uint64_t next,
                         const std::function<std::optional<Call>(uint64_t sequence)>& call,
                         std::optional<CallDifference>* difference);

 private:
  // The known calls of one operation: the lowest rank's, and the lowest rank's that differs from it.
  struct Known {
    uint32_t rank = UINT32_MAX, odd_rank = UINT32_MAX;
    Call call, odd_call;
    void add(uint32_t of_rank, const Call& of_call);
    bool differs() const { return odd_rank != UINT32_MAX; }
  };
  struct Message {
    uint32_t type;
    uint32_t round;
    uint64_t sequence;
    uint32_t rank, odd_rank;
    Call call, odd_call;
    EarlierCalls earlier;  // the sender's
  };
  static_assert(sizeof(Message) <= TUTTI_CONTROL_BYTES);
  struct Round {
    uint64_t heard = 0;  // a bit for each round
    Known known;
    EarlierCalls earlier;  // of the rank before this one
  };
  Round& of(uint64_t sequence) { return rounds_[sequence & 1]; }
  uint32_t rounds() const { return known_differs_ ? 2 * round_count_ : round_count_; }
  uint32_t distance(uint32_t round) const { return 1u << (round % round_count_); }
  bool send(uint32_t round, const std::function<bool(Link&)>& connect);
  std::string hear(uint32_t peer, const Message& message);
  void compare_order(const Call& mine, const EarlierCalls& theirs) const;

  uint32_t rank_ = 0, nranks_ = 1, round_count_ = 0;
  bool checked_ = false;
  std::vector<Link>* links_ = nullptr;
  FlightRecorder* recorder_ = nullptr;
  std::string name_;

  uint64_t sequence_ = 0;  // of the check under way, or of the next one
  bool begun_ = false;
  bool sent_ = false;  // this round's message
  bool known_differs_ = false;
  uint32_t round_ = 0;
  EarlierCalls earlier_;  // of this rank
  std::array<Round, 2> rounds_;

  struct News {
    uint32_t peer = 0;
    bool waiting = false;
    Call call;
  };
  static constexpr size_t most_news = 64;  // about calls to come; what finds no place is dropped
  std::array<News, most_news> news_;
  uint32_t news_waiting_ = 0;
};

}  // namespace tutti::core
