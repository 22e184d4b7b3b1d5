// SPDX-License-Identifier: Apache-2.0
//
// The operations that a rank has put into streams and the device has not finished, oldest first. A counter in host
// memory tells how far the device has come, so all operations come one after the other, also those in different
// streams.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/p2p/transfer.hpp"
#include "stream/device_gate.hpp"
#include "stream/device_probe.hpp"
#include "stream/stream_call.hpp"
#include "stream/stream_counter.hpp"
#include "stream/stream_plan.hpp"

namespace tutti::core {

class InFlight {
 public:
  InFlight(const DeviceTables& device, DeviceGate::User& gate) : device_(device), gate_(gate) {}
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

  // Before the first operation, in the device's gate. Throws Failure.
  void open(uint32_t device);
  bool is_open() const { return counter_ != nullptr; }
  // Is there room for another operation in the device's queue? `most`: commands that may be there before it.
  bool has_room(uint64_t most) const;

  // ---- The operation that begins. Until issued() or abort() it is neither pending nor over.
  StreamOperation& begin(const StreamCall& call, std::span<const Transfer> transfers = {});
  // Its part in the issue gets the counter and what comes before it.
  void enter(StreamPart& part);
  const StreamOperation& begun() const { return begun_; }
  // Is it recorded for later replays? Then nothing of it runs now.
  bool captures() const { return begun_.call.capturing; }
  // Has the device come to it?
  bool is_entered() const { return counter_->reached(begun_.first); }
  // It has been issued: it is pending from now on, and the request stands for it until complete.
  void issued(tutti_request* request);
  // Its issue has failed, perhaps before it began, perhaps half-way: what is in the stream is pending, without a
  // request.
  void abort();
  // Nothing tells when the device has come to the end of a failed call. `why`: for the next error.
  void keep_in_use(const std::string& why);
  bool has_failed() const { return state_ != StreamHealth::sound; }

  // ---- Those that are pending.
  const StreamOperation* oldest() const { return operations_.empty() ? nullptr : &operations_.front(); }
  // For messages: the oldest one, or the one that begins.
  const StreamOperation& current() const { return operations_.empty() ? begun_ : operations_.front(); }
  // Has the device not come to the oldest one yet? Work of the application in the same stream may take as long as it
  // likes.
  bool is_held_up() const { return oldest() && !counter_->reached(oldest()->first); }
  // The number of them that the device has finished.
  size_t reached() const;
  // Ends up to so many of the oldest, as long as `ends` says true. True: one has ended.
  template <typename Ends>
  bool finish(size_t most, Ends&& ends) {
    size_t n = 0;
    for (; n < most && ends(operations_[n]); ++n) {
      if (operations_[n].counted) gate_.end();
      queued_ -= operations_[n].commands;
    }
    operations_.erase(operations_.begin(), operations_.begin() + static_cast<std::ptrdiff_t>(n));
    return n > 0;
  }
  void moved() {
    if (!operations_.empty()) operations_.front().last_progress_ns = 0;
  }
  // The oldest one where the device has begun it and it stands still for longer than its timeout. `issues`: one is
  // being issued. Throws Failure where the device has failed, which it is asked now and then.
  const StreamOperation* overdue(uint64_t now_ns, bool issues);
  // Has the device come to the end of all that it was given?
  bool is_done() const { return !counter_ || counter_->reached(given_); }
  bool is_over() const { return operations_.empty() && state_ != StreamHealth::stuck && is_done(); }
  // An error's words about memory that may still be in use, "; ...", told once.
  std::string take_in_use();
  // The communicator has ended. Gives each request to `ends`.
  template <typename Ends>
  void fail_all(Ends&& ends) {
    state_ = std::max(state_, StreamHealth::failed);
    for (const StreamOperation& operation : operations_)
      if (operation.request) ends(*operation.request);
    operations_.clear();
    gate_.clear();  // nothing that they wait for is missing any more
  }

 private:
  enum class StreamHealth { sound, failed, stuck };
  const DeviceTables device_;
  DeviceGate::User& gate_;
  StreamHealth state_ = StreamHealth::sound;
  std::unique_ptr<StreamCounter> counter_, queue_;
  DeviceProbe probe_;
  std::vector<StreamOperation> operations_;
  StreamOperation begun_;
  StreamPart* part_ = nullptr;  // its
  uint64_t number_ = 0;         // of the newest operation
  uint32_t given_ = 0;          // what the newest one that the device was given stores last
  uint32_t last_stream_ = 0;    // number of the stream that it is in
  uint64_t queued_ = 0;         // sum of operations' commands
  std::string in_use_;
};

}  // namespace tutti::core
