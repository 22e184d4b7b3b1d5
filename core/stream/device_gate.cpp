// SPDX-License-Identifier: Apache-2.0
#include "stream/device_gate.hpp"

#include <sched.h>

#include <map>
#include <utility>

namespace tutti::core {

// A gate lives as long as the process.
DeviceGate& DeviceGate::of(const DeviceMemory& device) {
  static std::mutex mutex;
  static auto& gates = *new std::map<std::pair<const tutti_device*, uint32_t>, DeviceGate>;
  const std::lock_guard lock(mutex);
  return gates[{device.tables.memory, device.device}];
}

DeviceGate::User::User(const DeviceMemory& device, uint64_t communicator, std::string name)
    : gate_(DeviceGate::of(device)), communicator_(communicator), name_(std::move(name)) {
  const std::lock_guard lock(gate_.users_mutex_);
  gate_.users_.push_back(this);
}

DeviceGate::User::~User() {
  const std::lock_guard lock(gate_.users_mutex_);
  std::erase(gate_.users_, this);
}

// Either the gate's thread sees what is pending, or this one sees that the gate is closed.
void DeviceGate::User::begin() {
  for (;;) {
    pending_.fetch_add(1, std::memory_order_seq_cst);
    if (!gate_.closed_.load(std::memory_order_seq_cst)) return;
    end();
    while (gate_.closed_.load(std::memory_order_acquire)) sched_yield();
  }
}

std::string DeviceGate::pending(const User& caller) {
  const std::lock_guard lock(users_mutex_);
  std::string names;
  for (const User* user : users_)
    if ((user == &caller || user->communicator_ != caller.communicator_) &&
        user->pending_.load(std::memory_order_seq_cst))
      names += (names.empty() ? "" : ", ") + user->name_;
  return names;
}

bool DeviceGate::try_run(const User& caller, const std::function<void()>& body) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  struct Closed {
    std::atomic<bool>& closed;
    explicit Closed(std::atomic<bool>& gate) : closed(gate) { closed.store(true, std::memory_order_seq_cst); }
    ~Closed() { closed.store(false, std::memory_order_release); }
  };
  const Closed closed(closed_);
  if (!pending(caller).empty()) return false;
  body();
  return true;
}

}  // namespace tutti::core
