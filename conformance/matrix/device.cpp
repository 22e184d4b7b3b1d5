// SPDX-License-Identifier: Apache-2.0
#include "matrix/device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <thread>

namespace tutti::conformance {
namespace {

constexpr uint64_t device_page = 4096;
constexpr double limit_s = 30;

Device describe(const DeviceTables& tables) {
  Device device{tables.memory->name, tables, 0, {}, false, false};
  tutti_device_caps caps{};
  caps.struct_size = sizeof caps;
  take_plugin_error();
  if (const tutti_status status = tables.memory->query(tables.memory->self, &caps); status < 0) {
    device.unusable = take_plugin_error();
    device.broken = status != TUTTI_NOT_SUPPORTED || device.unusable.empty();
    if (device.unusable.empty()) device.unusable = "its query fails and gives no reason";
  } else if (!caps.devices) {
    device.unusable = "this process sees none (query says devices = 0)";
  }
  device.devices = caps.devices;
  device.exports = caps.flags & TUTTI_DEVICE_EXPORTS;
  device.exact_dtypes = caps.exact_dtypes;
  return device;
}

// A device's text of its latest failure.
std::string words() {
  const std::string text = take_plugin_error();
  return text.empty() ? "no reason given" : text;
}

}  // namespace

Device make_device(const std::string& name) {
  if (name == "host") return {name, {}, 0, {}, false, false};
  std::string known = "host";
  for (const DeviceTables& tables : list_devices()) {
    if (name == tables.memory->name) return describe(tables);
    known += std::string(", ") + tables.memory->name;
  }
  throw std::invalid_argument(fmt::format("there is no device \"{}\"; known are {}", name, known));
}

std::vector<Device> select_devices(const std::vector<std::string>& names) {
  std::vector<Device> devices;
  for (const std::string& name : names) devices.push_back(make_device(name));
  if (!names.empty()) return devices;
  devices.push_back(make_device("host"));
  for (const DeviceTables& tables : list_devices()) devices.push_back(describe(tables));
  return devices;
}

Staging::Staging(const Device& device, uint64_t bytes)
    : tables_(device.tables), bytes_((bytes + device_page - 1) / device_page * device_page) {
  host_ = static_cast<char*>(std::aligned_alloc(device_page, bytes_));
  if (!host_) throw std::runtime_error(fmt::format("out of memory: {} bytes", bytes_));
  if (tables_.memory->map_host(tables_.memory->self, host_, bytes_, &seen_) >= 0) return;
  std::free(host_);
  throw std::runtime_error(fmt::format("device {}: map_host of {} bytes: {}", device.name, bytes_, words()));
}

Staging::~Staging() {
  tables_.memory->unmap_host(tables_.memory->self, host_);
  std::free(host_);
}

Seat::Seat(const Device& device, uint32_t number, double patience)
    : device_(device), number_(number), limit_s_(limit_s * patience) {
  const tutti_executor* e = device_.tables.executor;
  check("prepare", e->prepare(e->self, number_));
  for (uint32_t k = 0; k < streams; ++k) {
    check("create_stream", e->create_stream(e->self, number_, &streams_[k]));
    check("create_event", e->create_event(e->self, number_, &events_[k]));
  }
}

Seat::~Seat() {
  const tutti_executor* e = device_.tables.executor;
  for (uint32_t k = 0; k < streams; ++k) {
    if (events_[k]) e->destroy_event(e->self, events_[k]);
    if (streams_[k]) e->destroy_stream(e->self, streams_[k]);
  }
}

void Seat::check(const char* function, tutti_status status) const {
  if (status < 0)
    throw std::runtime_error(fmt::format("device {} {}: {}: {}", device_.name, number_, function, words()));
}

void* Seat::allocate(uint64_t bytes) {
  void* address = nullptr;
  check("allocate", device_.tables.memory->allocate(device_.tables.memory->self, number_, bytes, &address));
  return address;
}

void Seat::release(void* address) {
  check("release", device_.tables.memory->release(device_.tables.memory->self, address));
}

std::unique_ptr<Staging> Seat::borrow(uint64_t bytes) {
  const auto fits = [&](const auto& staging) { return staging->bytes() >= bytes && staging->bytes() <= 4 * bytes; };
  const auto found = std::find_if(spare_.begin(), spare_.end(), fits);
  if (found == spare_.end()) return std::make_unique<Staging>(device_, bytes);
  std::unique_ptr<Staging> staging = std::move(*found);
  spare_.erase(found);
  return staging;
}

void Seat::give_back(std::unique_ptr<Staging> staging) {
  constexpr size_t most_spare = 8;
  if (spare_.size() == most_spare) spare_.erase(spare_.begin());
  spare_.push_back(std::move(staging));
}

void Seat::enqueue(uint32_t k, const tutti_command& command) {
  const tutti_executor* e = device_.tables.executor;
  check("enqueue", e->enqueue(e->self, streams_[k], &command, 1));
}

void Seat::copy(uint32_t k, void* dst, const void* src, uint64_t bytes) {
  tutti_command command{};
  command.kind = TUTTI_COMMAND_COPY;
  command.dst = dst;
  command.src = &src;
  command.sources = 1;
  command.count = bytes;
  enqueue(k, command);
}

void Seat::finish(uint32_t k) {
  const tutti_executor* e = device_.tables.executor;
  tutti_command command{};
  command.kind = TUTTI_COMMAND_RECORD;
  command.event = events_[k];
  enqueue(k, command);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit_s_);
  for (uint32_t polls = 0;; ++polls) {
    const tutti_status status = e->query_event(e->self, events_[k]);
    check("query_event", status);
    if (status != TUTTI_AGAIN) return;
    if (std::chrono::steady_clock::now() > limit)
      throw std::runtime_error(
          fmt::format("device {} {}: stream {} of the rank has not come to its end in {:.0f} s: does a command wait "
                      "for what nobody "
                      "does?",
                      device_.name, number_, k, limit_s_));
    if (polls < 1000)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace tutti::conformance
