// SPDX-License-Identifier: Apache-2.0
#include "state.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>
#include <thread>
#include <utility>

#include "gradients.hpp"

namespace tutti::python {
namespace {

namespace py = pybind11;

// Of all living states; the interpreter's lock guards it.
std::vector<State*>& all() {
  static auto* states = new std::vector<State*>();
  return *states;
}

bool lives(const State* state) { return std::ranges::count(all(), state) > 0; }

thread_local std::string job_of_this_thread;

// What a forked child does with its parent's communicator has no effect. Python shows a warning of one place once.
void warn_child(const std::string& call, const std::string& name) {
  const std::string text = call + ": this process was forked after the communicator \"" + name +
                           "\" was made, so the call does nothing: a child may only exec or exit";
  if (PyErr_WarnEx(PyExc_RuntimeWarning, text.c_str(), 1) != 0) throw py::error_already_set();
}

// "/home/me/train.py:14", the line that this thread carries out; "": none. The interpreter's lock is held.
std::string line_under_way() {
  PyFrameObject* const frame = PyEval_GetFrame();
  if (!frame) return {};
  const auto code = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
  const py::object path = code.attr("co_filename");
  const auto bytes = py::reinterpret_steal<py::bytes>(PyUnicode_EncodeFSDefault(path.ptr()));
  if (!bytes) return PyErr_Clear(), std::string();  // a name that the file system has no bytes for
  return std::string(bytes) + ":" + std::to_string(PyFrame_GetLineNumber(frame));
}

}  // namespace

void CallSite::tell() {
  if (turns_++ == 1) line_ = line_under_way();
  tutti_set_call_site(line_.c_str());
}

State::State(tutti_comm* comm, std::string name)
    : rank(tutti_comm_rank(comm)),
      nranks(tutti_comm_nranks(comm)),
      comm_(comm),
      name_(std::move(name)),
      job_(job_of_this_thread),
      process_(getpid()) {
  all().push_back(this);
}

State::~State() {
  std::erase(all(), this);
  if (getpid() != process_) return;  // it is the parent's
  try {
    close();
  } catch (py::error_already_set& problem) {  // Python says it as that of any destructor
    problem.discard_as_unraisable("the end of a Communicator");
  }
}

thread_local int Signals::depth_ = 0;

Signals::Signals() {
  if (depth_++ > 0) return;
  tutti_set_interrupt(
      [](void*) -> int32_t {
        const Locked locked;
        return PyErr_Occurred() || PyErr_CheckSignals() != 0;
      },
      nullptr);
}

Signals::~Signals() {
  if (--depth_ == 0) tutti_set_interrupt(nullptr, nullptr);
}

void Signals::raise_if_any(tutti_comm* made) {
  if (!PyErr_Occurred()) return;
  const py::error_already_set raised;
  if (made) {
    const py::gil_scoped_release unlocked;
    tutti_comm_abort(made, "a signal interrupted the call that made it");
    tutti_comm_destroy(made);
  }
  throw raised;
}

bool State::is_forked() const { return getpid() != process_; }

std::string State::text() const {
  return "\"" + name_ + "\" rank " + std::to_string(rank) + " of " + std::to_string(nranks);
}

tutti_comm* State::handle() const {
  stay_if_ending();  // which closes it
  if (!comm_) raise(TUTTI_INVALID_USAGE, "the communicator \"" + name_ + "\" is closed: make a new one");
  return comm_;
}

bool State::is_in_use() const { return used_ || std::ranges::any_of(gradients, &Gradients::is_used); }

// A forked child has none of its parent's other threads.
void State::await_others(bool of_gradients) const {
  while ((of_gradients ? is_in_use() : used_) && getpid() == process_) {
    const py::gil_scoped_release unlocked;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

State::User::User(State& state) : state_(state) {
  stay_if_ending();
  if (std::exchange(state.used_, true) && getpid() == state.process_)
    raise(TUTTI_INVALID_USAGE,
          "the communicator \"" + state.name_ +
              "\" is in use by another thread: one thread at a time; make a communicator for each");
}

void State::close() {
  tutti_status status = TUTTI_OK;
  std::string text;
  {
    if (!comm_) return;
    if (getpid() != process_) {
      comm_ = nullptr;
      return warn_child("Communicator.close", name_);
    }
    while (!gradients.empty()) gradients.front()->close();
    const User user(*this);
    tutti_comm* const comm = std::exchange(comm_, nullptr);
    {
      const Signals signals;
      const py::gil_scoped_release unlocked;
      status = tutti_comm_destroy(comm);
      if (status < 0) text = tutti_comm_error(comm);
    }
    windows.clear();
  }
  Signals::raise_if_any();
  if (status < 0 && !told_) raise(status, "close: " + text);
}

void State::note_failure() { told_ = told_ || !comm_ || tutti_comm_async_error(comm_) < 0; }

void State::abort(const std::string& reason) {
  tutti_comm* const comm = handle();
  if (getpid() != process_) return warn_child("Communicator.abort", name_);
  told_ = true;
  for (Gradients* one : std::vector(gradients))
    if (std::ranges::find(gradients, one) != gradients.end()) one->abort(reason);
  const py::gil_scoped_release unlocked;
  tutti_comm_abort(comm, reason.c_str());
}

void State::join_job(const std::string& job) { job_of_this_thread = job; }

void State::abort_job(const std::string& job, const std::string& reason) {
  for (State* state : std::vector(all()))
    if (lives(state) && state->comm_ && state->job_ == job) state->abort(reason);
}

void State::close_all(const std::optional<std::string>& reason) {
  keep_others_out();
  std::vector<State*> open;
  for (State* state : std::vector(all())) {
    if (!state->comm_ || getpid() != state->process_) continue;
    if (reason)
      state->abort(*reason);
    else if (state->is_in_use())
      state->abort("the interpreter ended while a thread was in a call");
    else if (state->pending)
      state->abort("the interpreter ended with " + std::to_string(state->pending) + " requests in flight");
    state->await_others(true);
    open.push_back(state);
  }
  // Side by side: each end waits for other ranks, and all of them together no longer than one. A daemon thread that
  // comes meanwhile finds them in use. It may also drop one while the interpreter's lock is given up.
  std::erase_if(open, [&](State* state) { return !lives(state) || !state->comm_ || state->used_; });
  std::vector<std::future<tutti_status>> ends;
  for (State* state : open) {
    state->used_ = true;
    std::vector<tutti_gradients*> sets;
    for (Gradients* one : std::exchange(state->gradients, {})) sets.push_back(one->give_up());
    ends.push_back(std::async(std::launch::async, [sets, comm = std::exchange(state->comm_, nullptr)] {
      for (tutti_gradients* one : sets) tutti_gradients_destroy(one);
      return tutti_comm_destroy(comm);
    }));
  }
  {
    const py::gil_scoped_release unlocked;
    for (auto& end : ends) end.wait();
  }
  for (State* state : open)
    if (lives(state)) {
      state->windows.clear();
      state->used_ = false;
    }
}

Request::Request(const char* call, std::shared_ptr<State> state, tutti_request* request, std::vector<Data> data,
                 bool persistent)
    : call_(call), state_(std::move(state)), persistent_(persistent), request_(request), data_(std::move(data)) {
  if (!persistent) begin();
}

Request::~Request() {
  if (!request_) return;
  if (under_way_) outlast();
  state_->use_at_last([this] { tutti_request_free(request_); });
  if (under_way_) --state_->pending;
}

// Waits for the end of an operation that nobody waits for any more. A signal's handler that raises ends the
// communicator; a destructor raises nothing, so an interrupt comes once more.
void Request::outlast() {
  tutti_status status = TUTTI_AGAIN;
  while (status == TUTTI_AGAIN) {
    state_->use_at_last([&] { status = tutti_request_wait_for(request_, turn_ns); });
    if (status != TUTTI_AGAIN || PyErr_CheckSignals() == 0) continue;
    py::error_already_set raised;
    if (state_->is_open()) state_->abort("a signal interrupted the wait for a request that was dropped");
    if (raised.matches(PyExc_KeyboardInterrupt))
      PyErr_SetInterrupt();
    else
      raised.discard_as_unraisable("a Request that is dropped");
    return;
  }
}

// Gives the memory back once the operation has ended and will not start again, and raises its error.
bool Request::ended(tutti_status status) {
  if (status == TUTTI_AGAIN) return false;
  const std::string text = tutti_request_error(request_);
  if (std::exchange(under_way_, false)) {
    --state_->pending;
    phase_ = status < 0 ? "failed" : "complete";
  }
  if (!persistent_) {
    tutti_request_free(std::exchange(request_, nullptr));
    data_.clear();
  }
  if (status < 0) {
    state_->note_failure();
    raise(status, text);
  }
  return true;
}

std::string Request::text() const {
  return "<tutti.Request " + std::string(call_) + ", " + state_->text() + ", " + phase_ + ">";
}

void Request::start() {
  if (!persistent_)
    raise(TUTTI_INVALID_USAGE,
          "Request.start: the request is of Communicator.start, which has started it: only one of "
          "Communicator.persistent is started, and any number of times");
  state_->use([this](tutti_comm*) { return tutti_request_start(request_); });
  begin();
}

bool Request::test() {
  if (!request_) return true;
  return ended(state_->use_request([this] { return tutti_request_test(request_); }));
}

bool Request::wait(std::optional<double> seconds) {
  if (!request_) return true;
  if (!seconds) {
    finish();
    return true;
  }
  if (std::isnan(*seconds)) throw py::value_error("Request.wait: seconds is nan, expected a number of seconds");
  auto left = static_cast<uint64_t>(std::clamp(*seconds, 0.0, 1e9) * 1e9);
  for (CallSite site;;) {
    if (!request_) return true;  // a signal's handler has waited for it
    site.tell();
    const uint64_t turn = std::min(left, turn_ns);
    if (ended(state_->use_request([&] { return tutti_request_wait_for(request_, turn); }))) return true;
    if ((left -= turn) == 0) return false;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
}

void Request::finish() {
  CallSite site;
  while (request_) {
    site.tell();
    if (ended(state_->use_request([this] { return tutti_request_wait_for(request_, turn_ns); }))) return;
    if (PyErr_CheckSignals() == 0) continue;
    py::error_already_set signal;
    if (state_->is_open()) state_->abort("a signal interrupted a call");
    const tutti_status status = state_->use_request([this] { return tutti_request_wait(request_); });
    try {
      ended(status);
    } catch (py::error_already_set&) {  // the signal's exception tells more
    }
    throw signal;
  }
}

}  // namespace tutti::python
