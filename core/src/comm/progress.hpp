// SPDX-License-Identifier: Apache-2.0
//
// Progress is per process: a wait inside Tutti advances every engine that has pending operations. Otherwise legal
// programs would hang (one rank waits in A while another waits for an earlier, asynchronous B). So is sleep: it ends
// when any of these engines has something to do.
//
// An engine is armed for a sleep, which does not hold it. A thread that enters the engine meanwhile disarms it. A
// thread that leaves arms it again; where it cannot, or has moved something, it wakes those that sleep for the engine.
#pragma once

#include <poll.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <thread>
#include <vector>

#include "bootstrap/control_plane.hpp"

namespace tutti::core {

class ActiveEngines;
class EngineSleep;

// Something with operations to advance.
class Engine {
 public:
  virtual ~Engine() = default;
  // Advances what is pending if no other thread is at it. True when something is pending. Never waits and never throws:
  // a thread that waits for one communicator must not be held up by another one's failure.
  virtual bool try_progress() noexcept = 0;
  // Where something is pending that no other thread waits for: arms the engine and adds it to the sleep. Never waits.
  virtual void join(EngineSleep& sleep) noexcept = 0;

 protected:
  // Do threads sleep for it?
  bool is_watched() const { return watchers_.load(std::memory_order_acquire) != 0; }

 private:
  // The list's mutex guards these.
  friend class ActiveEngines;
  friend class EngineSleep;
  Engine* next_ = nullptr;
  std::atomic<bool> listed_{false};
  bool leaves_ = false;    // takes no more visitors
  uint32_t visitors_ = 0;  // threads in try_progress or join by way of the list
  std::atomic<uint32_t> watchers_{0};
};

// A thread's sleep until one of several engines has something to do. It is over when this object ends. [one thread; one
// at a time]
class EngineSleep {
 public:
  EngineSleep();
  EngineSleep(const EngineSleep&) = delete;
  EngineSleep& operator=(const EngineSleep&) = delete;
  ~EngineSleep();
  // An engine that has to be polled: the sleep lasts microseconds.
  void shorten() { short_ = true; }
  // An engine that has something to do: there is no sleep.
  void cancel() { cancelled_ = true; }
  // The descriptors that end it.
  std::pmr::vector<pollfd>& descriptors() { return fds_; }
  void watch(ControlPlane& control);
  // Others may use the engine meanwhile, and wake this sleep.
  void watch(Engine& engine);
  // Sleeps at most some milliseconds and `most_ns`.
  void pass(uint64_t most_ns);

 private:
  friend class ActiveEngines;
  bool short_ = false, cancelled_ = false;
  std::atomic<int> bell_{-1};  // wakes the thread
  std::byte room_[2048];       // few engines need no more
  std::pmr::monotonic_buffer_resource memory_{room_, sizeof room_};
  std::pmr::vector<pollfd> fds_{&memory_};
  std::pmr::list<ControlPlane::Sleep> control_sleeps_{&memory_};
  std::pmr::vector<Engine*> watched_{&memory_};  // the list's mutex guards it, and the next
  EngineSleep* next_ = nullptr;
};

// The process's engines with pending asynchronous operations. The mutex is held for a few instructions only, never
// while an engine advances. Nothing here needs memory.
class ActiveEngines {
 public:
  static ActiveEngines& process();
  void add(Engine* engine) noexcept;
  // Returns only when no other thread is inside engine->try_progress() or sleeps for it.
  void remove(Engine* engine);
  // Advances all but `self`. True when others have something pending.
  bool progress_others(const Engine* self);
  // All but `self` join the sleep.
  void join_others(const Engine* self, EngineSleep& sleep);
  // Ends the sleeps for an engine, or all of them: an engine is pending now that none of them may have.
  void wake(const Engine& engine);
  void wake_all();

 private:
  friend class BackgroundProgress;
  friend class EngineSleep;
  void add(EngineSleep& sleep);
  void remove(EngineSleep& sleep);
  template <typename Which>
  void ring(Which&& which);
  struct Background {
    bool stop = false;
    std::thread thread;
  };
  void start_background();
  void run(const Background& background);

  // Ends the visit of `last` and begins that of the next engine but `self`; nullptr at the end of the list. `last`
  // nullptr: from the beginning.
  Engine* next(Engine* last, const Engine* self);

  std::atomic<uint32_t> count_{0};
  std::mutex mutex_;
  std::condition_variable left_;    // an engine has no visitors any more
  std::condition_variable listed_;  // there is an engine, or the background thread has to stop
  Engine* first_ = nullptr;
  EngineSleep* sleeps_ = nullptr;           // under way
  std::atomic<uint32_t> sleepers_{0};       // how many
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
