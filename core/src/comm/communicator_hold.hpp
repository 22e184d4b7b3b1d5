// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/failure.hpp"
#include "base/process_barrier.hpp"
#include "comm/communicator.hpp"

namespace tutti::core {

// Holds the engine for as long as it lives. Where the communicator has a progress thread or asynchronous operations
// other threads may come in, so the engine is locked; otherwise its owner is alone and pays nothing. `pending_` is
// published last, so that whoever reads zero knows that nobody else is inside. It counts threads that sleep, too: they
// come back.
//
// An abort may come from any thread at any time. The owner says that it is inside by a plain store; whoever aborts
// makes that visible by a memory barrier on all of the process's threads (membarrier), so that the owner pays for none.
// Where the kernel has no such barrier the engine is always locked.
class Communicator::Hold {
 public:
  explicit Hold(Communicator& comm) : comm_(comm) {
    if (comm.threaded_ || comm.pending_.load(std::memory_order_acquire) || !process_barrier_ready()) {
      lock_ = comm.lock_for_call();
      comm_.fabric_.disarm();
      return;
    }
    if (comm.inside_.load(std::memory_order_relaxed))
      throw Failure(TUTTI_INVALID_USAGE,
                    "another thread is inside a call on this communicator: use it from one thread at a time, or make a "
                    "communicator for each thread");
    comm.inside_.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (comm.breakdown_.pending()) {
      comm.inside_.store(false, std::memory_order_release);
      lock_ = std::unique_lock(comm.mutex_);
    }
  }
  Hold(Communicator& comm, std::unique_lock<std::mutex> lock) : comm_(comm), lock_(std::move(lock)) {
    comm_.fabric_.disarm();
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  ~Hold() {
    if (lock_) comm_.keep_watched();
    const uint64_t before = comm_.pending_.load(std::memory_order_relaxed);
    const uint64_t now = comm_.operations_.pending() + comm_.asleep_;
    if (now != before) comm_.pending_.store(now, std::memory_order_release);
    leave();
    if (now <= before) return;
    if (before == 0) {
      ActiveEngines::process().add(&comm_);
      if (comm_.threaded_) comm_.work_.notify_one();
    }
    comm_.call_sleepers();
  }
  // May other threads come in while this one sleeps? Otherwise it is alone.
  std::unique_lock<std::mutex>* lock() { return lock_ ? &lock_ : nullptr; }

 private:
  void leave() {
    if (lock_) {
      lock_.unlock();
      return;
    }
    comm_.inside_.store(false, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (comm_.breakdown_.pending()) {
      const std::lock_guard lock(comm_.mutex_);
      comm_.breakdown_.carry_out();
    }
  }
  Communicator& comm_;
  std::unique_lock<std::mutex> lock_;
};

// Counts a thread that waits here. It advances the engine by itself, so that the sleeps of others need not.
class Communicator::Attendance {
 public:
  explicit Attendance(Communicator& comm) : comm_(comm) {
    comm_.attended_.fetch_add(1);
    if (comm_.is_watched()) ActiveEngines::process().wake(comm_);
  }
  Attendance(const Attendance&) = delete;
  Attendance& operator=(const Attendance&) = delete;
  ~Attendance() {
    comm_.attended_.fetch_sub(1);
    if (comm_.pending_.load(std::memory_order_relaxed)) comm_.call_sleepers();
  }

 private:
  Communicator& comm_;
};

}  // namespace tutti::core
