// SPDX-License-Identifier: Apache-2.0
//
// How a rank waits: it advances everything that is pending, and passes the time by polling, then yielding, then
// sleeping. How long a yield takes tells whether others want the core: where other ranks do, a rank yields almost at
// once. Where a program that never waits takes turns on a rank's own core, the rank sleeps instead.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>

#include "base/clock.hpp"
#include "comm/progress.hpp"

namespace tutti::core {

// The time that a call gives to other ranks: so long without progress, over all of its waits together.
class Patience {
 public:
  explicit Patience(uint64_t limit_ns) : limit_ns_(limit_ns), end_ns_(deadline_after(limit_ns)) {}
  uint64_t limit_ns() const { return limit_ns_; }
  bool is_over() const { return clock_ns() > end_ns_; }
  uint64_t left_ns() const {
    const uint64_t now = clock_ns();
    return now < end_ns_ ? end_ns_ - now : 0;
  }
  // Something has moved.
  void renew() { end_ns_ = deadline_after(limit_ns_); }
  // At least so much is left.
  void grant(uint64_t least_ns) { end_ns_ = std::max(end_ns_, deadline_after(least_ns)); }

 private:
  uint64_t limit_ns_, end_ns_;
};

// Does a program that never waits keep taking the core of a rank that has one to itself? Each yield then gives it a
// slice of the scheduler's time: Linux takes one from the rank's share. A rank that sleeps until a message wakes it
// keeps its share. Any thread may call all functions.
class ForeignTurns {
 public:
  // A yield took from `begin_ns` to `end_ns`. A few long ones prove nothing: other work may have come by.
  void yielded(uint64_t begin_ns, uint64_t end_ns) {
    const bool is_long = end_ns - begin_ns >= slice_ns;
    const uint32_t last = history_.load(std::memory_order_relaxed) << 1 | uint32_t{is_long};
    const bool many = is_long && std::popcount(last & window) >= most_long;
    history_.store(many ? 0 : last, std::memory_order_relaxed);
    if (many) until_ns_.store(end_ns + lasting_ns, std::memory_order_relaxed);
  }
  // Were they seen a short while ago?
  bool seen() {
    const uint64_t until = until_ns_.load(std::memory_order_relaxed);
    if (until == 0) return false;
    if (clock_ns() < until) return true;
    until_ns_.store(0, std::memory_order_relaxed);
    return false;
  }
  // A yield that takes so long gave the core to somebody who keeps it as long as the scheduler lets it.
  static constexpr uint64_t slice_ns = 1'000'000;

 private:
  static constexpr uint32_t window = 0xffff;  // the last 16 yields, a bit each
  static constexpr int most_long = 4;
  static constexpr uint64_t lasting_ns = 200'000'000;
  std::atomic<uint32_t> history_{0};
  std::atomic<uint64_t> until_ns_{0};
};

class Waiter {
 public:
  // The work that a wait keeps going.
  class Work {
   public:
    // Advances what is pending; true when something moved. Never waits.
    virtual bool progress() = 0;
    // The checks that not every poll needs: deadlines, lost ranks, aborts, other communicators.
    virtual void look_around() = 0;
    // Sleeps until there may be something to do, some milliseconds and `most_ns` at most.
    virtual void sleep(uint64_t most_ns) = 0;
    // Has the communicator ended? Then nothing moves any more.
    virtual bool is_over() const = 0;

   protected:
    ~Work() = default;
  };
  static constexpr uint32_t polls_per_look = 64;
  static constexpr uint64_t for_ever = UINT64_MAX;

  Waiter(Work& work, const WaitPolicy& policy)
      : work_(work), policy_(policy), spins_(std::min(policy.spins, first_spins)) {}
  const WaitPolicy& policy() const { return policy_; }

  // Counts polls; true at each `every`-th one.
  bool is_due(uint64_t every = polls_per_look) { return ++polls_ % every == 0; }

  // Behind each poll of a wait, which has moved something, or nothing: then time passes, at most until the deadline.
  // Looks around now and then, or `looks`. `fruitless`: the wait's polls in a row without progress.
  void pass(uint32_t& fruitless, bool moved, uint64_t deadline_ns = for_ever, bool looks = false) {
    fruitless = moved ? 0 : fruitless + 1;
    if (is_due() || looks || (!moved && is_time_to_sleep(fruitless))) work_.look_around();
    if (!moved) pass_time(fruitless, deadline_ns);
  }
  // A turn of a wait in the middle of a call: advances everything, looks around and passes some time. False: the
  // patience is over. `excused`: something else, which has no limit, keeps the wait.
  bool turn(uint32_t& fruitless, Patience& patience, bool excused);
  // Waits until `enough()`. When the patience is over, calls `late()`, which throws or ends the communicator; time
  // during which `excused()` holds does not count. False: the communicator has ended instead.
  template <typename Enough, typename Late, typename Excused>
  bool until(Enough&& enough, Patience& patience, Late&& late, Excused&& excused) {
    for (uint32_t fruitless = 0; !work_.is_over();) {
      if (enough()) return true;
      if (!turn(fruitless, patience, excused())) late();
    }
    return false;
  }
  template <typename Enough>
  bool until(Enough&& enough) {
    Patience patience(for_ever);
    return until(
        enough, patience, [] {}, [] { return false; });
  }
  // Where ranks share cores, and a wait is for ranks on other cores only: is there time for a poll more before the next
  // yield? `polls`: how many it has had. Together they take about as long as a yield to another rank and back.
  bool may_poll_on(uint32_t& polls) const {
    if (has_own_core() || polls == most_polls_on) return false;
    ++polls;
    relax();
    return true;
  }
  // Spins, yields, or sleeps some microseconds.
  void rest(uint32_t fruitless) const;

 private:
  static constexpr uint32_t first_spins = 256, most_polls_on = 32;

  // Passes some time after so many fruitless polls; true where it is time to sleep instead.
  bool spin(uint32_t fruitless) const;
  void pass_time(uint32_t fruitless, uint64_t deadline_ns);
  // Has a wait of so many fruitless polls spun and yielded enough?
  bool is_time_to_sleep(uint32_t fruitless) const {
    const uint32_t spins = spins_.load(std::memory_order_relaxed);
    const uint32_t yields = spins < first_spins ? crowded_yields : policy_.yields;
    return fruitless >= spins + yields || (fruitless >= spins && foreign_turns_.seen());
  }
  // Where ranks share cores, long yields may be those of ranks that compute, or of many.
  bool has_own_core() const { return policy_.spins >= first_spins; }
  // Returns how long it took.
  uint64_t yield() const;
  void yield_and_learn() const;

  Work& work_;
  const WaitPolicy policy_;
  mutable std::atomic<uint32_t> spins_;  // polls before the first yield, at most policy_.spins
  mutable ForeignTurns foreign_turns_;
  uint64_t polls_ = 0;
};

}  // namespace tutti::core
