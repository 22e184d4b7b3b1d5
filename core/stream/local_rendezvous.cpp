// SPDX-License-Identifier: Apache-2.0
#include "stream/local_rendezvous.hpp"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "record/call.hpp"

namespace tutti::core {

std::shared_ptr<LocalRendezvous> LocalRendezvous::of(uint64_t id, std::vector<uint32_t> ranks) {
  static std::mutex mutex;
  static auto* all = new std::map<uint64_t, std::weak_ptr<LocalRendezvous>>();
  const std::lock_guard lock(mutex);
  std::erase_if(*all, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<LocalRendezvous>& kept = (*all)[id];
  if (auto rendezvous = kept.lock()) return rendezvous;
  auto made = std::make_shared<LocalRendezvous>(std::move(ranks));
  kept = made;
  return made;
}

LocalRendezvous::~LocalRendezvous() {
  for (const auto& [executor, event] : events_) executor->destroy_event(executor->self, event);
}

void LocalRendezvous::leave_events(const tutti_executor* executor, std::vector<tutti_event*> events) {
  const std::lock_guard lock(mutex_);
  for (tutti_event* event : events) events_.emplace_back(executor, event);
}

void LocalRendezvous::Bell::ring() {
  rings_.fetch_add(1, std::memory_order_seq_cst);
  if (waiting_.load(std::memory_order_seq_cst))
    syscall(SYS_futex, &rings_, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

void LocalRendezvous::Bell::wait(uint32_t seen, std::chrono::nanoseconds patience) {
  const timespec limit{static_cast<time_t>(patience.count() / 1'000'000'000),
                       static_cast<long>(patience.count() % 1'000'000'000)};
  waiting_.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &rings_, FUTEX_WAIT_PRIVATE, seen, &limit, nullptr, 0);
  waiting_.fetch_sub(1, std::memory_order_seq_cst);
}

std::unique_lock<std::mutex> LocalRendezvous::lock_if_shared() {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (ranks_.size() > 1) lock.lock();
  return lock;
}

uint64_t LocalRendezvous::arrive(const Arrival& arrival) {
  std::unique_lock lock = lock_if_shared();
  if (failure_) std::rethrow_exception(failure_);
  arrivals_.push_back(arrival);
  const uint64_t turn = turn_.load(std::memory_order_relaxed);
  if (arrivals_.size() == ranks_.size()) hold(std::move(lock));
  return turn;
}

// All have come. They wait, so that the mutex need not be held.
void LocalRendezvous::hold(std::unique_lock<std::mutex> lock) {
  present_.swap(arrivals_);
  arrivals_.clear();
  const Arrival& last = present_.back();
  issuing_.store(true, std::memory_order_relaxed);
  issuer_ = last.launch->rank;
  heard_ = std::chrono::steady_clock::now();
  if (lock) lock.unlock();
  std::exception_ptr failed;
  const auto meanwhile = [this, &last] {
    {
      const std::lock_guard again(mutex_);
      heard_ = std::chrono::steady_clock::now();
      if (failure_) std::rethrow_exception(failure_);
    }
    (*last.meanwhile)();
  };
  try {
    put_into_streams(meanwhile);
  } catch (...) {  // the others wait until the turn ends
    failed = std::current_exception();
  }
  if (failed) {
    const std::lock_guard again(mutex_);
    if (!failure_) failure_ = failed;
    failed_.store(true, std::memory_order_release);
  }
  turn_.fetch_add(1, std::memory_order_release);
  issuing_.store(false, std::memory_order_release);
  changed_.ring();
}

// In the thread that puts the work of all into their streams.
void LocalRendezvous::require_default_stream(const Arrival& arrival) {
  const tutti_executor* executor = arrival.device.executor;
  uint32_t device = 0;
  uint64_t flags = 0;
  if (const tutti_status status = executor->stream_state(executor->self, nullptr, &device, &flags); status < 0)
    throw Failure(status, fmt::format("device {}: {}", arrival.device.memory->name, take_plugin_error()));
  if (device != arrival.launch->device)
    throw Failure(
        TUTTI_NOT_SUPPORTED,
        fmt::format("rank {} passes the default stream of device {}, and in the thread of the rank that came "
                    "last the current device is {}: pass streams that you made, or make device {} the current "
                    "one in the threads of all ranks of the process",
                    arrival.launch->rank, arrival.launch->device, device, arrival.launch->device));
}

void LocalRendezvous::require_same(const Arrival& first, const Arrival& other) {
  const auto call = [](const Arrival& of) { return call_of(of.call, of.launch->plan->plan.count, of.tag); };
  const auto text = [&call](const Arrival& arrival) { return call_text(call(arrival)); };
  if (!(other.call == first.call) || other.tag != first.tag)
    throw Failure(TUTTI_MISMATCH, fmt::format("the ranks do not call the same: rank {} called {}, rank {} called {}{}",
                                              first.launch->rank, text(first), other.launch->rank, text(other),
                                              other_algorithms(call(first), call(other))));
  if (has_unequal_blocks(first.call.collective) &&
      other.launch->plan->plan.common_hash != first.launch->plan->plan.common_hash)
    throw Failure(TUTTI_MISMATCH, fmt::format("rank {} called {} with other counts than rank {} did: all ranks must "
                                              "pass the same counts",
                                              other.launch->rank, text(other), first.launch->rank));
  if (other.device.memory != first.device.memory)
    throw Failure(TUTTI_MISMATCH,
                  fmt::format("rank {} has memory of device {}, rank {} of {}", first.launch->rank,
                              first.device.memory->name, other.launch->rank, other.device.memory->name));
  // Work of a captured stream that waits for work of another would draw that one into the capture.
  if (!other.launch->counter != !first.launch->counter)
    throw Failure(TUTTI_MISMATCH, fmt::format("the stream of rank {} is being captured and the stream of rank {} is "
                                              "not: ranks of one process are captured together",
                                              (first.launch->counter ? other : first).launch->rank,
                                              (first.launch->counter ? first : other).launch->rank));
  // The rank that comes last puts the work of all into their streams; the default stream is that of its own device.
  if (!other.launch->stream && other.launch->device != first.launch->device)
    throw Failure(TUTTI_NOT_SUPPORTED,
                  fmt::format("rank {} is on device {}, rank {} of the same process on device {}: on several devices "
                              "ranks of one process pass streams that they made, not the default stream",
                              first.launch->rank, first.launch->device, other.launch->rank, other.launch->device));
  if (!other.launch->stream) require_default_stream(other);
}

void LocalRendezvous::put_into_streams(const std::function<void()>& meanwhile) {
  const Arrival& first = present_.front();
  for (const Arrival& other : present_) require_same(first, other);
  for (const Arrival& a : present_)
    for (const Arrival& b : present_) require_readable(*a.launch, b.launch->device, b.launch->rank);
  launches_.clear();
  for (const Arrival& arrival : present_) launches_.push_back(arrival.launch);
  std::ranges::sort(launches_, {}, &StreamLaunch::rank);
  for (StreamLaunch* launch : launches_)
    if (launch->gate && launch->counter) {
      launch->gate->begin();
      launch->counted = true;
    }
  issue(writer_, first.device, launches_, meanwhile);
}

// `issuing_` is read first: it ends after the turn has been counted.
bool LocalRendezvous::is_over(uint64_t turn) const {
  return !issuing_.load(std::memory_order_acquire) &&
         (turn_.load(std::memory_order_acquire) > turn || failed_.load(std::memory_order_acquire));
}

bool LocalRendezvous::passed(uint64_t turn, std::chrono::microseconds patience) {
  if (const uint32_t seen = changed_.rings(); !is_over(turn)) {
    changed_.wait(seen, patience);
    if (!is_over(turn)) return false;
  }
  if (!failed_.load(std::memory_order_acquire)) return true;
  const std::lock_guard lock(mutex_);
  if (issuing_.load(std::memory_order_relaxed)) return false;  // it began before a rank gave up
  std::rethrow_exception(failure_);
}

void LocalRendezvous::require_no_failure() {
  if (!failed_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  std::rethrow_exception(failure_);
}

bool LocalRendezvous::leave(uint32_t rank, const Failure& why, std::chrono::microseconds patience) {
  std::unique_lock lock(mutex_);
  std::erase_if(arrivals_, [rank](const Arrival& arrival) { return arrival.launch->rank == rank; });
  if (!failure_) try {
      throw Failure(why.status, fmt::format("ends its calls with rank {} of its process, which {}", rank, why.text));
    } catch (...) {  // this, or that there is no memory for it
      failure_ = std::current_exception();
    }
  failed_.store(true, std::memory_order_release);
  lock.unlock();
  changed_.ring();
  const uint32_t seen = changed_.rings();
  if (issuing_.load(std::memory_order_acquire)) changed_.wait(seen, patience);
  return !issuing_.load(std::memory_order_acquire);
}

std::optional<uint32_t> LocalRendezvous::issuer(std::chrono::nanoseconds silent) {
  const std::lock_guard lock(mutex_);
  if (!issuing_ || std::chrono::steady_clock::now() - heard_ < silent) return std::nullopt;
  return issuer_;
}

std::string LocalRendezvous::missing(uint64_t turn) {
  const std::lock_guard lock(mutex_);
  std::string text;
  if (issuing_ || is_over(turn)) return text;
  for (const uint32_t rank : ranks_)
    if (std::ranges::none_of(arrivals_, [rank](const Arrival& a) { return a.launch->rank == rank; }))
      text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

// ---- Sends and receives ----

Handover& LocalRendezvous::offer(uint32_t from, uint32_t to, const std::byte* data, uint32_t device,
                                 tutti_event* ready) {
  std::unique_lock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  Pair& pair = pairs_[{from, to}];
  Handover& made = pair.handovers.take();
  made.from = from;
  made.to = to;
  made.data = data;
  made.device = device;
  made.ready = ready;
  made.stage.store(Handover::Stage::offered, std::memory_order_relaxed);
  pair.offers.push(made);
  lock.unlock();
  changed_.ring();
  return made;
}

Handover* LocalRendezvous::take(uint32_t from, uint32_t to, std::chrono::microseconds patience) {
  const uint32_t seen = changed_.rings();
  {
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    if (Queue<Handover>& offers = pairs_[{from, to}].offers; !offers.empty()) {
      Handover& taken = offers.pop();
      taken.stage.store(Handover::Stage::taken, std::memory_order_relaxed);
      return &taken;
    }
  }
  changed_.wait(seen, patience);
  return nullptr;
}

void LocalRendezvous::advance(Handover& handover, Handover::Stage stage) {
  handover.stage.store(stage, std::memory_order_release);
  changed_.ring();
}

Handover::Stage LocalRendezvous::await(const Handover& handover, std::chrono::microseconds patience) {
  const uint32_t seen = changed_.rings();
  if (handover.stage.load(std::memory_order_acquire) < Handover::Stage::fetched) changed_.wait(seen, patience);
  return handover.stage.load(std::memory_order_acquire);
}

void LocalRendezvous::close(Handover& handover) {
  const std::lock_guard lock(mutex_);
  pairs_[{handover.from, handover.to}].handovers.give_back(handover);
}

std::mutex& LocalRendezvous::filling(void* stream) {
  const std::lock_guard lock(mutex_);
  return filling_[stream];
}

}  // namespace tutti::core
