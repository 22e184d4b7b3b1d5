// SPDX-License-Identifier: Apache-2.0
//
// The application's handle of a communicator. It outlives the communicator, so that a use after the end is an error and
// not a crash.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/fork_generation.hpp"
#include "comm/communicator.hpp"

struct tutti_comm {
  explicit tutti_comm(tutti::core::Configuration configuration, const tutti::core::Succession& succession = {})
      : communicator(tutti::core::Communicator::make(std::move(configuration), succession).release()) {}
  explicit tutti_comm(std::unique_ptr<tutti::core::Communicator> made) : communicator(made.release()) {}
  ~tutti_comm() { delete communicator.load(); }
  // Is this a forked child? Its copy of the mutex may be locked for ever.
  bool forked() const { return generation != tutti::core::fork_generation(); }

  std::atomic<tutti::core::Communicator*> communicator;  // nullptr once destroyed
  std::atomic<bool> destroying{false};
  const uint64_t generation = tutti::core::fork_generation();
  std::string last_words = "the communicator was destroyed: no call may use it any more";

  // The calls that are inside: any thread may make some of them at any time.
  mutable std::mutex mutex;
  mutable std::condition_variable unpinned;
  mutable uint32_t pins = 0;
};

namespace tutti::core {

// Keeps a handle's communicator from being freed while a call uses it that may come beside tutti_comm_destroy.
class Pin {
 public:
  explicit Pin(const tutti_comm* comm) : comm_(comm) {
    if (!comm_) return;
    const std::lock_guard lock(comm_->mutex);
    communicator_ = comm_->communicator.load(std::memory_order_relaxed);
    if (communicator_) ++comm_->pins;
  }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;
  ~Pin() {
    if (!communicator_) return;
    const std::lock_guard lock(comm_->mutex);
    if (--comm_->pins == 0) comm_->unpinned.notify_all();
  }
  // nullptr: the handle is NULL, or its communicator was destroyed.
  Communicator* communicator() const { return communicator_; }

  // Empties the handle and frees its communicator once the last pin is gone.
  static void free(tutti_comm& comm) {
    std::unique_lock lock(comm.mutex);
    Communicator* const freed = comm.communicator.exchange(nullptr, std::memory_order_acq_rel);
    comm.unpinned.wait(lock, [&comm] { return comm.pins == 0; });
    lock.unlock();  // the end takes the engine's lock, and a call that has that one may pin its own communicator
    delete freed;
  }

 private:
  const tutti_comm* comm_;
  Communicator* communicator_ = nullptr;
};

}  // namespace tutti::core
