// SPDX-License-Identifier: Apache-2.0
//
// What the ranks of a communicator tell each other besides data, as long as it lives: who is lost and why, small
// notices, and what each is doing.
#pragma once
#include <tutti/plugin/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/descriptor.hpp"

namespace tutti::core {

// That a rank has ended the communicator's use, by its death or otherwise.
struct Loss {
  // How many losses its author knew of: a first cause has 0, what follows from it has more.
  uint64_t epoch = 0;
  uint32_t rank = 0;  // the culprit
  tutti_status status = TUTTI_PEER_FAILED;
  bool gone = false;   // its process has ended or has left: it cannot come back
  std::string reason;  // goes on after "rank 3 ": "died: ...", "aborted: ..."

  std::string text() const { return "rank " + std::to_string(rank) + " " + reason; }
};

// What notices are about. Each kind is sent and taken by one part of the library.
enum class NoticeKind : uint32_t {
  loss = 1,         // the control plane's own
  left = 2,         // the control plane's own
  ask = 3,          // the control plane's own
  membership = 16,  // who goes on after a failure
  calls = 17        // what ranks have called
};

struct Notice {
  uint32_t rank = 0;  // who sent it
  std::string bytes;
};
inline constexpr uint64_t kMaxNotice = 64u << 10;
// Of one kind, not yet taken; the oldest give way.
inline constexpr size_t kMaxNoticesKept = 4096;

// One rank's end of it. Any function may be called by any thread; none waits for another rank but roll_call.
//
// Whichever rank is lost, the others still reach each other, and a rank that is busy outside Tutti passes on what
// comes.
class ControlPlane {
 public:
  ControlPlane(uint32_t rank, uint32_t nranks);
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;
  virtual ~ControlPlane();

  // Is any rank lost? Costs a load.
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // The first cause: of all losses known here that of the lowest (epoch, rank), so that ranks which know the same
  // agree.
  std::optional<Loss> first_cause() const;
  // The same, once one is known here; nothing when that is not so within `limit`.
  std::optional<Loss> await_cause(std::chrono::nanoseconds limit);
  // Each lost rank's first loss.
  std::vector<Loss> losses() const;
  // Has the rank's process ended, or has it left?
  bool is_gone(uint32_t rank) const;
  // Tells all ranks that `rank` is lost, this one included; the epoch is filled in here.
  void announce(uint32_t rank, tutti_status status, std::string reason) noexcept;

  // Polls readable from when something may be new until clear_wait_fd. Valid as long as this object.
  int wait_fd() const { return wake_.get(); }
  void clear_wait_fd();

  // "process 12 on host a" of a rank, or "" where that is not known.
  virtual std::string who(uint32_t /*rank*/) const { return ""; }

  // Sends every other rank `bytes`, at most kMaxNotice: each that lives gets it once, and a sender's notices in their
  // order. Best effort: nothing tells that it has arrived.
  void send_notice(NoticeKind kind, std::string_view bytes);
  // Takes what has come of one kind.
  std::vector<Notice> take_notices(NoticeKind kind);

  // What this rank says when others call the roll. `state` is called by other threads, at any time until it is replaced
  // or this object ends: it must not wait for anything and must not call this object. nullptr: "".
  void answer_roll_calls(std::function<std::string()> state);
  // Asks every rank for its state and waits at most `limit`. Nothing where a rank did not answer: it is dead or
  // stopped, since answering takes no part of its application.
  std::vector<std::optional<std::string>> roll_call(std::chrono::nanoseconds limit);

  // This rank goes in order. `all_know`: so do all others, who need not be told. Only the first call counts.
  void leave(bool all_know) noexcept;

 protected:
  // To all other ranks.
  virtual void spread(NoticeKind kind, std::string_view bytes) = 0;
  // Says goodbye to whoever would otherwise take this rank's end for a death.
  virtual void say_goodbye() {}
  // To the rank that asked with `number`.
  virtual void reply(uint32_t asker, uint64_t number, std::string_view bytes) = 0;

  // For implementations; `bytes` come from another rank and are checked here. Throws Failure when they are ill.
  void deliver(uint32_t origin, NoticeKind kind, std::string_view bytes);
  void deliver_reply(uint32_t origin, uint64_t number, std::string_view bytes);
  // A loss that was noticed here: noted, and spread unless it is known already.
  void notice_loss(uint32_t rank, std::string reason);
  // "rank 3: control plane: "
  std::string me() const { return "rank " + std::to_string(rank_) + ": control plane: "; }

  const uint32_t rank_;
  const uint32_t nranks_;

 private:
  struct RollCall {
    std::vector<std::optional<std::string>> answers;
    uint32_t missing = 0;
  };
  // Notes a loss; false: nothing new. state_mutex_ is held.
  bool note(const Loss& loss);
  void wake();

  mutable std::mutex state_mutex_;
  std::condition_variable changed_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> leaving_{false};
  std::map<uint32_t, Loss> lost_;  // by rank
  std::vector<char> left_;
  std::map<NoticeKind, std::deque<Notice>> notices_;
  std::function<std::string()> state_;
  std::map<uint64_t, RollCall> roll_calls_;  // by number
  uint64_t next_roll_call_ = 1;
  Descriptor wake_;
};

}  // namespace tutti::core
