// SPDX-License-Identifier: Apache-2.0
//
// The handles of a communicator and of its requests, kept for as long as a Python object needs them. All functions are
// called with the interpreter's lock held, and release it while they wait.
#pragma once

#include <pybind11/pybind11.h>
#include <tutti/tutti.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data.hpp"
#include "error.hpp"
#include "lock.hpp"

namespace tutti::python {

class Gradients;

// A wait looks for signals after each.
constexpr uint64_t turn_ns = 50'000'000;

// While one lives, reports of this thread's waits name the line of Python, once it has waited for a turn: shorter waits
// need not look for it.
class CallSite {
 public:
  CallSite() = default;
  CallSite(const CallSite&) = delete;
  CallSite& operator=(const CallSite&) = delete;
  ~CallSite() { tutti_set_call_site(nullptr); }
  // Before each turn: a signal's handler may have made calls in between.
  void tell();

 private:
  uint64_t turns_ = 0;
  std::string line_;
};

// While one lives, this thread's waits for other ranks run the handlers of signals that have come, and end early where
// a handler raises (tutti_set_interrupt).
class Signals {
 public:
  Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals();
  // Raises what a handler has raised; `made` is a communicator that the call has made all the same, or nullptr.
  static void raise_if_any(tutti_comm* made = nullptr);

 private:
  static thread_local int depth_;  // a handler may make calls
};

class State {
 public:
  State(tutti_comm* comm, std::string name);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  // Raises InvalidUsage once it is closed. For calls that any thread may make; all others go by use().
  tutti_comm* handle() const;
  bool is_open() const { return comm_ != nullptr; }
  // The communicator is the parent's of this process.
  bool is_forked() const;
  const std::string& name() const { return name_; }
  // "\"world\" rank 0 of 2", for what belongs to it.
  std::string text() const;

  // Calls `call(handle)` and raises what it returns below 0. A communicator is used by one thread at a time: a second
  // one raises InvalidUsage.
  template <typename Call>
  tutti_status use(Call&& call) {
    tutti_comm* const comm = handle();
    const User user(*this);
    const Signals signals;
    const tutti_status status = without_lock([&] { return call(comm); });
    if (status < 0) {
      note_failure();
      Signals::raise_if_any();
      raise(status, tutti_comm_error(comm));
    }
    return status;
  }
  // The same for a call on a request, which works after the end of the communicator too. Raises nothing of the call's.
  template <typename Call>
  tutti_status use_request(Call&& call) {
    const User user(*this);
    return without_lock(call);
  }
  // The same, but waits while another thread uses the communicator.
  template <typename Call>
  void use_at_last(Call&& call) {
    await_others();
    const User user(*this);
    const pybind11::gil_scoped_release unlocked;
    call();
  }

  // Ends it; collective. Only warns in a forked child; nothing the second time. Raises InvalidUsage while another
  // thread uses it, and what has gone wrong that no call has raised.
  void close();
  void abort(const std::string& reason);
  // A call raises its failure: that of the communicator, if it is broken, is not raised again by close().
  void note_failure();
  // Communicators that this thread makes from now on are of this job.
  static void join_job(const std::string& job);
  // Aborts those of the job that are open. Any thread.
  static void abort_job(const std::string& job, const std::string& reason);
  // Closes all open communicators of this process, at once, and raises nothing. They are aborted before with the reason, if there is one, or where
  // requests are pending. The program ends: no daemon thread comes back from a call after this.
  static void close_all(const std::optional<std::string>& reason);

  const uint32_t rank, nranks;
  int pending = 0;  // requests
  // The memory that the calls of the open group use.
  std::optional<std::vector<Data>> group;
  // The memory of its windows: in use until they are deregistered, or the communicator has ended.
  std::map<tutti_window*, Data> windows;
  // The open sets of gradients, in the order in which all ranks have made them. They end before the communicator.
  std::vector<Gradients*> gradients;

 private:
  class User {
   public:
    explicit User(State& state);
    User(const User&) = delete;
    User& operator=(const User&) = delete;
    ~User() {
      state_.used_ = false;
      stay_if_ending();
    }

   private:
    State& state_;
  };
  // A thread uses the communicator or its gradients.
  bool is_in_use() const;
  // Until no other thread uses the communicator, nor its gradients where that is asked for.
  void await_others(bool of_gradients = false) const;
  template <typename Call>
  static tutti_status without_lock(Call&& call) {
    const pybind11::gil_scoped_release unlocked;
    return call();
  }

  tutti_comm* comm_;
  const std::string name_, job_;
  const int process_;
  bool used_ = false;  // the interpreter's lock guards it
  bool told_ = false;  // what has broken it was raised by a call, or is an abort of this rank
};

// An operation under way, and the memory that it uses.
class Request {
 public:
  // `call`: its name, a literal.
  Request(const char* call, std::shared_ptr<State> state, tutti_request* request, std::vector<Data> data,
          bool persistent);
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  // Waits for its end.
  ~Request();
  // True once it is complete. Raises the operation's error, once.
  bool test();
  bool wait(std::optional<double> seconds);
  // Waits in turns, so that signals reach their handlers. A handler that raises ends the communicator first, since the
  // operation uses the memory.
  void finish();
  // A persistent one that is complete. Raises what the call would.
  void start();
  // "<tutti.Request all_reduce, \"world\" rank 0 of 2, in flight>". Advances nothing.
  std::string text() const;

 private:
  void begin() {
    ++state_->pending;
    under_way_ = true;
    phase_ = "in flight";
  }
  bool ended(tutti_status status);
  void outlast();

  const char* const call_;
  std::shared_ptr<State> state_;
  const bool persistent_;
  bool under_way_ = false;
  const char* phase_ = "not started";
  tutti_request* request_;  // nullptr once it is complete and not persistent
  std::vector<Data> data_;
};

}  // namespace tutti::python
