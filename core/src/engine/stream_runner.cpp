// SPDX-License-Identifier: Apache-2.0
#include "engine/stream_runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "bootstrap/failure.hpp"
#include "engine/hash.hpp"
#include "engine/host.hpp"

namespace tutti::core {
namespace {

constexpr size_t most_plans = 256;
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

StreamRunner::StreamRunner(Place place) : place_(std::move(place)) {
  for (uint32_t r = 0; r < place_.topology->nranks(); ++r)
    if (place_.topology->same_process(r, place_.rank)) local_.push_back(r);
  meeting_ = StreamMeeting::of(place_.communicator, local_);
}

StreamRunner::~StreamRunner() {
  if (!operations_.empty() || stuck_) {  // the device may still touch all of it
    for (auto& [way, channel] : channels_) (void)channel.release();
    return;
  }
  close_channels();
  const tutti_executor* executor = home_.tables.executor;
  for (const auto* marks : {&spare_, &free_})
    for (tutti_mark* mark : *marks) executor->destroy_mark(executor->self, mark);
  captured_.push_back(scratch_);
  for (void* scratch : captured_)
    if (scratch) home_.tables.memory->release(home_.tables.memory->self, scratch);
}

// What this rank has mapped is unmapped first: its owners wait for that before they release it, as this rank does.
void StreamRunner::close_channels() {
  std::vector<const MappedChannel*> own;
  std::erase_if(channels_, [&](const auto& entry) {
    const auto* mapped = dynamic_cast<const MappedChannel*>(entry.second.get());
    if (mapped && mapped->outgoing()) own.push_back(mapped);
    return mapped && !mapped->outgoing();
  });
  const auto limit = std::chrono::steady_clock::now() + unmapping_limit;
  while (std::ranges::any_of(own, &MappedChannel::in_use) && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  channels_.clear();
}

bool StreamRunner::has_room() const {
  // Where the device waits for this process nobody may ever have to wait for its queue.
  return operations_.size() < most_operations && (!has_channels() || queued_ <= most_queued / local_.size());
}

StreamWay StreamRunner::way(uint32_t from, uint32_t to) const {
  if (place_.topology->same_process(from, to)) return {};
  return {StreamChannel::slot_bytes, StreamChannel::slots};
}

StreamPlan& StreamRunner::find_plan(const Call& call, const std::function<void()>& idle) {
  if (!home_.tables.memory) home_ = call.where;
  if (home_.tables.memory != call.where.tables.memory || home_.device != call.where.device)
    throw Failure(
        TUTTI_INVALID_ARGUMENT,
        fmt::format("the buffers are on device {} {}, but this rank's earlier calls were on {} {}: a rank of a "
                    "communicator uses one device",
                    call.where.tables.memory->name, call.where.device, home_.tables.memory->name, home_.device));
  const tutti_executor* executor = home_.tables.executor;
  if (!prepared_) {
    idle();
    if (const tutti_status status = executor->prepare(executor->self, home_.device); status < 0)
      throw Failure(status, fmt::format("device {}: {}", home_.tables.memory->name, take_plugin_error()));
    prepared_ = true;
  }
  auto found = plans_.find(call.shape);
  if (found == plans_.end()) {
    if (plans_.size() >= most_plans) {
      idle();
      plans_.clear();
    }
    const Shape& shape = call.shape;
    const uint32_t element_bytes = shape.dtype ? dtype_bytes(shape.dtype) : 1;
    const Candidate choice = place_.selector->choose(shape.collective, shape.root, shape.count, element_bytes);
    Problem problem = place_.selector->problem(shape.collective, shape.root);
    std::vector<Schedule> forms[2];
    for (const bool in_place : {false, true}) {
      problem.in_place.assign(problem.nranks, in_place);
      std::string error;
      if (const tutti_status status = build_schedules(*choice.algorithm, problem, &forms[in_place], &error); status < 0)
        throw Failure(status, fmt::format("algorithm {}: {}", choice.algorithm->name, error));
    }
    problem.in_place.clear();
    // One process has one stream of work for each rank: slices gain nothing there.
    const uint64_t slices =
        has_channels() ? place_.selector->slices_of(forms[0][place_.rank], shape.count, element_bytes) : 1;
    auto plan =
        std::make_unique<StreamPlan>(bind_stream_plan(problem, forms, shape, slices, place_.rank, *place_.links,
                                                      [this](uint32_t from, uint32_t to) { return way(from, to); }));
    plan->plan.algorithm = choice.algorithm;
    plan->plan.schedule_hash = schedule_hash(forms[shape.in_place != 0][place_.rank]);
    plan->plan.common_hash = hash_text(fmt::format("{} in {} slices on device memory", choice.algorithm->name, slices));
    found = plans_.emplace(shape, std::move(plan)).first;
  }
  StreamPlan& plan = *found->second;
  require_scratch(call.where, plan.plan.scratch_bytes, idle);
  return plan;
}

void StreamRunner::open_channels(const Call& call, StreamPlan& plan, const Until& until) {
  if (plan.open) return;
  if (std::ranges::any_of(plan.traffic, [this](const StreamTraffic& traffic) {
        return !channels_.contains({traffic.peer, traffic.lane, traffic.outgoing});
      }))
    open_missing(call, plan, until);
  std::set<std::string> carriers;
  for (const StreamTraffic& traffic : plan.traffic) carriers.insert(channel(traffic).carrier());
  plan.plan.transports.clear();
  for (const std::string& name : carriers) plan.plan.transports += (plan.plan.transports.empty() ? "" : "+") + name;
  plan.open = true;
}

void StreamRunner::open_missing(const Call& call, const StreamPlan& plan, const Until& until) {
  until([this] { return operations_.empty(); });
  ChannelOpening::Place place{call.where.tables, call.where.device, place_.rank,     place_.first_lane, place_.links,
                              place_.topology,   place_.exchange,   &early_notices_, place_.in_host,    &told_};
  ChannelOpening opening(place, plan.traffic, &channels_);
  opening_ = fmt::format("{} on device {}, until its peers have come to their first such call",
                         collective_name(call.shape.collective), call.where.tables.memory->name);
  try {
    until([&] { return opening.advance(); });
  } catch (...) {
    opening_.clear();
    throw;
  }
  opening_.clear();
}

std::map<uint32_t, StreamRunner::Traffic> StreamRunner::mapped_traffic() const {
  std::map<uint32_t, Traffic> rows;
  for (const auto& [way, channel] : channels_)
    if (const auto* mapped = dynamic_cast<const MappedChannel*>(channel.get()); mapped && mapped->bytes())
      (mapped->outgoing() ? rows[mapped->peer()].sent : rows[mapped->peer()].received) += mapped->bytes();
  return rows;
}

void StreamRunner::require_scratch(const DeviceMemory& where, uint64_t bytes, const std::function<void()>& idle) {
  if (bytes <= scratch_bytes_) return;
  idle();
  const tutti_device* memory = where.tables.memory;
  if (scratch_captured_)
    captured_.push_back(scratch_);
  else if (scratch_)
    memory->release(memory->self, scratch_);
  scratch_captured_ = false;
  scratch_ = nullptr;
  scratch_bytes_ = 0;
  if (const tutti_status status = memory->allocate(memory->self, where.device, bytes, &scratch_); status < 0)
    throw Failure(status,
                  fmt::format("device {}: no scratch of {} bytes: {}", memory->name, bytes, take_plugin_error()));
  scratch_bytes_ = bytes;
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
  if (capturing && has_channels())
    throw Failure(TUTTI_NOT_SUPPORTED,
                  "the stream is being captured: that works only where all ranks are threads of one process");
  if (capturing && call.wants_request)
    throw Failure(TUTTI_NOT_SUPPORTED, "the stream is being captured: a recorded call has no request");
  return capturing;
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
  launch_.spare = &spare_;
  launch_.slot = [this, bases = std::move(bases)](uint32_t peer, uint32_t lane, bool outgoing, uint64_t number) {
    const StreamChannel& way_of = *channels_.at({peer, lane, outgoing});
    const uint64_t k = bases.at({peer, lane, outgoing}) + number;
    return StreamSlot{way_of.slot(k), way_of.awaited(k), way_of.told(k)};
  };
  begins_ = true;
  return meeting_->arrive({&launch_, call.where.tables, begun_.text, meanwhile});
}

void StreamRunner::issued(tutti_request* request) {
  begins_ = false;
  if (!begun_.end) return;  // captured: nothing runs now
  begun_.request = request;
  last_end_ = begun_.end;
  last_stream_ = begun_.stream;
  begun_.commands = std::min(launch_.commands, most_queued);
  queued_ += begun_.commands;
  operations_.push_back(std::move(begun_));
}

void StreamRunner::failed() {
  if (!std::exchange(begins_, false) || !begun_.end) return;
  tutti_command mark{};
  mark.kind = TUTTI_COMMAND_MARK;
  mark.mark = begun_.end;
  const tutti_executor* executor = begun_.where.tables.executor;
  if (executor->enqueue(executor->self, begun_.stream, &mark, 1) == TUTTI_OK) operations_.push_back(std::move(begun_));
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
  // Work of the application in the same stream may take as long as it likes.
  if (std::exchange(moved_, false) || !first.last_progress_ns || poll(first, first.begin) == TUTTI_AGAIN)
    first.last_progress_ns = now_ns;
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

bool StreamRunner::let_go() {
  if (operations_.empty()) return true;
  for (auto& [way, channel] : channels_) channel->let_go();
  for (const Operation& operation : operations_)
    if (poll(operation, operation.end) == TUTTI_AGAIN) return false;
  return true;
}

void StreamRunner::fail_all(const std::function<void(tutti_request*)>& done) {
  stuck_ = !let_go();
  for (Operation& operation : operations_) {
    if (operation.request) done(operation.request);
    if (!stuck_) retire(operation);
  }
  operations_.clear();
}

}  // namespace tutti::core
