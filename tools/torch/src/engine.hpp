// SPDX-License-Identifier: Apache-2.0
//
// One communicator, used by any number of threads. Tutti takes one thread at a time, but torch has several: DDP's hooks
// run in autograd's threads while others wait, and futures complete while nobody waits. So whoever calls or waits takes
// turns. A thread that finds the communicator in use leaves its operation in a queue and goes on; the thread that uses
// the communicator starts it. A thread of the engine moves what nobody waits for.
#pragma once

#include <c10/util/SmallVector.h>
#include <tutti/tutti.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::torch {

// Tutti's status and text, as an exception.
class Error : public std::runtime_error {
 public:
  Error(tutti_status code, const std::string& text)
      : std::runtime_error(text.empty() ? tutti_status_text(code) : text), status(code) {}
  tutti_status status;
};

// An operation from its call to its end.
class Operation {
 public:
  // `name`: the call's, "tutti:all_reduce"; a literal.
  explicit Operation(const char* name) : name(name) {}
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  virtual ~Operation() = default;

  const char* const name;
  std::exception_ptr failure;  // nullptr: none. Written before `ended`
  std::atomic<bool> ended{false};
  std::atomic<bool> watched{false};  // somebody wants to know its end without waiting
  bool timed = false;                // set by Engine::start; only then the three below are written, before `ended`
  std::atomic<bool> started{false};  // after `began`
  std::chrono::steady_clock::time_point began, over;

 protected:
  // Makes Tutti's call. A request that stays NULL: it is complete.
  virtual tutti_status start(tutti_comm* comm, tutti_request** request) = 0;
  // After success, before anybody hears of it: copies results to where they belong. May throw.
  virtual void finish() = 0;
  // After its end: drops the memory that it uses.
  virtual void release() = 0;

 private:
  friend class Engine;
  tutti_request* request_ = nullptr;
  std::atomic<bool> asked_{false};  // Engine::tell has been called
  std::atomic<bool> told_{false};   // on_end_ has been called
  // After its end, each in a thread of its own or the one that asks for it. They may use the engine, and wait. Engine's
  // list mutex guards it.
  std::vector<std::function<void()>> on_end_;
};
using OperationPtr = std::shared_ptr<Operation>;

// A lock that serves in order of arrival.
class Turns {
 public:
  // Only where nobody is inside or waits.
  bool try_enter();
  void enter();
  void leave();
  // Does somebody wait?
  bool wanted() const { return tickets_.load() - served_.load() > 1; }

 private:
  std::atomic<uint64_t> tickets_{0}, served_{0};
  std::mutex mutex_;  // of those who wait
  std::condition_variable next_;
};

// Threads for what is told at the end of operations: a callback of torch's futures may itself wait for operations and
// their futures, so while all threads are in callbacks another one is made.
class Tellers {
 public:
  void tell(std::function<void()> what);
  // Returns when everything has been told, unless called from a callback.
  void close();

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable wakes;
    std::deque<std::function<void()>> queue;
    uint64_t idle = 0;  // threads, also those that start
    bool stop = false;
  };
  static void run(State& state);
  std::shared_ptr<State> state_ = std::make_shared<State>();
  std::vector<std::thread> threads_;  // the state's mutex guards it
};

class Engine {
 public:
  // Owns the communicator from here on. nullptr: there is none, and every call fails with the text `gone`.
  explicit Engine(tutti_comm* comm, std::string gone = "the process group has been destroyed");
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine() { close({}); }

  // Starts an operation, or leaves it to the thread that uses the communicator. Never waits.
  void start(const OperationPtr& operation);
  // Waits at most so long; UINT64_MAX: until its end. False: the time has passed, and the operation goes on.
  bool wait(Operation& operation, uint64_t timeout_ns);
  // Has it ended? Moves it a little where nobody else does.
  bool test(Operation& operation);
  // Calls on_end at its end, at once where it has ended already. Several can be told of one operation.
  void tell(const OperationPtr& operation, const std::function<void()>& on_end);
  // A call that completes before it returns: `turn` is called again and again, alone with the communicator, until it
  // returns another status than TUTTI_AGAIN. Throws Error.
  void call(const std::function<tutti_status(tutti_comm*)>& turn);
  // Operations that start from now on are timed.
  void time_operations() { times_.store(true); }
  // The error that has broken the communicator; TUTTI_OK: it is not broken, or there is none.
  tutti_status error() const { return ended_.load() ? tutti_status{TUTTI_OK} : tutti_comm_async_error(handle_); }
  // Waits at most so long until nothing is under way. False: the time has passed.
  bool drain(uint64_t timeout_ns);
  // Sets what is called once: in a thread of its own after an operation has failed because the communicator is broken,
  // or by about_to_abort(). Before the first call.
  void on_break(std::function<void()> call) { on_break_ = std::move(call); }
  void about_to_abort() {
    if (on_break_ && !broke_.exchange(true)) on_break_();
  }

  // Ends the communicator: collective. Later calls fail. Without a reason pending operations get some seconds; where
  // those of one group do not end in that time, the groups that this thread closes next do not wait again. A reason
  // aborts the operations of all ranks at once, also where another thread waits in this engine or closes it. Does
  // nothing in a forked child.
  void close(const std::string& reason);

 private:
  using Ended = c10::SmallVector<OperationPtr, 2>;
  void require_parent() const;
  void end_communicator(const std::string& reason);
  // The turn is held in these.
  void start_one(OperationPtr operation, Ended& ended);
  void start_queued(Ended& ended);
  void move(Operation* target, uint64_t limit_ns, Ended& ended);
  void reap(Ended& ended);
  void reap_one(size_t number, tutti_status status, Ended& ended);
  void end(Operation& operation, tutti_status status, const char* text);
  uint64_t moved_bytes();

  void leave(Ended& ended);
  void serve();
  void tell_ends(Ended& ended);
  void run();
  bool engage(const Operation*& last, uint64_t& rest_us);

  tutti_comm* comm_;          // the turn guards it; nullptr: there is none, or it has ended
  tutti_comm* const handle_;  // the same, for what any thread may call until ended_
  const uint32_t forks_;      // in the process that made it
  Turns turns_;
  std::vector<OperationPtr> running_;  // the turn guards it
  size_t cursor_ = 0;
  std::vector<tutti_link_traffic> traffic_;

  std::mutex list_mutex_;
  std::deque<OperationPtr> queued_;
  std::atomic<uint64_t> queued_count_{0}, outstanding_{0}, watched_{0};
  std::atomic<uint32_t> waiting_{0};
  std::atomic<bool> times_{false};

  std::mutex mover_mutex_;
  std::condition_variable mover_wakes_;
  std::atomic<bool> parked_{false};
  bool stop_ = false;
  std::unique_ptr<std::thread> mover_;
  std::unique_ptr<Tellers> tellers_ = std::make_unique<Tellers>();
  std::function<void()> on_break_;
  std::atomic<bool> broke_{false};

  std::mutex end_mutex_;
  bool closed_ = false;  // the mutex guards it
  std::atomic<bool> ended_;
  Error end_;  // of calls without a communicator; the turn guards it
};

// The engine of a process group, which another one may replace while threads use it. Any thread.
class CurrentEngine {
 public:
  explicit CurrentEngine(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}
  std::shared_ptr<Engine> now() const {
    const std::lock_guard lock(mutex_);
    return engine_;
  }
  std::shared_ptr<Engine> operator->() const { return now(); }
  void replace(std::shared_ptr<Engine> engine) {
    const std::lock_guard lock(mutex_);
    engine_.swap(engine);
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<Engine> engine_;
};

}  // namespace tutti::torch
