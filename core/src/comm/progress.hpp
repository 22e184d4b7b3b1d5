// SPDX-License-Identifier: Apache-2.0
//
// Progress is per process: a wait inside Tutti advances every engine that has pending operations. Otherwise legal
// programs would hang (one rank waits in A while another waits for an earlier, asynchronous B).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

namespace tutti::core {

class ActiveEngines;

// Something with operations to advance.
class Engine {
 public:
  virtual ~Engine() = default;
  // Advances what is pending if no other thread is at it. True when something is pending. Never waits and never throws:
  // a thread that waits for one communicator must not be held up by another one's failure.
  virtual bool try_progress() noexcept = 0;

 private:
  // The list's mutex guards these.
  friend class ActiveEngines;
  Engine* next_ = nullptr;
  std::atomic<bool> listed_{false};
  bool leaves_ = false;    // takes no more visitors
  uint32_t visitors_ = 0;  // threads in try_progress by way of the list
};

// The process's engines with pending asynchronous operations. The mutex is held for a few instructions only, never
// while an engine advances. Nothing here needs memory.
class ActiveEngines {
 public:
  static ActiveEngines& process();
  void add(Engine* engine) noexcept;
  // Returns only when no other thread is inside engine->try_progress().
  void remove(Engine* engine);
  // Advances all but `self`. True when others have something pending.
  bool progress_others(const Engine* self);

 private:
  friend class BackgroundProgress;
  struct Background {
    bool stop = false;
    std::thread thread;
  };
  void start_background();
  void run(const Background& background);

  // Ends the visit of `last` and begins that of the next engine but `self`; nullptr at the end of the list. `last`
  // nullptr: from the beginning.
  Engine* visit(Engine* last, const Engine* self);

  std::atomic<uint32_t> count_{0};
  std::mutex mutex_;
  std::condition_variable left_;    // an engine has no visitors any more
  std::condition_variable listed_;  // there is an engine, or the background thread has to stop
  Engine* first_ = nullptr;
  uint32_t waits_ = 0;                      // objects of BackgroundProgress
  std::unique_ptr<Background> background_;  // once it was needed
};

// While it lives a thread advances the process's engines: for waits that cannot do it themselves, since they wait for
// the other ranks' processes and not for operations. One thread serves all of the process's waits. It is started when
// there is something to advance.
class BackgroundProgress {
 public:
  // Throws std::system_error where no thread can be started that is needed at once.
  BackgroundProgress();
  BackgroundProgress(const BackgroundProgress&) = delete;
  BackgroundProgress& operator=(const BackgroundProgress&) = delete;
  ~BackgroundProgress();
};

// How a wait passes its time: polls, then yields, then sleeps. With more ranks than cores it yields almost at once.
struct WaitPolicy {
  uint32_t spins = 4000;  // the most fruitless polls before the first yield
  uint32_t yields = 100;  // yields before the first sleep, while no other ranks want the core
};
constexpr uint32_t crowded_yields = 400;  // while some do

}  // namespace tutti::core
