// SPDX-License-Identifier: Apache-2.0
//
// The gate of one device of this process. Calls that may wait for a whole device (allocation, release, registration,
// import, export, loading of kernels) go through it. A device that waits for a flag which a later command sets would
// keep such a call, and the thread that is to issue that command, waiting for ever. So the gate runs them only
// while no rank has work pending on the device, and no rank issues meanwhile.
//
// One exception: other ranks of the caller's own communicator do not count. They are threads that share the device, and
// their sends may wait for what the caller is about to open.
//
// Threads: any. Issuing takes no lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "engine/fabric/devices.hpp"

namespace tutti::core {

class DeviceGate {
 public:
  // One rank of a communicator, and what it has pending on the device.
  class User {
   public:
    // `name`: for messages, "rank 3 of world".
    User(const DeviceMemory& device, uint64_t communicator, std::string name);
    User(const User&) = delete;
    User& operator=(const User&) = delete;
    ~User();
    // Something is about to be put into a stream. Waits while a call that waits for the device runs.
    void begin();
    // The device has finished it.
    void end() { pending_.fetch_sub(1, std::memory_order_release); }
    // The communicator has failed: its streams have been given all that they waited for.
    void clear() { pending_.store(0, std::memory_order_release); }

    // Runs `body` if nothing is pending and no other thread runs one; says whether it did. Passes on what it throws.
    bool try_run(const std::function<void()>& body) { return gate_.try_run(*this, body); }
    // The ranks that have something pending, for messages: "rank 3 of world, rank 0 of tensor"; "": none.
    std::string pending() { return gate_.pending(*this); }

   private:
    friend class DeviceGate;
    DeviceGate& gate_;
    const uint64_t communicator_;
    const std::string name_;
    std::atomic<uint64_t> pending_{0};
  };

 private:
  static DeviceGate& of(const DeviceMemory& device);
  bool try_run(const User& caller, const std::function<void()>& body);
  std::string pending(const User& caller);

  std::mutex mutex_;  // held while a body runs
  std::mutex users_mutex_;
  std::vector<User*> users_;
  std::atomic<bool> closed_{false};
};

}  // namespace tutti::core
