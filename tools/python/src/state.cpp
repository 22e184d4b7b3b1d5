// SPDX-License-Identifier: Apache-2.0
#include "state.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace tutti::python {
namespace {

namespace py = pybind11;

// Of all living states; the interpreter's lock guards it.
std::vector<State*>& all() {
  static auto* states = new std::vector<State*>();
  return *states;
}

}  // namespace

State::State(tutti_comm* comm, std::string name) : comm_(comm), name_(std::move(name)), process_(getpid()) {
  all().push_back(this);
}

State::~State() {
  close();
  std::erase(all(), this);
}

tutti_comm* State::handle() const {
  if (!comm_) raise(TUTTI_INVALID_USAGE, "the communicator \"" + name_ + "\" is closed: make a new one");
  return comm_;
}

void State::await_others() const {
  while (used_) {
    const py::gil_scoped_release unlocked;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

State::User::User(State& state) : state_(state) {
  if (std::exchange(state.used_, true))
    raise(TUTTI_INVALID_USAGE,
          "the communicator \"" + state.name_ +
              "\" is in use by another thread: one thread at a time; make a communicator for each");
}

void State::close() {
  if (!comm_) return;
  const User user(*this);
  tutti_comm* const comm = comm_;
  comm_ = nullptr;
  if (getpid() != process_) return;  // it is the parent's
  {
    const py::gil_scoped_release unlocked;
    tutti_comm_destroy(comm);
  }
  windows.clear();
}

void State::abort(const std::string& reason) const {
  tutti_comm* const comm = handle();
  const py::gil_scoped_release unlocked;
  tutti_comm_abort(comm, reason.c_str());
}

void State::close_all(const std::optional<std::string>& reason) {
  for (State* state : std::vector(all())) {
    if (!state->comm_) continue;
    if (reason)
      state->abort(*reason);
    else if (state->used_)
      state->abort("the interpreter ended while a thread was in a call");
    else if (state->pending)
      state->abort("the interpreter ended with " + std::to_string(state->pending) + " requests in flight");
    state->await_others();
    state->close();
  }
}

Request::Request(std::shared_ptr<State> state, tutti_request* request, std::vector<Data> data, bool persistent)
    : state_(std::move(state)), persistent_(persistent), request_(request), data_(std::move(data)) {
  if (!persistent) begin();
}

Request::~Request() {
  if (!request_) return;
  state_->use_at_last([this] { tutti_request_free(request_); });
  if (under_way_) --state_->pending;
}

// Gives the memory back once the operation has ended and will not start again, and raises its error.
bool Request::ended(tutti_status status) {
  if (status == TUTTI_AGAIN) return false;
  const std::string text = tutti_request_error(request_);
  if (std::exchange(under_way_, false)) --state_->pending;
  if (!persistent_) {
    tutti_request_free(std::exchange(request_, nullptr));
    data_.clear();
  }
  if (status < 0) raise(status, text);
  return true;
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
  const auto nanoseconds = static_cast<uint64_t>(std::clamp(*seconds, 0.0, 1e9) * 1e9);
  return ended(state_->use_request([&] { return tutti_request_wait_for(request_, nanoseconds); }));
}

void Request::finish() {
  constexpr uint64_t turn_ns = 50'000'000;
  while (request_) {
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
