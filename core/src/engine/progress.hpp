// SPDX-License-Identifier: Apache-2.0
//
// Progress is per process: a wait inside Tutti advances every engine that has pending operations. Otherwise legal
// programs would hang (one rank waits in A while another waits for an earlier, asynchronous B).
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace tutti::core {

// What has operations to advance.
class Engine {
 public:
  virtual ~Engine() = default;
  // Advances what is pending if no other thread is at it. True when something is pending.
  virtual bool try_progress() = 0;
};

// The process's engines with pending asynchronous operations.
class ActiveEngines {
 public:
  static ActiveEngines& process();
  void add(Engine* engine);
  // Returns only when no other thread is inside engine->try_progress().
  void remove(Engine* engine);
  // Advances all but `self`. True when others have something pending.
  bool progress_others(const Engine* self);

 private:
  std::atomic<uint32_t> count_{0};
  std::mutex mutex_;
  std::vector<Engine*> engines_;
};

// How a wait passes its time: polls, then yields, then sleeps. With more ranks than cores it yields almost at once.
struct WaitPolicy {
  uint32_t spins = 4000;  // fruitless polls before the first yield
  uint32_t yields = 100;  // yields before the first sleep
};

// Cheap time stamps for statistics: CPU ticks where there are any.
uint64_t ticks();
// Converts a difference of ticks.
uint64_t ticks_to_ns(uint64_t difference);
// A monotonic clock in nanoseconds.
uint64_t clock_ns();

}  // namespace tutti::core
