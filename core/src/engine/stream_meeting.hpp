// SPDX-License-Identifier: Apache-2.0
//
// The ranks of one communicator that are threads of one process meet in every collective on device memory: the last to
// come puts the work of all of them into their streams, in one order that cannot lock up a device whose streams share a
// queue.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bootstrap/failure.hpp"
#include "engine/stream_plan.hpp"

namespace tutti::core {

class StreamMeeting {
 public:
  // The meeting of communicator `id` in this process, made by whoever comes first.
  static std::shared_ptr<StreamMeeting> of(uint64_t id, std::vector<uint32_t> ranks);
  explicit StreamMeeting(std::vector<uint32_t> ranks) : ranks_(std::move(ranks)) {}

  // What a rank brings: `device` is checked to be the same for all, `call` says in words what was called.
  struct Arrival {
    StreamLaunch* launch = nullptr;
    DeviceTables device;
    std::string call;
    std::function<void()> meanwhile;  // what issue() calls while the device is busy; throws when the rank gives up
  };
  // Any thread; one arrival per rank and turn. Returns the turn, to be asked for with passed().
  uint64_t arrive(const Arrival& arrival);
  // True when the work of the turn is in the streams. Throws the Failure with which it ended for all. Waits at most
  // so long.
  bool passed(uint64_t turn, std::chrono::microseconds patience);
  // The rank gives up: its launch is not touched any more, and the meeting has failed for all.
  void leave(uint32_t rank, const Failure& why);
  // The ranks that have not come, "1, 3"; "" when all have.
  std::string missing();

 private:
  void hold(std::unique_lock<std::mutex>& lock);
  static void require_default_stream(const Arrival& arrival);
  void put_into_streams(const std::vector<Arrival>& arrivals, const std::function<void()>& meanwhile);

  const std::vector<uint32_t> ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Arrival> arrivals_;
  std::vector<uint64_t> peers_enabled_;  // device << 32 | peer
  uint64_t turn_ = 0;
  bool issuing_ = false;              // all have come, and their launches are in use without the mutex
  std::unique_ptr<Failure> failure_;  // once it has failed, for good
};

}  // namespace tutti::core
