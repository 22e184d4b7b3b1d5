// SPDX-License-Identifier: Apache-2.0
//
// Do all ranks make the same call? Two ways to know, both over control messages, so that no lane of an operation is
// touched.
//
// Checked mode: before each collective is launched all ranks learn of all calls, by dissemination. In round k a rank
// tells what it knows to the rank 2^k after it and hears from the rank 2^k before it. After ceil(log2 n) rounds
// everybody knows the lowest rank's call and the lowest rank that differs from it. Where one differs the rounds are run
// once more, so that nobody ends before all know. Then all fail with the same words, and no result has been written.
//
// Where only the two ends of a block know its size, three stages follow each other:
//
//   calls      the calls are disseminated, so all ranks are in this one
//   counts     each sender tells each receiver its count, and each receiver compares
//   findings   the calls are disseminated again, now with what was found
//
// Otherwise: when a rank uses a plan for the first time it tells the plan's peers which call it is for, before the
// first byte, and waits for nothing. A rank compares such a notice with its own call of that number: one that it has
// made, or when it comes to make it. Notices can be lost where a link has no room.
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
// A dissemination ends only when all ranks have begun it, so a peer is at most one ahead. Counts bear the number of the
// dissemination that follows them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/failure.hpp"
#include "engine/fabric/link.hpp"
#include "engine/plan/block_table.hpp"
#include "record/call.hpp"

namespace tutti::core {

class FlightRecorder;

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
  CallCheck(uint32_t rank, uint32_t nranks, bool checked, std::vector<Link>& links, FlightRecorder& recorder,
            const std::string& name);
  bool checked() const { return checked_; }

  // ---- Checked mode. To be called again until true: all ranks make this call, and where they pass unequal blocks the
  // two ends of each have one count. Throws CallsDiffer on every rank when they do not.
  bool check(const Call& mine, const BlockTable& table);
  // Where the check under way stands, as text; "": there is none.
  std::string where() const;

  // ---- Otherwise.
  // Tells the peers of `links` about the first use of a plan.
  void notify(const Call& mine, const std::vector<Link*>& links) const;
  // Has somebody told of calls that this rank has not made yet?
  bool has_notices() const { return notices_waiting_ != 0; }
  // Compares such a notice with the call that this rank is about to make.
  std::optional<CallDifference> compare_notices(const Call& mine);

  // ---- Both.
  // Is it the type with which control messages of this class begin? (point_to_point.cpp has the others.)
  static bool receives(uint32_t type) { return type >= type_call && type <= type_notice; }
  // Such a message. `next` is the number of this rank's next call. Returns "", or how the message breaks the protocol.
  std::string on_control(uint32_t peer, const std::byte* data, uint64_t bytes, uint64_t next,
                         std::optional<CallDifference>* difference);

 private:
  enum : uint32_t { type_call = 0x54544341, type_count, type_notice };
  // The known calls of one dissemination: the lowest rank's, and the lowest rank's that differs from it.
  struct KnownCalls {
    uint32_t rank = UINT32_MAX, odd_rank = UINT32_MAX;
    Call call, odd_call;
    void add(uint32_t of_rank, const Call& of_call);
    bool differs() const { return odd_rank != UINT32_MAX; }
  };
  // Counts and notices have the sender's own call only. A count is its `call.count`.
  struct CheckMessage {
    uint32_t type;
    uint32_t round;
    uint64_t number;
    uint32_t rank, odd_rank;
    Call call, odd_call;
    EarlierCalls earlier;  // the sender's
  };
  static_assert(sizeof(CheckMessage) <= TUTTI_CONTROL_BYTES);
  // One dissemination, and the counts that come before it.
  struct Heard {
    uint64_t rounds = 0;  // a bit for each
    KnownCalls known;
    EarlierCalls earlier;                         // of the rank before this one
    std::vector<std::optional<uint64_t>> counts;  // by rank
  };
  enum class CheckStage { none, calls, counts, findings };
  Heard& of(uint64_t number) { return heard_[number & 1]; }
  const Heard& now() const { return heard_[number_ & 1]; }
  uint32_t rounds() const { return now().known.differs() ? 2 * round_count_ : round_count_; }
  uint32_t distance(uint32_t round) const { return 1u << (round % round_count_); }
  // The ranks to which this one tells something in a round, and from which it hears.
  uint32_t after(uint32_t round) const { return (rank_ + distance(round)) % nranks_; }
  uint32_t before(uint32_t round) const { return (rank_ + nranks_ - distance(round) % nranks_) % nranks_; }
  CheckMessage own_message(uint32_t type, const Call& call) const;
  bool send(const CheckMessage& message, uint32_t peer, const char* what);
  void begin(const Call& mine, CheckStage stage);
  bool disseminate(const Call& mine);
  bool exchange_counts(const Call& mine, const BlockTable& table);
  Call compare_counts(const Call& mine, const BlockTable& table) const;
  void compare_order(const Call& mine, const EarlierCalls& theirs) const;
  std::string receive(uint32_t peer, const CheckMessage& message);

  const uint32_t rank_, nranks_, round_count_;
  const bool checked_;
  std::vector<Link>& links_;
  FlightRecorder& recorder_;
  const std::string name_;

  CheckStage stage_ = CheckStage::none;
  uint64_t number_ = 0;  // of the dissemination under way, or of the next one
  uint32_t round_ = 0;
  uint32_t told_ = 0;     // rounds of the dissemination, or ranks of the exchange, whose message is sent
  EarlierCalls earlier_;  // of this rank
  std::array<Heard, 2> heard_;

  struct CallNotice {
    uint32_t peer = 0;
    bool waiting = false;
    Call call;
  };
  static constexpr size_t most_notices = 64;  // about calls to come; what finds no place is dropped
  std::array<CallNotice, most_notices> notices_;
  uint32_t notices_waiting_ = 0;
};

}  // namespace tutti::core
