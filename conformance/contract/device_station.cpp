// SPDX-License-Identifier: Apache-2.0
#include "device_station.hpp"

#include <tutti/schedule.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

namespace tutti::conformance::contract {
namespace {

constexpr uint64_t page_of_host = 4096;

}  // namespace

void judge(const tutti_device* d) {
  judge_table_of(TUTTI_DEVICE_ID, d, TUTTI_DEVICE_STAMP);
  judge_name("device", d->name, d->summary);
  const std::pair<const char*, bool> functions[] = {
      {"query", d->query},       {"classify", d->classify},     {"allocate", d->allocate},      {"release", d->release},
      {"map_host", d->map_host}, {"unmap_host", d->unmap_host}, {"enable_peer", d->enable_peer}};
  for (const auto& [name, there] : functions)
    require(there, "E-4", "device {}: the mandatory function {} is NULL", d->name, name);
  require(!d->export_memory == !d->import_memory && !d->export_memory == !d->close_import, "E-4",
          "device {}: export_memory, import_memory and close_import come all or not at all", d->name);
}

void judge(const tutti_executor* e) {
  judge_table_of(TUTTI_EXECUTOR_ID, e, TUTTI_EXECUTOR_STAMP);
  const std::pair<const char*, bool> functions[] = {{"prepare", e->prepare},
                                                    {"stream_state", e->stream_state},
                                                    {"create_event", e->create_event},
                                                    {"destroy_event", e->destroy_event},
                                                    {"query_event", e->query_event},
                                                    {"enqueue", e->enqueue}};
  for (const auto& [name, there] : functions)
    require(there, "E-4", "an executor's mandatory function {} is NULL", name);
  require(!e->create_stream == !e->destroy_stream, "E-4",
          "an executor has one of create_stream and destroy_stream: both or neither");
  require(TUTTI_HAS(tutti_executor, e, enqueue_fused) == TUTTI_HAS(tutti_executor, e, query), "E-4",
          "an executor has one of enqueue_fused and query: both or neither");
}

DeviceUnderTest device_under_test(Bench& bench) {
  DeviceUnderTest found;
  for (uint32_t i = 0; i < most_tables && !found.memory; ++i) {
    const auto* table = static_cast<const tutti_device*>(bench.get_interface(TUTTI_DEVICE_ID, i));
    if (!table) break;
    judge(table);
    if (bench.name != table->name) continue;
    found.memory = table;
    found.executor = static_cast<const tutti_executor*>(bench.get_interface(TUTTI_EXECUTOR_ID, i));
    require(found.executor != nullptr, "E-4", "device {} has no executor: the index-th of one belongs to the other",
            table->name);
    judge(found.executor);
  }
  if (!found.memory)
    throw std::runtime_error(fmt::format("the plugin {} has no device \"{}\"", bench.path, bench.name));
  const tutti_device* d = found.memory;
  tutti_device_caps& c = found.caps;
  c.struct_size = sizeof c;
  const tutti_status status = call("query", false, [&] { return d->query(d->self, &c); });
  if (status == TUTTI_NOT_SUPPORTED) throw NotOffered{fmt::format("query says: {}", last_error())};
  require(status == TUTTI_OK, "D-1", "query returned {}: {}", status_text(status), last_error());
  if (!c.devices) throw NotOffered{"query says that this process sees no such device"};
  return found;
}

Station::Station(Bench& b) : device(device_under_test(b)), bench(b) {
  const tutti_executor* e = device.executor;
  const tutti_status status = call("prepare", false, [&] { return e->prepare(e->self, 0); });
  require(status == TUTTI_OK, "X-11", "prepare of device 0 returned {}: {}", status_text(status), last_error());
}

Station::~Station() {
  if (std::uncaught_exceptions()) return;  // a stream may be held up for good: its process ends anyway
  const tutti_executor* e = device.executor;
  const tutti_device* d = device.memory;
  for (void* stream : streams_) e->destroy_stream(e->self, stream);
  for (tutti_event* event : events_) e->destroy_event(e->self, event);
  for (void* address : allocations_) d->release(d->self, address);
  for (const Mapped& one : mapped_) {
    d->unmap_host(d->self, one.host);
    std::free(one.host);
  }
}

Station::Mapped Station::map(uint64_t bytes) {
  Mapped one;
  one.bytes = (bytes + page_of_host - 1) / page_of_host * page_of_host;
  one.host = static_cast<uint8_t*>(std::aligned_alloc(page_of_host, one.bytes));
  if (!one.host) throw CannotRun{"out of memory"};
  std::memset(one.host, 0, one.bytes);
  void* seen = nullptr;
  const tutti_device* d = device.memory;
  const tutti_status status = call("map_host", false, [&] { return d->map_host(d->self, one.host, one.bytes, &seen); });
  require(status == TUTTI_OK && seen, "D-7", "map_host of {} bytes returned {}: {}", one.bytes, status_text(status),
          last_error());
  one.seen = static_cast<uint8_t*>(seen);
  mapped_.push_back(one);
  return one;
}

uint8_t* Station::allocate(uint64_t bytes, uint32_t of) {
  void* address = nullptr;
  const tutti_device* d = device.memory;
  const tutti_status status = call("allocate", false, [&] { return d->allocate(d->self, of, bytes, &address); });
  require(status == TUTTI_OK && address, "D-5", "allocate of {} bytes on device {} returned {}: {}", bytes, of,
          status_text(status), last_error());
  allocations_.push_back(address);
  return static_cast<uint8_t*>(address);
}

void Station::release(void* address) {
  std::erase(allocations_, address);
  const tutti_device* d = device.memory;
  const tutti_status status = call("release", false, [&] { return d->release(d->self, address); });
  require(status == TUTTI_OK, "D-6", "release of an allocation returned {}: {}", status_text(status), last_error());
}

void* Station::stream(uint32_t of) {
  void* made = nullptr;
  const tutti_executor* e = device.executor;
  if (!e->create_stream) {
    if (of || std::exchange(uses_default_, true))
      throw NotOffered{"it has no create_stream: one stream is tested, NULL"};
    return nullptr;
  }
  const tutti_status status = call("create_stream", false, [&] { return e->create_stream(e->self, of, &made); });
  require(status == TUTTI_OK && made, "X-12", "create_stream on device {} returned {}: {}", of, status_text(status),
          last_error());
  streams_.push_back(made);
  return made;
}

tutti_event* Station::event(uint32_t of) {
  tutti_event* made = nullptr;
  const tutti_executor* e = device.executor;
  const tutti_status status = call("create_event", false, [&] { return e->create_event(e->self, of, &made); });
  require(status == TUTTI_OK && made, "X-9", "create_event on device {} returned {}: {}", of, status_text(status),
          last_error());
  events_.push_back(made);
  return made;
}

tutti_pointer Station::classify(const void* address) {
  tutti_pointer pointer{};
  pointer.struct_size = sizeof pointer;
  const tutti_device* d = device.memory;
  const tutti_status status = call("classify", false, [&] { return d->classify(d->self, address, &pointer); });
  require(status == TUTTI_OK, "D-3",
          "classify of {} returned {}: {}; it never fails for an address that is not "
          "its own",
          address, status_text(status), last_error());
  return pointer;
}

tutti_status Station::enqueue(void* stream, std::vector<tutti_command> commands) {
  const tutti_executor* e = device.executor;
  const tutti_status status = call("enqueue", false, [&] {
    return e->enqueue(e->self, stream, commands.data(), static_cast<uint32_t>(commands.size()));
  });
  std::memset(static_cast<void*>(commands.data()), '#', commands.size() * sizeof commands[0]);  // E-10
  return status;
}

void Station::issue(void* stream, std::vector<tutti_command> commands, const char* clause) {
  const tutti_status status = enqueue(stream, std::move(commands));
  require(status == TUTTI_OK, clause, "enqueue returned {}: {}", status_text(status), last_error());
}

tutti_status Station::poll(tutti_event* event) {
  const tutti_executor* e = device.executor;
  return call("query_event", false, [&] { return e->query_event(e->self, event); });
}

void Station::until_done(tutti_event* event, double seconds) {
  seconds *= bench.patience;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (uint32_t polls = 0;; ++polls) {
    const tutti_status status = poll(event);
    require(status >= 0, "X-9", "query_event returned {}: {}", status_text(status), last_error());
    if (status == TUTTI_OK) return;
    require(std::chrono::steady_clock::now() < limit, "X-9",
            "query_event still says TUTTI_AGAIN after {:.0f} s, though nothing holds the stream up", seconds);
    if (polls > 100) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

void Station::finish(void* stream, double seconds) {
  tutti_event* end = nullptr;
  const tutti_executor* e = device.executor;
  uint32_t of = 0;
  uint64_t flags = 0;
  call("stream_state", false, [&] { return e->stream_state(e->self, stream, &of, &flags); });
  call("create_event", false, [&] { return e->create_event(e->self, of, &end); });
  require(end != nullptr, "X-9", "create_event gave none: {}", last_error());
  issue(stream, {record_event(end)}, "X-9");
  until_done(end, seconds);
  e->destroy_event(e->self, end);
}

void* Station::own_stream(uint32_t of) {
  if (!device.executor->create_stream) return nullptr;
  if (!own_streams_[of % 64]) own_streams_[of % 64] = stream(of);
  return own_streams_[of % 64];
}

void Station::put(void* to, const std::vector<uint8_t>& bytes, uint32_t of) {
  if (bytes.empty()) return;
  const Mapped staging = map(bytes.size());
  std::memcpy(staging.host, bytes.data(), bytes.size());
  const void* source = staging.seen;
  issue(own_stream(of), {copy(to, &source, bytes.size())}, "X-1");
  finish(own_stream(of));
}

std::vector<uint8_t> Station::get(const void* from, uint64_t bytes, uint32_t of) {
  if (!bytes) return {};
  const Mapped staging = map(bytes);
  std::memset(staging.host, 0xd7, bytes);
  issue(own_stream(of), {copy(staging.seen, &from, bytes)}, "X-1");
  finish(own_stream(of));
  return {staging.host, staging.host + bytes};
}

bool reduces(const tutti_device_caps& caps, uint32_t dtype, uint32_t op) {
  return (caps.dtypes >> dtype & 1) && (caps.ops >> op & 1) && op_is_defined(op, dtype);
}
tutti_command copy(void* dst, const void* const* source, uint64_t bytes) {
  tutti_command c{};
  c.kind = TUTTI_COMMAND_COPY;
  c.sources = 1;
  c.dst = dst;
  c.src = source;
  c.count = bytes;
  return c;
}

tutti_command reduce(uint32_t dtype, uint32_t op, void* dst, const std::vector<const void*>& sources, uint64_t count,
                     uint64_t divisor) {
  tutti_command c{};
  c.kind = TUTTI_COMMAND_REDUCE;
  c.dtype = dtype;
  c.op = op;
  c.sources = static_cast<uint32_t>(sources.size());
  c.dst = dst;
  c.src = sources.data();
  c.count = count;
  c.divisor = divisor;
  return c;
}

namespace {
tutti_command flag_command(uint32_t kind, uint32_t* flag, uint32_t value) {
  tutti_command c{};
  c.kind = kind;
  c.flag = flag;
  c.value = value;
  return c;
}
tutti_command event_command(uint32_t kind, tutti_event* event) {
  tutti_command c{};
  c.kind = kind;
  c.event = event;
  return c;
}
}  // namespace

tutti_command wait_until(uint32_t* flag, uint32_t value) { return flag_command(TUTTI_COMMAND_WAIT, flag, value); }
tutti_command write_flag(uint32_t* flag, uint32_t value) { return flag_command(TUTTI_COMMAND_WRITE, flag, value); }
tutti_command record_event(tutti_event* event) { return event_command(TUTTI_COMMAND_RECORD, event); }
tutti_command after_event(tutti_event* event) { return event_command(TUTTI_COMMAND_AFTER, event); }

}  // namespace tutti::conformance::contract
