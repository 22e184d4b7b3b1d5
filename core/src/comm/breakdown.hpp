// SPDX-License-Identifier: Apache-2.0
//
// How a communicator fails. Each failure is a Cause. The first one that is carried out ends the communicator:
// all ranks are told, everything under way is stopped, and every pending operation ends with one status and one text,
// which never change afterwards.
//
// Failures are met in three places, and carried out in one:
//
//   fail()     by the thread that holds the communicator's engine. Before it blames a rank it asks the control plane,
//              which may know the cause already: a transport notices a death before its reason is known.
//   report()   where nothing may wait: in completions of a port, in tutti_comm_abort, and in threads of other
//              communicators that advance this one. The first cause is kept until carry_out().
//   the others announce theirs over the control plane: poll_others().
#pragma once

#include <tutti/tutti.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "base/failure.hpp"
#include "bootstrap/control_plane.hpp"

namespace tutti::core {

struct Foundation;

struct Cause {
  tutti_status status = TUTTI_OK;
  uint32_t culprit = 0;
  std::string reason;  // goes on after "rank 3 "
  // A time-out: an operation has not moved for so long. The rank that keeps it waiting is found when the cause is
  // carried out. 0: not a time-out, or its culprit is known.
  uint64_t stood_still_ns = 0;
  std::optional<uint64_t> sequence = {};  // of the operation, if it is a collective
  std::optional<uint32_t> peer = {};      // of a send or receive, unless it is any rank
  // A rank that has made other calls than this one. The first of them is found when the cause is carried out.
  std::optional<uint32_t> differs_from = {};
  bool innocent = false;  // the culprit only tells of the failure
};

class Breakdown {
 public:
  // An error's text while it is put together. A part for which there is no memory is left out.
  class ErrorText {
   public:
    template <typename Part>
    void add(Part&& part) noexcept try {
      text_ += part();
    } catch (const std::bad_alloc&) {
    }
    const std::string& text() const { return text_; }
    std::string take() noexcept { return std::move(text_); }

   private:
    std::string text_;
  };

  // The parts that end with the communicator.
  class Parts {
   public:
    // Advances the endpoints. A message of another size has come, or a link fails: by now the sender has announced the
    // call of its message, and the transport has recorded the peer that is out of reach.
    virtual void poll() = 0;
    // Where this rank stands, for messages.
    virtual std::string standpoint() const = 0;
    // Stops what is under way, and adds to the text which memory is still in use.
    virtual void stop(ErrorText& text) = 0;
    // Ends the bookkeeping of all pending operations.
    virtual void end_operations(tutti_status status, const std::string& text) = 0;

   protected:
    ~Parts() = default;
  };

  // Both outlive this object.
  Breakdown(Parts& parts, Foundation& base) : parts_(parts), base_(base) {}

  // ---- Any thread.

  // TUTTI_OK, or the status with which the communicator has ended; then text() may be read.
  tutti_status status() const {
    const tutti_status state = state_.load(std::memory_order_acquire);
    return state < 0 ? state : tutti_status{TUTTI_OK};
  }
  const std::string& text() const { return text_; }
  // The same, also where only the control plane knows it yet.
  tutti_status error() const;
  // Keeps the cause for carry_out(), unless there is one already.
  void report(Cause cause);
  // Was a cause reported? It stays so: from then on every user of the communicator takes its lock. Costs a load.
  bool pending() const { return pending_.load(std::memory_order_acquire); }

  // ---- The thread that holds the engine.

  // Has the end begun? From then on nothing moves any more.
  bool begun() const { return state_.load(std::memory_order_relaxed) != TUTTI_OK; }
  // While set, this thread belongs to another communicator and must not wait: fail() only reports.
  void set_visited(bool visited) { visited_ = visited; }
  void fail(const Cause& cause);
  // The same for an exception after which this rank cannot go on.
  void fail(const std::exception& problem) { fail(cause_of(problem)); }
  // Prepares an operation. The other ranks wait for this one, so a failure ends the communicator: memory is missing, or
  // a device does not work. A call that is wrong or not supported fails on this rank alone.
  template <typename Body>
  decltype(auto) guard(Body&& body) {
    try {
      return body();
    } catch (const std::exception& problem) {
      const tutti_status status = failure_of(problem).status;
      const tutti_status callers[] = {TUTTI_INVALID_ARGUMENT, TUTTI_NOT_SUPPORTED, TUTTI_INVALID_USAGE};
      if (begun() || std::ranges::count(callers, status)) throw;
      fail(failure_of(problem));
      throw failure();
    }
  }
  // An operation's time is over.
  Cause late(uint64_t timeout_ns, std::optional<uint64_t> sequence, std::optional<uint32_t> peer = {}) const;
  // Carries out the cause that was reported, if there is one.
  void carry_out();
  // Ends the communicator where another rank has announced a cause.
  void poll_others();
  std::optional<Cause> reported() const;
  // Carries out what is known to end the communicator. Throws Failure when it has ended.
  void require_none();
  Failure failure() const { return {error(), text_}; }
  // Nothing is pending, and the other ranks know: only later calls are to fail.
  void end_alone(tutti_status status, const std::string& text);

  // ---- The application's thread.

  // Remembers the text of a failed call for tutti_comm_error; returns the status. The text also names the cause that
  // has ended the communicator.
  tutti_status remember(tutti_status status, std::string text) noexcept;
  const char* last_error() const { return last_error_.c_str(); }

 private:
  static constexpr tutti_status under_way = TUTTI_AGAIN;

  Cause cause_of(const std::exception& problem) noexcept;
  Loss loss_of(const Cause& cause);
  Cause blame(const Cause& late) const;
  Cause find_difference(const Cause& given) const;
  void end(const Loss& loss);

  Parts& parts_;
  Foundation& base_;

  std::atomic<tutti_status> state_{TUTTI_OK};  // then under_way, then what the operations have ended with
  std::string text_;                           // complete once the state is negative
  bool visited_ = false;
  std::atomic<bool> pending_{false};
  mutable std::mutex mutex_;
  std::optional<Cause> reported_;
  std::string last_error_;
};

}  // namespace tutti::core
