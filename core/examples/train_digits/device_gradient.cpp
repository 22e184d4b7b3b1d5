// SPDX-License-Identifier: Apache-2.0
#include "device_gradient.hpp"

#include <cstdlib>
#include <new>
#include <stdexcept>
#include <thread>

namespace {

constexpr uint64_t page = 4096;

uint64_t pages(size_t parameters) { return (parameters * sizeof(double) + page - 1) / page * page; }

tutti::DeviceTables find(const std::string& name) {
  for (const tutti::DeviceTables& tables : tutti::list_devices())
    if (name == tables.memory->name) return tables;
  throw std::runtime_error("--device " + name + ": there is no such device");
}

}  // namespace

DeviceGradient::DeviceGradient(const tutti::Communicator& world, const std::string& name, size_t parameters)
    : tables_(find(name)), parameters_(parameters) {
  const tutti_device& memory = *tables_.memory;
  const tutti_executor& executor = *tables_.executor;
  const auto check = [this](tutti_status status, const char* what) {
    if (status < 0) fail(status, what);
  };
  const std::string bound = world.device();  // "cuda:1"
  ordinal_ = static_cast<uint32_t>(std::stoul(bound.substr(bound.find(':') + 1)));
  host_ = static_cast<double*>(std::aligned_alloc(page, pages(parameters)));
  if (!host_) throw std::bad_alloc();
  void *seen = nullptr, *device = nullptr;
  check(executor.prepare(executor.self, ordinal_), "prepare");
  check(memory.map_host(memory.self, host_, pages(parameters), &seen), "map_host");
  check(memory.allocate(memory.self, ordinal_, pages(parameters), &device), "allocate");
  check(executor.create_stream(executor.self, ordinal_, &stream_), "create_stream");
  check(executor.create_event(executor.self, ordinal_, &event_), "create_event");
  seen_ = static_cast<double*>(seen);
  device_ = static_cast<double*>(device);
}

DeviceGradient::~DeviceGradient() {
  tables_.executor->destroy_event(tables_.executor->self, event_);
  tables_.executor->destroy_stream(tables_.executor->self, stream_);
  tables_.memory->release(tables_.memory->self, device_);
  tables_.memory->unmap_host(tables_.memory->self, host_);
  std::free(host_);
}

void DeviceGradient::fail(tutti_status status, const char* what) const {
  throw tutti::Error(status,
                     std::string("device ") + tables_.memory->name + ": " + what + ": " + tutti::take_plugin_error());
}

void DeviceGradient::enqueue(tutti_command command) const {
  const tutti_executor& executor = *tables_.executor;
  if (const tutti_status status = executor.enqueue(executor.self, stream_, &command, 1); status < 0)
    fail(status, "enqueue");
}

void DeviceGradient::copy(void* to, const void* from, uint64_t bytes) const {
  tutti_command command{};
  command.kind = TUTTI_COMMAND_COPY;
  command.dst = to;
  command.src = &from;
  command.sources = 1;
  command.count = bytes;
  enqueue(command);
}

tutti::DeviceSpan<double> DeviceGradient::send(std::span<double> part) const {
  const size_t at = static_cast<size_t>(part.data() - host_);
  copy(device_ + at, seen_ + at, part.size_bytes());
  return {device_ + at, part.size()};
}

void DeviceGradient::fetch() const {
  copy(seen_, device_, parameters_ * sizeof(double));
  const tutti_executor& executor = *tables_.executor;
  tutti_command event{};
  event.kind = TUTTI_COMMAND_RECORD;
  event.event = event_;
  enqueue(event);
  tutti_status status = TUTTI_AGAIN;
  while ((status = executor.query_event(executor.self, event_)) == TUTTI_AGAIN) std::this_thread::yield();
  if (status < 0) fail(status, "the stream's work failed");
}
