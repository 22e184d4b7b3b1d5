// SPDX-License-Identifier: Apache-2.0
#include "engine/stream_runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "bootstrap/failure.hpp"
#include "engine/host.hpp"
#include "engine/settings.hpp"

namespace tutti::core {
namespace {

constexpr size_t most_operations = 256;  // issued and not finished by the device
constexpr std::chrono::seconds unmapping_limit(1);

// The devices that work here. A device that does not is left out with a line in the log.
const std::vector<DeviceTables>& working_devices() {
  static const auto* devices = [] {
    auto* found = new std::vector<DeviceTables>();
    for (const DeviceTables& tables : list_devices()) {
      tutti_device_caps caps{};
      caps.struct_size = sizeof caps;
      if (tables.memory->query(tables.memory->self, &caps) < 0)
        log(TUTTI_LOG_INFO, tables.memory->name, fmt::format("left out: {}", take_plugin_error()));
      else if (caps.devices)
        found->push_back(tables);
    }
    return found;
  }();
  return *devices;
}

}  // namespace

bool have_devices() {
  static const bool have = !working_devices().empty();
  return have;
}

DeviceMemory find_device(const void* address) {
  if (!address || !have_devices()) return {};
  for (const DeviceTables& tables : working_devices()) {
    tutti_pointer pointer{};
    pointer.struct_size = sizeof pointer;
    if (const tutti_status status = tables.memory->classify(tables.memory->self, address, &pointer); status < 0)
      throw Failure(status, take_plugin_error());
    if (pointer.kind != TUTTI_MEMORY_HOST) return {tables, pointer.device};
  }
  return {};
}

DeviceMemory find_device_of_stream(void* stream) {
  if (working_devices().size() != 1)
    throw Failure(TUTTI_NOT_SUPPORTED, fmt::format("a call without buffers on a stream: there are {} kinds of devices, "
                                                   "expected one",
                                                   working_devices().size()));
  DeviceMemory where{working_devices().front(), 0};
  uint64_t flags = 0;
  if (const tutti_status status =
          where.tables.executor->stream_state(where.tables.executor->self, stream, &where.device, &flags);
      status < 0)
    throw Failure(status, fmt::format("device {}: {}", where.tables.memory->name, take_plugin_error()));
  return where;
}

StreamRunner::StreamRunner(Place place) : place_(std::move(place)), fuses_(flag_setting("TUTTI_FUSED", true)) {
  for (uint32_t r = 0; r < place_.topology->nranks(); ++r)
    if (place_.topology->same_process(r, place_.rank)) local_.push_back(r);
  meeting_ = StreamMeeting::of(place_.communicator, local_);
  if (place_.board)
    direct_ = std::make_unique<DirectMemory>(
        DirectMemory::Place{place_.rank, place_.topology, place_.exchange, &early_notices_, place_.board});
  board_ = StreamBoard::of(place_.communicator);
}

StreamRunner::~StreamRunner() {
  if (!operations_.empty() || stuck_) {  // the device may still touch all of it
    for (auto& [way, channel] : channels_) (void)channel.release();
    (void)direct_.release();
    return;
  }
  close_channels();
  end();
  if (direct_ && !direct_->is_scratch_free()) {
    log(TUTTI_LOG_WARN, home_.tables.memory->name,
        fmt::format("a rank has not unmapped this process's scratch: {} bytes are kept until the process ends",
                    scratch_bytes_));
    scratch_ = nullptr;
    captured_.clear();
  }
  const tutti_executor* executor = home_.tables.executor;
  for (const auto* marks : {&spare_, &free_})
    for (tutti_mark* mark : *marks) executor->destroy_mark(executor->self, mark);
  captured_.push_back(scratch_);
  for (void* scratch : captured_)
    if (scratch) home_.tables.memory->release(home_.tables.memory->self, scratch);
}

// What this rank has mapped is unmapped first: its owners wait for that before they release it, as this rank does.
void StreamRunner::close_channels() {
  std::vector<MappedChannel*> own;
  std::erase_if(channels_, [&](const auto& entry) {
    auto* mapped = dynamic_cast<MappedChannel*>(entry.second.get());
    if (mapped && mapped->outgoing()) own.push_back(mapped);
    return mapped && !mapped->outgoing();
  });
  const auto in_use = [this](MappedChannel* channel) {
    if (channel->in_use() && place_.board && place_.board->is_gone(channel->peer())) channel->not_mapped();
    return channel->in_use();
  };
  const auto limit = std::chrono::steady_clock::now() + unmapping_limit;
  while (std::ranges::any_of(own, in_use) && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  channels_.clear();
}

bool StreamRunner::has_room() const {
  // Where the device waits for this process nobody may ever have to wait for its queue.
  return operations_.size() < most_operations && (!has_channels() || queued_ <= most_queued / local_.size());
}

tutti_mark* StreamRunner::take_mark(const DeviceMemory& where) {
  if (!free_.empty()) {
    tutti_mark* mark = free_.back();
    free_.pop_back();
    return mark;
  }
  tutti_mark* made = nullptr;
  const tutti_executor* executor = where.tables.executor;
  if (const tutti_status status = executor->create_mark(executor->self, where.device, &made); status < 0)
    throw Failure(status, fmt::format("device {}: no mark: {}", where.tables.memory->name, take_plugin_error()));
  return made;
}

bool StreamRunner::require_stream(const Call& call) const {
  const tutti_executor* executor = call.where.tables.executor;
  uint32_t device = 0;
  uint64_t flags = 0;
  if (const tutti_status status = executor->stream_state(executor->self, call.stream, &device, &flags); status < 0)
    throw Failure(status, fmt::format("device {}: {}", call.where.tables.memory->name, take_plugin_error()));
  if (device != call.where.device)
    throw Failure(TUTTI_INVALID_ARGUMENT, fmt::format("the stream belongs to device {} {}, the buffers to device {}",
                                                      call.where.tables.memory->name, device, call.where.device));
  const bool capturing = (flags & TUTTI_STREAM_CAPTURING) != 0;
  if (capturing && call.wants_request)
    throw Failure(TUTTI_NOT_SUPPORTED, "the stream is being captured: a recorded call has no request");
  return capturing;
}

void StreamRunner::put(const Call& call, const std::vector<Transfer>& transfers,
                       const std::function<void()>& meanwhile) {
  begun_ = {};
  begun_.where = call.where;
  begun_.stream = call.stream;
  begun_.timeout_ns = call.timeout_ns;
  begun_.text = text_of(transfers[0]);
  if (transfers.size() > 1)
    begun_.text = fmt::format("exchange of {} transfers ({} ...)", transfers.size(), begun_.text);
  begun_.begin = take_mark(call.where);
  begun_.end = take_mark(call.where);
  exchange_ = {};
  exchange_.rank = place_.rank;
  exchange_.transfers = &transfers;
  exchange_.tables = call.where.tables;
  exchange_.device = call.where.device;
  exchange_.stream = call.stream;
  exchange_.after = last_end_ && last_stream_ != call.stream ? last_end_ : nullptr;
  exchange_.begin = begun_.begin;
  exchange_.end = begun_.end;
  exchange_.spare = &spare_;
  exchange_.readable = &readable_;
  exchange_.board = board_.get();
  exchange_.channel = [this](uint32_t peer, bool outgoing) {
    return is_local(peer) ? nullptr : &channel({peer, place_.lanes, outgoing, {}});
  };
  exchange_.most_queued = most_queued / local_.size();
  exchange_.paced = local_.size() > 1;
  begins_ = true;
  core::issue(exchange_, meanwhile);
  launch_.commands = exchange_.commands;
  for (const Transfer& transfer : transfers)
    if (transfer.sending && !is_local(transfer.peer)) {
      const StreamChannel& way_of = channel({transfer.peer, place_.lanes, true, {}});
      begun_.sends.emplace_back(&way_of, way_of.announced());
    }
}

uint64_t StreamRunner::begin(const Call& call, StreamPlan& plan, const std::function<void()>& meanwhile) {
  const bool capturing = call.capturing;
  begun_ = {};
  begun_.where = call.where;
  begun_.stream = call.stream;
  begun_.timeout_ns = call.timeout_ns;
  begun_.sequence = call.sequence;
  const Shape& shape = call.shape;
  begun_.text = fmt::format("{}({} x {}{}{})", collective_name(shape.collective), shape.count,
                            shape.dtype ? dtype_name(shape.dtype) : "nothing",
                            shape.op ? fmt::format(", {}", op_name(shape.op)) : "",
                            has_root(shape.collective) ? fmt::format(", root {}", shape.root) : "");
  if (capturing) {
    scratch_captured_ |= plan.plan.scratch_bytes > 0;
  } else {
    begun_.begin = take_mark(call.where);
    begun_.end = take_mark(call.where);
  }
  std::map<ChannelWay, uint64_t> bases;
  for (const StreamTraffic& traffic : plan.traffic) {
    if (plan.direct) break;
    StreamChannel& way_of = channel(traffic);
    bases[{traffic.peer, traffic.lane, traffic.outgoing}] = way_of.announced();
    for (const uint64_t bytes : traffic.sizes) way_of.announce(bytes);
    if (traffic.outgoing) begun_.sends.emplace_back(&way_of, way_of.announced());
  }
  launch_ = {};
  launch_.rank = place_.rank;
  launch_.plan = &plan;
  launch_.in = static_cast<std::byte*>(const_cast<void*>(call.in));
  launch_.out = static_cast<std::byte*>(call.out);
  launch_.scratch = static_cast<std::byte*>(scratch_);
  launch_.device = call.where.device;
  launch_.stream = call.stream;
  launch_.after = !capturing && last_end_ && last_stream_ != call.stream ? last_end_ : nullptr;
  launch_.begin = begun_.begin;
  launch_.end = begun_.end;
  launch_.recorded = capturing;
  launch_.spare = &spare_;
  launch_.fuse = plan.fuses;
  launch_.slot = [this, direct = plan.direct, bases = std::move(bases)](uint32_t peer, uint32_t lane, bool outgoing,
                                                                        uint64_t number) {
    if (direct) return direct_->slot(peer, lane, outgoing, number);
    const StreamChannel& way_of = *channels_.at({peer, lane, outgoing});
    const uint64_t k = bases.at({peer, lane, outgoing}) + number;
    return StreamSlot{way_of.slot(k), way_of.awaited(k), way_of.told(k)};
  };
  begins_ = true;
  return meeting_->arrive({&launch_, call.where.tables, begun_.text, meanwhile});
}

void StreamRunner::issued(tutti_request* request) {
  begins_ = false;
  if (direct_) direct_->settled();
  if (!begun_.end) {  // captured: nothing runs now
    recorded_ |= has_channels();
    return;
  }
  begun_.request = request;
  last_end_ = begun_.end;
  last_stream_ = begun_.stream;
  begun_.commands = std::min(launch_.commands, most_queued);
  queued_ += begun_.commands;
  operations_.push_back(std::move(begun_));
}

void StreamRunner::failed() {
  if (direct_) direct_->settled();
  if (!std::exchange(begins_, false) || !begun_.end) return;
  tutti_command mark{};
  mark.kind = TUTTI_COMMAND_MARK;
  mark.mark = begun_.end;
  const tutti_executor* executor = begun_.where.tables.executor;
  if (executor->enqueue(executor->self, begun_.stream, &mark, 1) == TUTTI_OK)
    operations_.push_back(std::move(begun_));
  else
    stuck_ = true;  // nobody will see the end of what is in the stream
}

tutti_status StreamRunner::poll(const Operation& operation, tutti_mark* mark) const {
  const tutti_executor* executor = operation.where.tables.executor;
  return executor->poll_mark(executor->self, mark);
}

// Its marks may be used again. The newest operation's end is kept: a later one may have to come after it.
void StreamRunner::retire(Operation& operation) {
  queued_ -= operation.commands;
  free_.push_back(operation.begin);
  if (operation.end == last_end_) last_end_ = nullptr;  // it is over: nothing has to wait for it any more
  free_.push_back(operation.end);
}

bool StreamRunner::advance(const std::function<void(tutti_request*)>& done) {
  bool moved = false;
  for (auto& [way, channel] : channels_) moved |= channel->advance(place_.connect);
  moved_ |= moved;
  while (!operations_.empty()) {
    Operation& first = operations_.front();
    const tutti_status status = poll(first, first.end);
    if (status == TUTTI_AGAIN) break;
    if (status < 0)
      throw Failure(status,
                    fmt::format("{}: device {}: {}", first.text, first.where.tables.memory->name, take_plugin_error()));
    if (std::ranges::any_of(first.sends, [](const auto& send) { return send.first->finished() < send.second; })) break;
    tutti_request* request = first.request;
    retire(first);
    operations_.pop_front();
    moved = true;
    if (request) done(request);
  }
  return moved;
}

bool StreamRunner::overdue(uint64_t now_ns) {
  if (operations_.empty()) return false;
  Operation& first = operations_.front();
  moved_ |= direct_ && direct_->moved();
  if (std::exchange(moved_, false) || !first.last_progress_ns || held_up()) first.last_progress_ns = now_ns;
  return now_ns - first.last_progress_ns > first.timeout_ns;
}

std::string StreamRunner::standpoint() const {
  if (operations_.empty() && !opening_.empty()) return opening_;
  const Operation& first = operations_.empty() ? begun_ : operations_.front();
  std::string text = fmt::format("{} on device {}", first.text, first.where.tables.memory->name);
  for (const auto& [way, channel] : channels_)
    if (const std::string where = channel->where(); !where.empty()) text += ", " + where;
  return text;
}

void StreamRunner::let_replays_go() {
  for (auto& [way, channel] : channels_) channel->let_go();
  if (direct_) direct_->let_go();
}

bool StreamRunner::let_go() {
  if (operations_.empty()) return true;
  let_replays_go();
  for (const Operation& operation : operations_)
    if (poll(operation, operation.end) == TUTTI_AGAIN) return false;
  return true;
}

void StreamRunner::fail_all(const std::function<void(tutti_request*)>& done) {
  stuck_ |= !let_go();
  for (Operation& operation : operations_) {
    if (operation.request) done(operation.request);
    if (!stuck_) retire(operation);
  }
  operations_.clear();
}

}  // namespace tutti::core
