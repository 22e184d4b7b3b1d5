// SPDX-License-Identifier: Apache-2.0
#include "engine.hpp"

#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace tutti::torch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr uint64_t microsecond = 1'000, millisecond = 1'000'000;
// Of a wait: Tutti spins at the beginning of each, and sleeps later. Others who want the communicator wait meanwhile.
constexpr uint64_t shortest_turn = 100 * microsecond, first_turn = 2 * millisecond, longest_turn = 10 * millisecond;
// For pending operations when the communicator ends. All engines' threads move theirs meanwhile, so the operations of
// groups that this thread ends next, one soon after the other, have had that time as well.
constexpr auto patience = std::chrono::seconds(10), soon = std::chrono::seconds(1);
thread_local Clock::time_point gave_up_at;  // the end of the last one that did not wait any longer

// How often this process is the child of a fork.
std::atomic<uint32_t> forks{0};
const int fork_handler = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });

uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::duration_cast<nanoseconds>(Clock::now().time_since_epoch()).count());
}

}  // namespace

// ---- Turns -------------------------------------------------------------------------------------------------

bool Turns::try_enter() {
  uint64_t ticket = served_.load();
  return tickets_.compare_exchange_strong(ticket, ticket + 1);
}

void Turns::enter() {
  const uint64_t ticket = tickets_.fetch_add(1);
  if (served_.load() == ticket) return;
  std::unique_lock lock(mutex_);
  next_.wait(lock, [&] { return served_.load() == ticket; });
}

// Either this thread sees the ticket of one who comes, or that one sees that it is served.
void Turns::leave() {
  if (served_.fetch_add(1) + 1 == tickets_.load()) return;
  const std::lock_guard lock(mutex_);
  next_.notify_all();
}

// ---- Tellers -----------------------------------------------------------------------------------------------

void Tellers::run(State& state) {
  for (std::unique_lock lock(state.mutex);;) {
    state.wakes.wait(lock, [&] { return state.stop || !state.queue.empty(); });
    if (state.queue.empty()) return;
    --state.idle;
    std::function<void()> what = std::move(state.queue.front());
    state.queue.pop_front();
    lock.unlock();
    what();
    what = nullptr;
    lock.lock();
    ++state.idle;
  }
}

void Tellers::tell(std::function<void()> what) {
  const std::lock_guard lock(state_->mutex);
  state_->queue.push_back(std::move(what));
  if (state_->queue.size() <= state_->idle) return state_->wakes.notify_one();
  threads_.emplace_back([state = state_] { run(*state); });
  ++state_->idle;
}

void Tellers::close() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
    state_->wakes.notify_all();
    threads.swap(threads_);
  }
  for (std::thread& thread : threads)
    if (thread.get_id() == std::this_thread::get_id())
      thread.detach();
    else
      thread.join();
}

// ---- Operations --------------------------------------------------------------------------------------------

Engine::Engine(tutti_comm* comm, std::string gone)
    : comm_(comm),
      handle_(comm),
      forks_(forks.load()),
      mover_(new std::thread([this] { run(); })),
      ended_(!comm),
      end_(TUTTI_INVALID_USAGE, gone) {}

void Engine::require_parent() const {
  if (forks_ != forks.load(std::memory_order_relaxed))
    throw Error(TUTTI_INVALID_USAGE, "a process group of the parent cannot be used in a child of fork()");
}

void Engine::start(const OperationPtr& operation) {
  require_parent();
  operation->timed = times_.load(std::memory_order_relaxed);
  outstanding_.fetch_add(1);
  if (queued_count_.load() == 0 && turns_.try_enter()) {
    Ended ended;
    start_one(operation, ended);
    leave(ended);
  } else {
    {
      const std::lock_guard lock(list_mutex_);
      queued_.push_back(operation);
      queued_count_.fetch_add(1);
    }
    serve();
  }
  if (parked_.load()) {
    const std::lock_guard lock(mover_mutex_);
    mover_wakes_.notify_one();
  }
}

// Starts what is queued, unless another thread has its turn: that one looks here when it leaves.
void Engine::serve() {
  while (queued_count_.load() != 0 && turns_.try_enter()) {
    Ended ended;
    start_queued(ended);
    turns_.leave();
    tell_ends(ended);
  }
}

void Engine::start_one(OperationPtr operation, Ended& ended) {
  if (!comm_) {
    end(*operation, end_.status, end_.what());
    return ended.push_back(std::move(operation));
  }
  if (operation->timed) {
    operation->began = Clock::now();
    operation->started.store(true, std::memory_order_release);
  }
  const tutti_status status = operation->start(comm_, &operation->request_);
  if (status >= 0 && operation->request_) return running_.push_back(std::move(operation));
  end(*operation, status, status < 0 ? tutti_comm_error(comm_) : "");
  ended.push_back(std::move(operation));
}

void Engine::start_queued(Ended& ended) {
  while (queued_count_.load() != 0) {
    OperationPtr operation;
    {
      const std::lock_guard lock(list_mutex_);
      operation = std::move(queued_.front());
      queued_.pop_front();
      queued_count_.fetch_sub(1);
    }
    start_one(std::move(operation), ended);
  }
}

void Engine::end(Operation& operation, tutti_status status, const char* text) {
  try {
    const char* const how = status == TUTTI_TIMEOUT ? ": a timeout ended it: " : ": ";
    if (status < 0) throw Error(status, std::string(operation.name) + how + text);
    operation.finish();
  } catch (...) {
    operation.failure = std::current_exception();
  }
  if (operation.timed) operation.over = Clock::now();
  operation.ended.store(true, std::memory_order_release);
  outstanding_.fetch_sub(1);
  if (status < 0 && on_break_ && !broke_.load() && comm_ && tutti_comm_async_error(comm_) < 0)
    tellers_->tell([this] { about_to_abort(); });
}

// The running operation of that number has ended.
void Engine::reap_one(size_t number, tutti_status status, Ended& ended) {
  OperationPtr operation = std::move(running_[number]);
  running_.erase(running_.begin() + static_cast<ptrdiff_t>(number));
  const std::string text = status < 0 ? tutti_request_error(operation->request_) : "";
  tutti_request_free(std::exchange(operation->request_, nullptr));
  end(*operation, status, text.c_str());
  ended.push_back(std::move(operation));
}

// Looks at some operations, at others the next time: each look at one that goes on costs a poll of all links.
void Engine::reap(Ended& ended) {
  constexpr size_t most = 8;
  for (size_t n = std::min(most, running_.size()); n > 0 && !running_.empty(); --n) {
    if (cursor_ >= running_.size()) cursor_ = 0;
    const tutti_status status = tutti_request_test(running_[cursor_]->request_);
    if (status == TUTTI_AGAIN)
      ++cursor_;
    else
      reap_one(cursor_, status, ended);
  }
}

void Engine::move(Operation* target, uint64_t limit_ns, Ended& ended) {
  start_queued(ended);
  if (target && target->request_) {
    tutti_set_call_site("");  // which line of Python waits is not known here
    const tutti_status status = tutti_request_wait_for(target->request_, limit_ns);
    tutti_set_call_site(nullptr);
    const auto at = std::ranges::find(running_, target, &OperationPtr::get);
    cursor_ = static_cast<size_t>(at - running_.begin());
    if (status != TUTTI_AGAIN) reap_one(cursor_, status, ended);
  }
  reap(ended);
}

void Engine::leave(Ended& ended) {
  turns_.leave();
  tell_ends(ended);
  serve();
}

// Memory is dropped here, where nothing is held: a tensor that Python knows may need the interpreter's lock.
void Engine::tell_ends(Ended& ended) {
  for (const OperationPtr& operation : ended) {
    operation->told_.store(true);
    if (operation->asked_.load()) {  // whoever asks from now on sees that it has been told
      std::vector<std::function<void()>> on_end;
      {
        const std::lock_guard lock(list_mutex_);
        on_end.swap(operation->on_end_);
      }
      if (operation->watched.load()) watched_.fetch_sub(1);
      for (std::function<void()>& one : on_end) tellers_->tell(std::move(one));
    }
    operation->release();
  }
  ended.clear();
}

bool Engine::wait(Operation& operation, uint64_t timeout_ns) {
  const auto is_over = [&] { return operation.ended.load(std::memory_order_acquire); };
  if (is_over()) return true;
  require_parent();
  waiting_.fetch_add(1);
  uint64_t deadline = 0;  // the first turn, in which short operations end, reads no clock
  for (uint64_t turn = first_turn, left = timeout_ns; left > 0 && !is_over();) {
    turn = std::min(turn, left);
    Ended ended;
    turns_.enter();
    if (!is_over()) move(&operation, turn, ended);
    const bool others = turns_.wanted() || queued_count_.load() != 0;
    leave(ended);
    if (is_over()) break;
    if (timeout_ns != UINT64_MAX) {
      const uint64_t now = now_ns();
      if (deadline == 0) deadline = now + timeout_ns - turn;
      left = deadline - std::min(now, deadline);
    }
    turn = others ? shortest_turn : std::min(turn * 2, longest_turn);
  }
  waiting_.fetch_sub(1);
  return is_over();
}

bool Engine::test(Operation& operation) {
  require_parent();
  if (!operation.ended.load(std::memory_order_acquire) && turns_.try_enter()) {
    Ended ended;
    move(&operation, 0, ended);
    leave(ended);
  }
  return operation.ended.load(std::memory_order_acquire);
}

void Engine::tell(const OperationPtr& operation, const std::function<void()>& on_end) {
  operation->asked_.store(true);
  bool told = false;
  {
    const std::lock_guard lock(list_mutex_);
    told = operation->told_.load();
    if (!told) {
      operation->on_end_.push_back(on_end);
      if (!operation->watched.exchange(true)) watched_.fetch_add(1);
    }
  }
  if (told) return on_end();
  const std::lock_guard lock(mover_mutex_);
  mover_wakes_.notify_one();
}

void Engine::call(const std::function<tutti_status(tutti_comm*)>& turn) {
  require_parent();
  waiting_.fetch_add(1);
  for (tutti_status status = TUTTI_AGAIN; status == TUTTI_AGAIN;) {
    Ended ended;
    turns_.enter();
    start_queued(ended);
    status = comm_ ? turn(comm_) : end_.status;
    const std::string text = status >= 0 ? "" : comm_ ? tutti_comm_error(comm_) : end_.what();
    reap(ended);
    leave(ended);
    if (status < 0) {
      waiting_.fetch_sub(1);
      throw Error(status, text);
    }
  }
  waiting_.fetch_sub(1);
}

bool Engine::drain(uint64_t timeout_ns) {
  require_parent();
  const auto deadline = Clock::now() + nanoseconds(timeout_ns);
  waiting_.fetch_add(1);
  for (bool idle = false, late = false;; late = Clock::now() >= deadline) {
    Ended ended;
    turns_.enter();
    const OperationPtr first = running_.empty() ? nullptr : running_.front();
    move(first.get(), late ? 0 : millisecond, ended);
    idle = running_.empty() && queued_count_.load() == 0;
    leave(ended);
    if (!idle && !late) continue;
    waiting_.fetch_sub(1);
    return idle;
  }
}

// ---- What nobody waits for ---------------------------------------------------------------------------------

uint64_t Engine::moved_bytes() {
  uint64_t n = traffic_.size(), sum = 0;
  if (tutti_comm_traffic(comm_, traffic_.data(), &n) < 0) return 0;
  if (n > traffic_.size()) {
    traffic_.resize(n);
    return 0;
  }
  for (uint64_t row = 0; row < n; ++row) sum += traffic_[row].sent_bytes + traffic_[row].received_bytes;
  return sum;
}

// One turn of the engine's thread. It must not take the processor from a computation that goes on meanwhile: where
// nothing moves it looks shortly and rests, longer each time. False: there is nothing to move now.
bool Engine::engage(const Operation*& last, uint64_t& rest_us) {
  Ended ended;
  turns_.enter();
  start_queued(ended);
  const uint64_t before = comm_ ? moved_bytes() : 0;
  const auto watched = std::ranges::find_if(running_, [](const OperationPtr& one) { return one->watched.load(); });
  const OperationPtr target = watched != running_.end() ? *watched : running_.empty() ? nullptr : running_.front();
  // An operation that nobody watches and that is new is about to be waited for.
  const bool due = target && (target->watched.load() || target.get() == last);
  last = target.get();
  bool moved = !ended.empty();
  if (due) {
    move(target.get(), (rest_us == 0 ? 200 : 20) * microsecond, ended);
    moved = moved || !ended.empty() || (comm_ && moved_bytes() != before);
  }
  const bool wanted = turns_.wanted();
  leave(ended);
  constexpr uint64_t longest = 400, step_aside = 5000;
  rest_us = wanted ? step_aside : moved ? 0 : std::clamp<uint64_t>(rest_us * 2, 50, longest);
  return due;
}

void Engine::run() {
  prctl(PR_SET_TIMERSLACK, 1000);  // nanoseconds: it rests for microseconds
  const Operation* last = nullptr;
  uint64_t rest_us = 0;
  constexpr int most_idle = 100;
  std::unique_lock lock(mover_mutex_);
  for (int idle = 0; !stop_;) {
    if (outstanding_.load() == 0) {
      last = nullptr;
      rest_us = 0;
      if (++idle < most_idle) {
        mover_wakes_.wait_for(lock, milliseconds(1));
      } else {
        parked_.store(true);
        mover_wakes_.wait(lock, [this] { return stop_ || outstanding_.load() != 0; });
        parked_.store(false);
        idle = 0;
      }
      continue;
    }
    idle = 0;
    bool due = false;
    if (waiting_.load() == 0) {
      lock.unlock();
      due = engage(last, rest_us);
      lock.lock();
    }
    if (stop_) return;
    if (!due && watched_.load() == 0)
      mover_wakes_.wait_for(lock, milliseconds(1));
    else if (!due || rest_us)
      mover_wakes_.wait_for(lock, microseconds(due ? rest_us : 100));
  }
}

// ---- The end -----------------------------------------------------------------------------------------------

void Engine::close(const std::string& reason) {
  if (forks_ != forks.load()) {  // the threads are the parent's
    static_cast<void>(mover_.release());
    static_cast<void>(tellers_.release());
    comm_ = nullptr;
    return;
  }
  if (!reason.empty() && !ended_.load()) tutti_comm_abort(handle_, reason.c_str());
  {
    const std::lock_guard lock(end_mutex_);
    if (!std::exchange(closed_, true)) end_communicator(reason);
  }
  tellers_->close();  // a callback may close the engine, too
}

void Engine::end_communicator(const std::string& reason) {
  if (reason.empty())
    drain(Clock::now() < gave_up_at + soon ? 0 : static_cast<uint64_t>(nanoseconds(patience).count()));
  {
    const std::lock_guard lock(mover_mutex_);
    stop_ = true;
    mover_wakes_.notify_one();
  }
  mover_->join();
  Ended ended;
  turns_.enter();
  const bool gave_up = reason.empty() && outstanding_.load() != 0;
  if (gave_up && handle_) tutti_comm_abort(handle_, "destroyed the process group with operations pending");
  while (!running_.empty()) reap(ended);
  if (!reason.empty()) end_ = Error(TUTTI_ABORTED, "the process group has been aborted: " + reason);
  comm_ = nullptr;
  if (handle_) tutti_comm_destroy(handle_);
  ended_.store(true);
  start_queued(ended);
  leave(ended);
  if (gave_up) gave_up_at = Clock::now();
}

}  // namespace tutti::torch
