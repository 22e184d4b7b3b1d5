// SPDX-License-Identifier: Apache-2.0
//
// The exchange of the ranks of a communicator besides data: losses and their causes, small notices, the activity of
// each rank, pair messages, and all-gathers. It lasts as long as the communicator.
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

#include "base/deadline.hpp"
#include "base/failure.hpp"
#include "base/wire.hpp"
#include "bootstrap/pair_ledger.hpp"
#include "bootstrap/traffic.hpp"

namespace tutti::core {

// The most bytes that one rank may give to one all_gather.
inline constexpr uint64_t kMaxContribution = 4u << 20;

// A rank has ended its use of the communicator, by its death or otherwise.
struct Loss {
  // The number of losses that its author knew of: 0 for a first cause, more for its consequences.
  uint64_t epoch = 0;
  uint32_t rank = 0;  // the culprit
  tutti_status status = TUTTI_PEER_FAILED;
  bool gone = false;      // its process has ended or has left: it cannot come back
  std::string reason;     // goes on after "rank 3 ": "died: ...", "aborted: ..."
  uint64_t gathers = 0;   // all_gathers that its author had completed
  bool innocent = false;  // `rank` only tells of the failure: which rank is at fault is not known

  static void fields(auto& wire, auto& loss) {
    wire(loss.epoch, loss.rank, loss.status, loss.gone, loss.reason, loss.gathers, loss.innocent);
  }
  std::string text() const { return "rank " + std::to_string(rank) + " " + reason; }
};

// The kinds of notices. Each kind is sent and taken by one part of the library.
enum class NoticeKind : uint32_t {
  membership = 16,  // the members of the next communicator
  calls = 17        // what ranks have called
};

struct Notice {
  uint32_t rank = 0;  // the sender
  std::string bytes;
};
inline constexpr uint64_t kMaxNotice = 64u << 10;
// The most notices of one kind that wait to be taken. Beyond it the oldest are dropped.
inline constexpr size_t kMaxNoticesKept = 4096;

struct Packet;  // what travels between control planes
enum class Route : uint32_t;

// The user of a control plane that carries others (trunk.hpp). Called by threads that deliver, without a lock: may
// send, must not wait.
class ControlListener {
 public:
  // There are pair messages to take.
  virtual void pair_messages_came() = 0;
  // A rank's process has ended without a word.
  virtual void rank_died(const Loss& loss) = 0;

 protected:
  ~ControlListener() = default;
};

// One round of an all_gather: the rank passes on the bytes of so many ranks up to itself, and gets as many.
struct GatherRound {
  uint32_t to = 0, from = 0;
  uint64_t blocks = 0;
};
std::vector<GatherRound> gather_rounds(uint32_t rank, uint32_t nranks);

// The most packets that one rank may have sent to another over a trunk and that the other has not taken.
inline constexpr uint64_t kMaxBranchPacketsUntaken = 1u << 16;

// One rank's end of it. Any function may be called by any thread; only roll_call, all_gather and what is called await
// wait for other ranks.
//
// Whichever rank is lost, the others still reach each other, and a rank that is busy outside Tutti passes on what
// comes.
class ControlPlane {
 public:
  ControlPlane(uint32_t rank, uint32_t nranks);
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;
  virtual ~ControlPlane();

  uint32_t rank() const { return rank_; }
  uint32_t nranks() const { return nranks_; }

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
  // Tells all ranks that `rank` is lost, this one included; the epoch is filled in here. `innocent`: as in Loss.
  void announce(uint32_t rank, tutti_status status, std::string reason, bool innocent = false) noexcept;

  // A thread's sleep that ends when something may be new. [one thread; one at a time of each control plane]
  class Sleep {
   public:
    explicit Sleep(ControlPlane& control);
    ~Sleep();
    Sleep(const Sleep&) = delete;
    Sleep& operator=(const Sleep&) = delete;
    // Polls readable when something is new since the last sleep; the thread's own, and that of all its sleeps. -1: the
    // process has no descriptor left.
    int fd() const { return fd_; }

   private:
    ControlPlane& control_;
    const int fd_;
  };
  // Ends such sleeps.
  void interrupt() { wake(); }

  // This rank's traffic so far. A control plane among threads sends nothing.
  virtual Traffic traffic() const { return {}; }

  // "process 12 on host a" of a rank, or "" where that is not known.
  virtual std::string who(uint32_t /*rank*/) const { return ""; }

  // Sends every other rank `bytes`, at most kMaxNotice: each that lives gets it once, and a sender's notices in their
  // order. Best effort: nothing tells that it has arrived.
  void send_notice(NoticeKind kind, std::string_view bytes);
  // Takes what has come of one kind.
  std::vector<Notice> take_notices(NoticeKind kind);

  // Sends `bytes`, at most kMaxPairMessage, to one other rank: they come once, in the order in which this rank has sent
  // them to it, as long as both live, whichever other ranks die. Never waits. Messages to a rank that is gone are
  // dropped. Messages that a rank sent before it left may be lost with it. Throws Failure: TUTTI_INVALID_ARGUMENT for
  // too many bytes, this rank itself or none of the ranks; TUTTI_NO_RESOURCES once kMaxPairsUntaken messages to that
  // rank have not been taken there. Where memory lacks to send it, it goes when this rank next takes its own.
  void send_pair(uint32_t peer, std::string_view bytes);
  // Takes what has come. Ends a Sleep when there is something.
  std::vector<PairMessage> take_pair_messages();
  // Makes this plane a trunk: `listener`, which outlives it, takes the pair messages, which may be as long as any
  // packet of a branch, and as many as kMaxBranchPacketsUntaken. On all ranks, before any sends one.
  void carry_branches(ControlListener& listener);
  // Waits until the peer has taken all pair messages, at most `limit` and as long as it is there.
  void await_taken(uint32_t peer, std::chrono::nanoseconds limit) const;
  // Tells the others that this rank will not be missed; it goes on to pass on what comes.
  void announce_left() noexcept;
  // Waits until all others have left or are lost, or abandon() is called.
  void await_others_gone();
  void abandon();
  // Is there a message to take, or one that goes when this rank takes its own? Costs two loads.
  bool has_pair_messages() const {
    return has_pairs_.load(std::memory_order_acquire) || has_unsent_.load(std::memory_order_acquire);
  }

  // This rank's answer to a roll call. `state` is called by other threads, at any time until it is replaced or this
  // object ends: it must not wait for anything and must not call this object. nullptr: "".
  void answer_roll_calls(std::function<std::string()> state);
  // Asks every rank for its state and waits at most `limit`. Nothing where a rank did not answer: it is dead or
  // stopped, since answering takes no part of its application.
  std::vector<std::optional<std::string>> roll_call(std::chrono::nanoseconds limit);

  // Collective, one thread at a time: every rank gives its bytes (at most kMaxContribution, any length), all ranks get
  // all of them in rank order. Takes log2(nranks) rounds of one message to a neighbour and one from another (Bruck et
  // al. 1997, section 3). Throws Failure: the first cause with its status when a rank is lost, TUTTI_PEER_FAILED naming
  // a rank that has left instead, TUTTI_TIMEOUT naming the ranks that did not arrive. A rank that throws announces
  // itself as lost, so that the gather ends on all; its further ones throw TUTTI_INVALID_USAGE with that cause. A loss
  // told by a rank that has completed the gather does not end it: all have come by then, and what they have sent is on
  // its way.
  std::vector<std::string> all_gather(const std::string& mine, const Deadline& deadline);
  std::vector<std::string> all_gather(const std::string& mine, std::chrono::nanoseconds timeout) {
    return all_gather(mine, Deadline(timeout));
  }

  // Does another rank wait in the all_gather that this rank has not entered? Costs a load.
  bool is_awaited() const { return awaited_.load(std::memory_order_acquire); }
  // One that does and what it has given. Of ranks that wait for those that do not come, some rank that has not come always knows
  // one: a rank's first part goes to the rank after it.
  struct Contribution {
    uint32_t rank = 0;
    std::string bytes;
  };
  std::optional<Contribution> awaited_by() const;

  // The ranks that have not come to this rank's last all_gather, as far as they answer within a second.
  std::vector<uint32_t> absent() {
    std::unique_lock lock(state_mutex_);
    const uint64_t gather = gathers_;
    lock.unlock();
    return absent_from(gather);
  }

  // This rank goes in order. `all_know`: so do all others, who need not be told. Only the first call counts.
  void leave(bool all_know) noexcept;

 protected:
  // Lets a packet of this rank's travel by its route; it may be lost with a rank on the way.
  virtual void send(Packet packet) = 0;
  // Says goodbye to those that would otherwise take this rank's end for a death.
  virtual void say_goodbye() {}

  // For implementations. A packet has come that is flooded or for this rank. Throws Failure when its bytes are ill.
  void deliver(const Packet& packet);
  // The rank has closed its connection in order. The other packets of that rank came before.
  void deliver_goodbye(uint32_t origin);
  // A rank's end, of which every rank learns by itself.
  void learn_of_death(uint32_t rank, std::string reason);
  // A rank's end that was noticed here: noted, and spread unless it is known already.
  void notice_loss(uint32_t rank, std::string reason);
  // Sends again the pair messages that the loss of another rank may have swallowed, when that is due. When it is due
  // next; nothing: only after another rank is lost. Called after each delivery by an implementation that can lose them.
  std::optional<Deadline::Clock::time_point> send_pairs_again();
  // The ranks that have not entered this all_gather, as far as they answer within a second; without those that wait for
  // others in an earlier one. The bytes of so many ranks up to this one are `held`.
  std::vector<uint32_t> absent_from(uint64_t gather, uint32_t held = 1);
  // "rank 3: control plane: "
  std::string me() const { return "rank " + std::to_string(rank_) + ": control plane: "; }

  const uint32_t rank_;
  const uint32_t nranks_;

 private:
  // The state of a rank, as known here.
  struct PeerState {
    std::optional<Loss> loss;  // the first
    bool left = false;
    bool closed = false;  // nothing more comes from it directly
    // The last all_gather that it may complete: once it has left, the last that it had entered (where that one failed,
    // the rank has told why, or all ranks hear of it by themselves); once it has told that it is lost, the last
    // completed.
    std::optional<uint64_t> last_gather;

    bool gone() const { return left || (loss && loss->gone); }
  };
  struct Answer {
    uint64_t gathers = 0;        // that the rank has entered
    uint64_t completed = 0;      // of them
    std::vector<uint32_t> left;  // whose connection to it ended in order: its neighbours alone know that they had come
    std::string state;

    static void fields(auto& wire, auto& answer) {
      wire(answer.gathers, answer.completed, answer.left, RawBytes(answer.state));
    }
  };
  using Answers = std::vector<std::optional<Answer>>;  // by rank

  // Notes a loss; false: nothing new. state_mutex_ is held.
  bool note(const Loss& loss);
  // Notes a loss that was found here, and tells it when it is new.
  void report(Loss loss);
  void receive_loss(const Packet& packet);
  void wake();
  Answer own_answer();
  Answers ask_all(std::chrono::nanoseconds limit);
  // nullptr: none is known. state_mutex_ is held.
  const Loss* first_loss() const;
  std::vector<std::string> disseminate(uint64_t gather, const std::string& mine, const Deadline& deadline);
  std::string await_part(uint64_t gather, uint32_t from, uint32_t held, const Deadline& deadline);
  std::optional<std::string> part_by(uint64_t gather, uint32_t from, const Deadline& deadline);
  // Why `from`'s part can no longer come; nothing: it can. state_mutex_ is held.
  std::optional<Failure> part_is_lost(uint64_t gather, uint32_t from) const;
  void keep_part(const Packet& packet);
  void take_pair(const Packet& packet);
  void notify_listener(const Loss& loss);
  bool others_gone() const;
  struct Untaken;
  Untaken untaken(Route route) const;
  void send_unsent();
  // A rank that may have carried pair messages does so no more.
  void routes_changed(uint32_t rank);

  mutable std::mutex state_mutex_;
  std::condition_variable changed_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> leaving_{false};
  std::atomic<bool> awaited_{false};
  bool abandoned_ = false;
  std::vector<PeerState> peers_;  // by rank
  uint64_t losses_ = 0;      // how many ranks are lost
  std::map<NoticeKind, std::deque<Notice>> notices_;
  std::function<std::string()> state_;
  std::map<uint64_t, Answers> roll_calls_;  // by number
  uint64_t next_roll_call_ = 1;
  uint64_t gathers_ = 0, completed_ = 0;                        // entered and completed by this rank
  std::string broken_;                                          // why one threw
  uint64_t completed_somewhere_ = 0;                            // by a rank that said so when it told of a loss
  std::map<std::pair<uint64_t, uint32_t>, std::string> parts_;  // by (gather, from), not yet taken
  mutable std::mutex pair_mutex_;                               // guards what follows
  PairLedger pairs_;
  std::atomic<bool> has_pairs_{false};
  std::atomic<bool> has_unsent_{false};  // there was no memory to send one, or to tell that one was taken
  ControlListener* listener_ = nullptr;  // a trunk's
  size_t resends_ = 0;                   // since the last loss
  std::optional<Deadline::Clock::time_point> resend_at_;
  std::mutex sleep_mutex_;  // guards what follows; taken last
  std::vector<int> sleepers_;
  bool is_news_ = false;
};

}  // namespace tutti::core
