// SPDX-License-Identifier: Apache-2.0
#include "stream/stream_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/failure.hpp"

namespace tutti::core {

void StreamWriter::open(const DeviceTables& device, uint64_t most, const std::function<void()>& meanwhile) {
  device_ = device;
  most_ = most;
  meanwhile_ = &meanwhile;
  open_ = 0;
  stretches_.clear();
  queued_ = fresh_ = 0;
}

void StreamWriter::add(const Target& target, uint32_t events) {
  const size_t number = open_++;
  if (number == buffers_.size()) buffers_.emplace_back();
  CommandBuffer& buffer = buffers_[number];
  buffer.of = target;
  buffer.collected.clear();
  buffer.sources.clear();
  buffer.commands = buffer.prepared = buffer.fresh = 0;
  buffer.used = 0;
  while (buffer.used < events) (void)spare_event(number);
}

void StreamWriter::write(size_t target, const tutti_command* commands, size_t n) {
  CommandBuffer& buffer = buffers_[target];
  flush(target);
  while (n) {
    const size_t some = most_ ? std::min<uint64_t>(n, stretch() - std::min(fresh_, stretch() - 1)) : n;
    enqueue(buffer, commands, some);
    buffer.prepared += some;
    commands += some;
    n -= some;
    if (most_ && fresh_ >= stretch()) drain(most_ - most_ / 4);
  }
}

void StreamWriter::write_fused(size_t target, const tutti_command* commands, size_t n) {
  CommandBuffer& buffer = buffers_[target];
  flush(target);
  const tutti_executor* executor = device_.executor;
  const tutti_status status =
      executor->enqueue_fused(executor->self, buffer.of.stream, commands, static_cast<uint32_t>(n));
  require_taken(buffer, status);
  ++buffer.commands;
}

void StreamWriter::copy(size_t target, void* dst, const void* src, uint64_t bytes) {
  CommandBuffer& buffer = buffers_[target];
  tutti_command command{};
  command.kind = TUTTI_COMMAND_COPY;
  command.dst = dst;
  command.count = bytes;
  command.sources = 1;
  buffer.sources.push_back(src);
  buffer.collected.push_back(command);
}

void StreamWriter::flag(size_t target, uint32_t kind, uint32_t* flag, uint32_t value) {
  add(target, tutti_command{.kind = kind, .flag = flag, .value = value});
}

void StreamWriter::event(size_t target, uint32_t kind, tutti_event* event) {
  add(target, tutti_command{.kind = kind, .event = event});
}

tutti_event* StreamWriter::event_end(size_t target) {
  tutti_event* made = spare_event(target);
  event(target, TUTTI_COMMAND_RECORD, made);
  return made;
}

// The next spare event that nothing of this operation uses.
tutti_event* StreamWriter::spare_event(size_t target) {
  CommandBuffer& buffer = buffers_[target];
  std::vector<tutti_event*>& spare = *buffer.of.spare;
  if (buffer.used == spare.size()) {
    spare.reserve(spare.size() + 1);
    spare.push_back(make_event(target));
  }
  return spare[buffer.used++];
}

tutti_event* StreamWriter::make_event(size_t target) const {
  tutti_event* made = nullptr;
  const tutti_executor* executor = device_.executor;
  if (const tutti_status status = executor->create_event(executor->self, at(target).of.device, &made); status < 0)
    throw Failure(status, fmt::format("device {}: no event: {}", device_.memory->name, take_plugin_error()));
  return made;
}

void StreamWriter::flush(size_t target) {
  CommandBuffer& buffer = buffers_[target];
  if (buffer.collected.empty()) return;
  const void* const* source = buffer.sources.data();
  for (tutti_command& command : buffer.collected)
    if (command.sources) command.src = source++;
  enqueue(buffer, buffer.collected.data(), buffer.collected.size());
  drop(target);
}

void StreamWriter::drop(size_t target) {
  buffers_[target].collected.clear();
  buffers_[target].sources.clear();
}

void StreamWriter::enqueue(CommandBuffer& buffer, const tutti_command* commands, size_t n) {
  if (!n) return;
  std::unique_lock<std::mutex> turn;
  if (buffer.of.turn) {
    turn = std::unique_lock(*buffer.of.turn, std::defer_lock);
    while (!turn.try_lock()) (*meanwhile_)();  // its holder may have to wait for the device
  }
  const tutti_executor* executor = device_.executor;
  const tutti_status status = executor->enqueue(executor->self, buffer.of.stream, commands, static_cast<uint32_t>(n));
  require_taken(buffer, status);
  buffer.commands += n;
  buffer.fresh += n;
  fresh_ += n;
}

void StreamWriter::require_taken(const CommandBuffer& buffer, tutti_status status) const {
  if (status < 0)
    throw Failure(status, fmt::format("device {}: the stream of rank {} refuses work: {}", device_.memory->name,
                                      buffer.of.rank, take_plugin_error()));
}

void StreamWriter::drain(uint64_t most) {
  for (size_t target = 0; target < open_; ++target) end_stretch(target);
  fresh_ = 0;
  while (queued_ > most) {
    const Stretch first = stretches_.front();
    while (!buffers_[first.target].of.queue->reached(first.end)) (*meanwhile_)();
    queued_ -= first.commands;
    stretches_.erase(stretches_.begin());
  }
}

void StreamWriter::end_stretch(size_t target) {
  CommandBuffer& buffer = buffers_[target];
  if (!buffer.fresh && buffer.collected.empty()) return;
  const uint32_t end = buffer.of.queue->next();
  add(target, buffer.of.queue->store(end));
  flush(target);
  queued_ += buffer.fresh;
  stretches_.push_back({target, end, std::exchange(buffer.fresh, 0)});
}

}  // namespace tutti::core
