// SPDX-License-Identifier: Apache-2.0
//
// Access to a communicator's engine for one thread at a time: a call, the progress thread, or a thread that waits for
// another communicator. It also puts to sleep a thread that waits for this one.
#pragma once

#include <poll.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory_resource>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/progress.hpp"
#include "comm/waiter.hpp"
#include "engine/fabric/fabric.hpp"

namespace tutti::core {

class Hold;
class ProgressEngine;

class EngineLock final : public Engine, public Waiter::Work {
 public:
  explicit EngineLock(ProgressEngine& engine) : engine_(engine) {}
  EngineLock(const EngineLock&) = delete;
  EngineLock& operator=(const EngineLock&) = delete;

  // ---- Any thread.

  // Carries out what was reported, before anybody comes in; an owner that is inside notices it itself. False: the
  // communicator is being ended, which is left to its owner.
  bool carry_out_unless_inside();
  bool try_progress() noexcept override;
  void join(EngineSleep& sleep) noexcept override;

  // ---- The owner.

  bool has_thread() const { return threaded_; }
  // Where this thread has locked the engine, other threads may come in while this lives: for a sleep, or a wait of
  // another kind. In the middle of a call they advance what is pending, as the call's own waits do, and may end the
  // communicator; a call that begins waits until this one is over.
  class Opening {
   public:
    // `armed`: for a sleep.
    explicit Opening(EngineLock& lock, bool armed = false) noexcept;
    Opening(const Opening&) = delete;
    Opening& operator=(const Opening&) = delete;
    ~Opening();

   private:
    EngineLock& lock_;
    Hold* const hold_;
  };
  // Something has moved: threads that sleep for it may have to know.
  void stir(bool moved) { stirred_ |= moved; }
  // Returns when no other thread can come in any more. The owner then has the engine without the mutex, and an abort
  // leaves everything to it. May be called again.
  void close();
  // While the ranks meet for the end other threads advance the endpoints alone.
  void set_quiescing(bool begins);

  // ---- The owner, with the mutex.

  // Starts the progress thread.
  void begin_thread();

 private:
  friend class Hold;
  friend class Presence;

  // Waiter::Work
  bool progress() override;
  void look_around() override;
  void sleep(uint64_t most_ns) override;
  bool is_over() const override;

  std::unique_lock<std::mutex> lock_for(bool visit);
  // Between the polls of a wait: threads that wait for the mutex come first.
  void give_way();
  static uint64_t pending(uint64_t operations, uint32_t asleep) { return operations << 32 | asleep; }
  static uint64_t operations_in(uint64_t pending) { return pending >> 32; }
  void run_thread();
  bool await_work();
  Fabric::Armed arm(std::pmr::vector<pollfd>* descriptors);
  void arm_for(EngineSleep& sleep);
  void keep_watched();
  // Operations are pending here, and perhaps no thread advances them: wakes those that sleep for other engines, which
  // then join this one, too.
  void call_sleepers() {
    if (!attended_.load() && !is_watched()) ActiveEngines::process().wake_all();
  }

  ProgressEngine& engine_;
  std::mutex mutex_;
  std::atomic<uint32_t> wanted_{0};    // threads that wait for mutex_: they come before the progress thread
  std::atomic<uint64_t> pending_{0};   // operations, and below them asleep_, published when the engine is released
  std::atomic<uint32_t> attended_{0};  // threads that wait here, and the progress thread
  uint32_t asleep_ = 0;                // threads that have opened the lock
  bool stirred_ = false;               // something has moved since this was last asked
  Hold* holder_ = nullptr;             // has the mutex
  bool in_call_ = false;               // a call has opened the lock in its middle
  std::condition_variable call_over_;  // with mutex_: not in_call_ any more
  std::atomic<bool> inside_{false};    // the owner is, without the mutex
  std::atomic<bool> quiescing_{false};  // the owner waits for the others' end
  bool ending_ = false;                // the owner ends the communicator and holds the engine

  bool threaded_ = false;  // there is a progress thread
  std::atomic<bool> stop_{false};
  std::condition_variable work_;  // with mutex_, for the progress thread: something is pending, or stop_
  std::thread thread_;
  std::thread failure_thread_;  // carries out a failure that a visitor has met
};

// Holds the engine for as long as it lives. Where the communicator has a progress thread or asynchronous operations
// other threads may come in, so the engine is locked; otherwise its owner is alone and pays nothing. `pending_` is
// published last: a thread that reads zero knows that nobody else is inside. It counts threads that sleep, too: they
// come back.
//
// An abort may come from any thread at any time. The owner says that it is inside by a plain store; the thread that
// aborts makes that visible by a memory barrier on all of the process's threads (membarrier), so that the owner pays
// for none. Where the kernel has no such barrier the engine is always locked.
class Hold {
 public:
  // For a call.
  explicit Hold(EngineLock& lock) : Hold(lock, false) {}
  // For a thread that only advances what is pending: it comes in although a call sleeps in its middle.
  static Hold visit(EngineLock& lock) { return Hold(lock, true); }
  // Takes the mutex in any case: a progress thread may start while it is held.
  static Hold locked(EngineLock& lock) { return Hold(lock, false, lock.lock_for(false)); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  ~Hold();
  // May other threads come in? Otherwise this one is alone.
  bool is_locked() const { return mutex_.owns_lock(); }

 private:
  friend class EngineLock;
  Hold(EngineLock& lock, bool visits);
  Hold(EngineLock& lock, bool visits, std::unique_lock<std::mutex> mutex);
  void enter();
  void leave();
  EngineLock& lock_;
  const bool visits_;
  std::unique_lock<std::mutex> mutex_;
};

// Counts a thread that waits here. It advances the engine by itself, so that the sleeps of others need not.
class Presence {
 public:
  explicit Presence(EngineLock& lock) : lock_(lock) {
    lock_.attended_.fetch_add(1);
    if (lock_.is_watched()) ActiveEngines::process().wake(lock_);
  }
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;
  ~Presence() {
    lock_.attended_.fetch_sub(1);
    if (lock_.pending_.load(std::memory_order_relaxed)) lock_.call_sleepers();
  }

 private:
  EngineLock& lock_;
};

}  // namespace tutti::core
