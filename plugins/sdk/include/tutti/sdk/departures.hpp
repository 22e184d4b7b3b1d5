// SPDX-License-Identifier: Apache-2.0
//
// The unfinished work of endpoints that were closed: connections that still have bytes to send, or wait for the peer.
// The process owns it, and the progress of any endpoint continues it.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace tutti::sdk {

// `Departure` can be moved and has `bool advance()`, which does not block: true when it is finished. [any thread]
template <typename Departure>
class Departures {
 public:
  // Never freed: other threads may outlive static destruction.
  static Departures& of_process() {
    static auto* made = new Departures();
    return *made;
  }
  bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }
  void add(Departure departure) {
    const std::lock_guard lock(mutex_);
    all_.push_back(std::move(departure));
    count_ = all_.size();
  }
  void advance() {
    if (empty()) return;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return;
    std::erase_if(all_, [](Departure& departure) { return departure.advance(); });
    count_ = all_.size();
  }

 private:
  std::mutex mutex_;
  std::vector<Departure> all_;
  std::atomic<size_t> count_ = 0;
};

}  // namespace tutti::sdk
