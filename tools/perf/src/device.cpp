// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <tutti/sdk/text.hpp>
#include <tutti/tutti.hpp>
#include <utility>

namespace perf {
namespace {

void check(const char* name, const char* what, tutti_status status) {
  if (status < 0)
    throw tutti::Error(status, std::string("device ") + name + ": " + what + ": " + tutti::take_plugin_error());
}

tutti::DeviceTables find(const std::string& name) {
  std::string known;
  for (const tutti::DeviceTables& tables : tutti::list_devices()) {
    if (name == tables.memory->name) return tables;
    known += (known.empty() ? "" : ", ") + std::string(tables.memory->name);
  }
  throw tutti::Error(TUTTI_INVALID_ARGUMENT, "--device " + name + ": there is no such device; " +
                                                 (known.empty() ? "no plugin brings one" : "known are " + known) +
                                                 " (tutti-info lists plugins)");
}

}  // namespace

namespace {

uint32_t count_of(const tutti::DeviceTables& tables) {
  tutti_device_caps caps{};
  caps.struct_size = sizeof caps;
  const char* name = tables.memory->name;
  check(name, "query", tables.memory->query(tables.memory->self, &caps));
  if (!caps.devices)
    throw tutti::Error(TUTTI_NOT_SUPPORTED, std::string("--device ") + name + ": this machine has none");
  return caps.devices;
}

}  // namespace

std::string Device::setting(const std::string& name, uint32_t rank) {
  return name + ":" + std::to_string(rank % count_of(find(name)));
}

Device::Device(const std::string& bound) : tables_(find(bound.substr(0, bound.find(':')))) {
  count_ = count_of(tables_);
  const auto ordinal = tutti::whole_number(std::string_view(bound).substr(bound.find(':') + 1), 0, UINT32_MAX);
  if (!ordinal) throw std::invalid_argument("device \"" + bound + "\": expected a kind and a number, as cuda:0");
  ordinal_ = static_cast<uint32_t>(*ordinal);
  const tutti_executor* executor = tables_.executor;
  check(this->name(), "prepare", executor->prepare(executor->self, ordinal_));
  check(this->name(), "create_stream", executor->create_stream(executor->self, ordinal_, &stream_));
  check(this->name(), "create_event", executor->create_event(executor->self, ordinal_, &event_));
}

Device::~Device() {
  if (event_) tables_.executor->destroy_event(tables_.executor->self, event_);
  end_stream();
}

void Device::end_stream() {
  void* const stream = std::exchange(stream_, nullptr);
  if (stream) tables_.executor->destroy_stream(tables_.executor->self, stream);
}

void* Device::allocate(uint64_t bytes) const {
  void* address = nullptr;
  check(name(), "allocate", tables_.memory->allocate(tables_.memory->self, ordinal_, bytes, &address));
  return address;
}

void Device::release(void* address) const { tables_.memory->release(tables_.memory->self, address); }

void* Device::map(void* host, uint64_t bytes) const {
  void* seen = nullptr;
  check(name(), "map_host", tables_.memory->map_host(tables_.memory->self, host, bytes, &seen));
  return seen;
}

void Device::unmap(void* host) const { tables_.memory->unmap_host(tables_.memory->self, host); }

void Device::enqueue(const std::vector<tutti_command>& commands) const {
  check(name(), "enqueue",
        tables_.executor->enqueue(tables_.executor->self, stream_, commands.data(),
                                  static_cast<uint32_t>(commands.size())));
}

void Device::copy(void* to, const void* from, uint64_t bytes) const {
  tutti_command command{};
  command.kind = TUTTI_COMMAND_COPY;
  command.dst = to;
  command.src = &from;
  command.sources = 1;
  command.count = bytes;
  enqueue({command});
}

// After a failure, too, the stream comes to its end: only then may its memory go.
void Device::finish(tutti_comm* comm) const {
  constexpr uint32_t polls_per_look = 1000;
  constexpr std::chrono::seconds letting_go(10);
  std::optional<std::chrono::steady_clock::time_point> limit;
  tutti_command event{};
  event.kind = TUTTI_COMMAND_RECORD;
  event.event = event_;
  enqueue({event});
  const tutti_executor* executor = tables_.executor;
  for (uint32_t polls = 1;; ++polls) {
    const tutti_status status = executor->query_event(executor->self, event_);
    if (status < 0) return check(name(), "the stream's work failed", status);
    const bool ended = status == TUTTI_OK;
    if (!ended && polls % polls_per_look) continue;
    const tutti_status failed = tutti_comm_async_error(comm);
    if (failed >= 0 && ended) return;
    const auto now = std::chrono::steady_clock::now();
    if (failed < 0 && !limit) limit = now + letting_go;
    if (failed < 0 && (ended || now > *limit)) {
      tutti_barrier(comm, nullptr, nullptr);  // says why
      throw tutti::Error(failed, std::string("a collective on the device failed: ") + tutti_comm_error(comm));
    }
    std::this_thread::yield();
  }
}

double Device::time(tutti_comm* comm, const tutti_command& command, uint32_t times) const {
  const auto start = std::chrono::steady_clock::now();
  for (uint32_t i = 0; i < times; ++i) enqueue({command});
  finish(comm);
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

Baseline Device::measure(tutti_comm* comm, uint64_t bytes) const {
  constexpr uint64_t least = 1u << 20, most = 1u << 30;
  constexpr uint32_t repetitions = 10, small_in_a_row = 200, small_alone = 51;
  Baseline found;
  found.bytes = std::clamp(bytes, least, most) / least * least;
  char* buffer = static_cast<char*>(allocate(3 * found.bytes));
  const void* sources[] = {buffer, buffer + found.bytes};
  tutti_command command{};
  command.dtype = TUTTI_FLOAT32;
  command.op = TUTTI_SUM;
  command.src = sources;
  command.dst = buffer + 2 * found.bytes;
  const auto rate = [&](uint32_t kind, uint32_t of, uint64_t count, double moved) {
    command.kind = kind;
    command.sources = of;
    command.count = count;
    time(comm, command, 2);
    return moved * static_cast<double>(found.bytes) * repetitions / time(comm, command, repetitions) / 1e3;
  };
  try {
    found.copy = rate(TUTTI_COMMAND_COPY, 1, found.bytes, 2);
    found.reduce = rate(TUTTI_COMMAND_REDUCE, 2, found.bytes / sizeof(float), 3);
    command.kind = TUTTI_COMMAND_COPY;
    command.sources = 1;
    command.count = 8;
    found.in_stream_us = time(comm, command, small_in_a_row) / small_in_a_row;
    std::vector<double> alone(small_alone);
    for (double& one : alone) one = time(comm, command, 1);
    std::nth_element(alone.begin(), alone.begin() + small_alone / 2, alone.end());
    found.alone_us = alone[small_alone / 2];
  } catch (...) {
    release(buffer);
    throw;
  }
  release(buffer);
  return found;
}

}  // namespace perf
