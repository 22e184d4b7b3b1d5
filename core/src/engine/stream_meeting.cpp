// SPDX-License-Identifier: Apache-2.0
#include "engine/stream_meeting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace tutti::core {

std::shared_ptr<StreamMeeting> StreamMeeting::of(uint64_t id, std::vector<uint32_t> ranks) {
  static std::mutex mutex;
  static auto* meetings = new std::map<uint64_t, std::weak_ptr<StreamMeeting>>();
  const std::lock_guard lock(mutex);
  std::erase_if(*meetings, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<StreamMeeting>& kept = (*meetings)[id];
  if (auto meeting = kept.lock()) return meeting;
  auto made = std::make_shared<StreamMeeting>(std::move(ranks));
  kept = made;
  return made;
}

uint64_t StreamMeeting::arrive(const Arrival& arrival) {
  std::unique_lock lock(mutex_);
  if (failure_) throw *failure_;
  arrivals_.push_back(arrival);
  const uint64_t turn = turn_;
  if (arrivals_.size() == ranks_.size()) hold(lock);
  return turn;
}

// All have come. They wait, so that the mutex need not be held.
void StreamMeeting::hold(std::unique_lock<std::mutex>& lock) {
  const std::vector<Arrival> arrivals = std::exchange(arrivals_, {});
  const std::function<void()> meanwhile = arrivals.back().meanwhile;
  issuing_ = true;
  lock.unlock();
  std::unique_ptr<Failure> failed;
  try {
    put_into_streams(arrivals, [&] {
      {
        const std::lock_guard again(mutex_);
        if (failure_) throw *failure_;
      }
      meanwhile();
    });
  } catch (const Failure& failure) {
    failed = std::make_unique<Failure>(failure);
  } catch (const std::exception& e) {
    failed = std::make_unique<Failure>(TUTTI_INTERNAL, e.what());
  }
  lock.lock();
  if (failed && !failure_) failure_ = std::move(failed);
  issuing_ = false;
  ++turn_;
  lock.unlock();
  changed_.notify_all();
}

// In the thread that puts the work of all into their streams.
void StreamMeeting::require_default_stream(const Arrival& arrival) {
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

void StreamMeeting::put_into_streams(const std::vector<Arrival>& arrivals, const std::function<void()>& meanwhile) {
  const Arrival& first = arrivals.front();
  for (const Arrival& other : arrivals) {
    if (other.call != first.call)
      throw Failure(TUTTI_MISMATCH, fmt::format("the ranks do not call the same: rank {} called {}, rank {} called {}",
                                                first.launch->rank, first.call, other.launch->rank, other.call));
    if (other.device.memory != first.device.memory)
      throw Failure(TUTTI_MISMATCH,
                    fmt::format("rank {} has memory of device {}, rank {} of {}", first.launch->rank,
                                first.device.memory->name, other.launch->rank, other.device.memory->name));
    // Work of a captured stream that waits for work of another would draw that one into the capture.
    if (!other.launch->end != !first.launch->end)
      throw Failure(TUTTI_MISMATCH, fmt::format("the stream of rank {} is being captured and the stream of rank {} is "
                                                "not: ranks of one process are captured together",
                                                (first.launch->end ? other : first).launch->rank,
                                                (first.launch->end ? first : other).launch->rank));
    // Whoever comes last puts the work of all into their streams, and the default stream is that of its own device.
    if (!other.launch->stream && other.launch->device != first.launch->device)
      throw Failure(TUTTI_NOT_SUPPORTED,
                    fmt::format("rank {} is on device {}, rank {} of the same process on device {}: on several devices "
                                "ranks of one process pass streams that they made, not the default stream",
                                first.launch->rank, first.launch->device, other.launch->rank, other.launch->device));
    if (!other.launch->stream) require_default_stream(other);
  }
  const tutti_device* memory = first.device.memory;
  for (const Arrival& a : arrivals)
    for (const Arrival& b : arrivals) {
      const uint64_t pair = uint64_t{a.launch->device} << 32 | b.launch->device;
      if (a.launch->device == b.launch->device || std::ranges::count(peers_enabled_, pair)) continue;
      if (const tutti_status status = memory->enable_peer(memory->self, a.launch->device, b.launch->device); status < 0)
        throw Failure(status, fmt::format("device {} {} of rank {} cannot read device {} of rank {}: {}", memory->name,
                                          a.launch->device, a.launch->rank, b.launch->device, b.launch->rank,
                                          take_plugin_error()));
      peers_enabled_.push_back(pair);
    }
  std::vector<StreamLaunch*> launches;
  for (const Arrival& arrival : arrivals) launches.push_back(arrival.launch);
  std::ranges::sort(launches, {}, &StreamLaunch::rank);
  issue(first.device, launches, meanwhile);
}

bool StreamMeeting::passed(uint64_t turn, std::chrono::microseconds patience) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, patience, [&] { return !issuing_ && (turn_ > turn || failure_); });
  if (issuing_ || (turn_ == turn && !failure_)) return false;
  if (failure_) throw *failure_;
  return true;
}

void StreamMeeting::leave(uint32_t rank, const Failure& why) {
  std::unique_lock lock(mutex_);
  std::erase_if(arrivals_, [rank](const Arrival& arrival) { return arrival.launch->rank == rank; });
  if (!failure_) failure_ = std::make_unique<Failure>(why);
  changed_.notify_all();
  changed_.wait(lock, [this] { return !issuing_; });
}

std::string StreamMeeting::missing() {
  const std::lock_guard lock(mutex_);
  std::string text;
  if (issuing_) return text;
  for (const uint32_t rank : ranks_)
    if (std::ranges::none_of(arrivals_, [rank](const Arrival& a) { return a.launch->rank == rank; }))
      text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

}  // namespace tutti::core
