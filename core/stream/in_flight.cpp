// SPDX-License-Identifier: Apache-2.0
#include "stream/in_flight.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/failure.hpp"
#include "record/call.hpp"

namespace tutti::core {
namespace {

constexpr size_t most_operations = 256;

}  // namespace

std::string StreamOperation::text() const {
  if (!transfers) return call_text(call_of(call.shape, call.shape.count, call.tag));
  return transfers == 1 ? text_of(transfer)
                        : fmt::format("exchange of {} transfers ({} ...)", transfers, text_of(transfer));
}

void InFlight::open(uint32_t device) {
  if (const tutti_status status = probe_.open(device_, device); status < 0)
    throw Failure(status, fmt::format("device {}: {}", device_.memory->name, take_plugin_error()));
  queue_ = std::make_unique<StreamCounter>(device_);
  counter_ = std::make_unique<StreamCounter>(device_);
}

bool InFlight::has_room(uint64_t most) const {
  return operations_.size() < most_operations && queued_ <= most;
}

StreamOperation& InFlight::begin(const StreamCall& call, std::span<const Transfer> transfers) {
  begun_ = {};
  begun_.call = call;
  begun_.transfers = transfers.size();
  if (!transfers.empty()) begun_.transfer = transfers[0];
  begun_.number = ++number_;
  return begun_;
}

// Handles of destroyed streams come again while their work still runs: numbers tell streams apart.
void InFlight::enter(StreamPart& part) {
  if (operations_.empty()) probe_.restart();
  part_ = &part;
  const StreamCall& call = begun_.call;
  const bool follows = (call.stream_number && last_stream_ == call.stream_number) || is_done();
  part.stream = call.stream;
  part.after = call.capturing || follows ? std::nullopt : std::optional(given_);
  part.counter = call.capturing ? nullptr : counter_.get();
  part.queue = queue_.get();
  if (!call.capturing) {
    part.first = begun_.first = counter_->next();
    part.last = begun_.last = counter_->next();
  }
  part.counted = false;
  part.commands = 0;
  part.read_by.clear();
}

void InFlight::issued(tutti_request* request) {
  begun_.request = request;
  begun_.counted = part_->counted;
  begun_.commands = std::min(part_->commands, most_queued);
  last_stream_ = begun_.call.stream_number;
  given_ = begun_.last;
  queued_ += begun_.commands;
  operations_.push_back(begun_);
}

void InFlight::abort() {
  if (captures()) return;
  if (!part_->read_by.empty())
    keep_in_use(fmt::format("{} may still read this rank's memory: keep it untouched until their streams are done",
                            part_->read_by));
  tutti_command commands[2]{};
  if (part_->after) commands[0] = counter_->wait(*part_->after);
  given_ = counter_->next();
  commands[1] = counter_->store(given_);
  const uint32_t first = part_->after && !part_->commands ? 0 : 1;  // it may have begun, and waited
  if (device_.executor->enqueue(device_.executor->self, part_->stream, commands + first, 2 - first) == TUTTI_OK) return;
  keep_in_use(
      fmt::format("the device cannot report when the stream is done ({}): keep its buffers untouched until the stream "
                  "is destroyed",
                  take_plugin_error()));
}

void InFlight::keep_in_use(const std::string& why) {
  state_ = StreamHealth::stuck;
  in_use_ += "; " + why;
}

size_t InFlight::reached() const {
  const auto is_reached = [this](const StreamOperation& one) { return counter_->reached(one.last); };
  return static_cast<size_t>(std::ranges::find_if_not(operations_, is_reached) - operations_.begin());
}

const StreamOperation* InFlight::overdue(uint64_t now_ns, bool issues) {
  if (oldest() || issues)
    if (const auto failed = probe_.poll(now_ns))
      throw Failure(failed->status, fmt::format("{}: {}", current().text(), failed->text));
  if (!oldest()) return nullptr;
  StreamOperation& first = operations_.front();
  if (!first.last_progress_ns || is_held_up()) first.last_progress_ns = now_ns;
  return now_ns - first.last_progress_ns > first.call.timeout_ns ? &first : nullptr;
}

std::string InFlight::take_in_use() {
  if (!is_done())
    in_use_ += "; the device has not finished its work: keep its buffers untouched until the stream is destroyed";
  return std::exchange(in_use_, {});
}

}  // namespace tutti::core
