// SPDX-License-Identifier: Apache-2.0
#include "engine/stream_runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "bootstrap/failure.hpp"
#include "engine/device_census.hpp"
#include "engine/direct_buffers.hpp"
#include "engine/hash.hpp"
#include "engine/host.hpp"
#include "engine/settings.hpp"

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

StreamWay StreamRunner::way(uint32_t from, uint32_t to, bool direct) const {
  if (place_.topology->same_process(from, to)) return {};
  if (direct) return DirectMemory::way();
  return {StreamChannel::slot_bytes, StreamChannel::slots};
}

std::unique_ptr<StreamPlan> StreamRunner::bind(const Call& call, bool direct) const {
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
  // Where streams read each other's buffers slices gain nothing.
  const uint64_t slices =
      has_channels() && !direct ? place_.selector->slices_of(forms[0][place_.rank], shape.count, element_bytes) : 1;
  auto plan = std::make_unique<StreamPlan>(
      bind_stream_plan(problem, forms, shape, slices, place_.rank, *place_.links,
                       [this, direct](uint32_t from, uint32_t to) { return way(from, to, direct); }));
  plan->plan.algorithm = choice.algorithm;
  plan->plan.schedule_hash = schedule_hash(forms[shape.in_place != 0][place_.rank]);
  plan->plan.common_hash = hash_text(fmt::format("{} in {} slices on device memory", choice.algorithm->name, slices));
  if (direct) plan->plan.transports = DirectMemory::carrier;
  plan->direct = plan->open = direct;
  return plan;
}

void StreamRunner::require_device(const DeviceMemory& where, const std::function<void()>& idle) {
  if (!home_.tables.memory) home_ = where;
  if (home_.tables.memory != where.tables.memory || home_.device != where.device)
    throw Failure(
        TUTTI_INVALID_ARGUMENT,
        fmt::format("the buffers are on device {} {}, but this rank's earlier calls were on {} {}: a rank of a "
                    "communicator uses one device",
                    where.tables.memory->name, where.device, home_.tables.memory->name, home_.device));
  const tutti_executor* executor = home_.tables.executor;
  if (!prepared_) {
    idle();
    if (const tutti_status status = executor->prepare(executor->self, home_.device); status < 0)
      throw Failure(status, fmt::format("device {}: {}", home_.tables.memory->name, take_plugin_error()));
    prepared_ = true;
  }
}

StreamPlan& StreamRunner::find_plan(const Call& call, const std::function<void()>& idle) {
  require_device(call.where, idle);
  auto found = plans_.find(call.shape);
  if (found == plans_.end()) {
    if (plans_.size() >= most_plans) {
      idle();
      plans_.clear();
    }
    found = plans_.emplace(call.shape, bind(call, false)).first;
  }
  StreamPlan& plan = *found->second;
  require_scratch(call.where, plan.plan.scratch_bytes, idle);
  return plan;
}

void StreamRunner::take_census(const Call& call, const Until& until) {
  if (alone_ || !has_channels()) return;
  DeviceCensus census(
      {call.where.tables, call.where.device, place_.rank, place_.topology, place_.exchange, &early_notices_});
  wait_for_peers(call.where, collective_name(call.shape.collective), until, [&] { return census.advance(); });
  alone_ = census.alone();
}

// A launch that waits by itself keeps processors of the device busy: it is for words that other devices set. Those of
// staged channels are set by threads of this process, which move bytes at a network's pace and may themselves be held
// up by what the application calls of the device's driver.
bool StreamRunner::may_fuse(const Call& call, const StreamPlan& plan) const {
  return fuses_ && alone_.value_or(false) && TUTTI_HAS(tutti_executor, call.where.tables.executor, enqueue_fused) &&
         !plan.traffic.empty() && plan.bytes <= most_fused_bytes && plan.steps.size() <= most_fused_steps &&
         std::ranges::all_of(plan.traffic, [this](const StreamTraffic& traffic) {
           return dynamic_cast<const MappedChannel*>(&channel(traffic)) != nullptr;
         });
}

void StreamRunner::open_channels(const Call& call, StreamPlan& plan, const Until& until) {
  if (!plan.open) open_all(call, plan, until);
  if (call.capturing && !plan.direct) require_mapped(plan);
}

void StreamRunner::open_all(const Call& call, StreamPlan& plan, const Until& until) {
  if (std::ranges::any_of(plan.traffic, [this](const StreamTraffic& traffic) {
        return !channels_.contains({traffic.peer, traffic.lane, traffic.outgoing});
      }))
    open_missing(call.where, collective_name(call.shape.collective), plan.traffic, until);
  std::set<std::string> carriers;
  for (const StreamTraffic& traffic : plan.traffic) carriers.insert(channel(traffic).carrier());
  plan.plan.transports.clear();
  for (const std::string& name : carriers) plan.plan.transports += (plan.plan.transports.empty() ? "" : "+") + name;
  plan.fuses = may_fuse(call, plan);
  plan.open = true;
}

void StreamRunner::open_missing(const DeviceMemory& where, const std::string& what,
                                const std::vector<StreamTraffic>& traffic, const Until& until) {
  until([this] { return operations_.empty(); });
  ChannelOpening::Place place{where.tables,    where.device,    place_.rank,     place_.first_lane, place_.links,
                              place_.topology, place_.exchange, &early_notices_, place_.in_host,    &told_};
  ChannelOpening opening(place, traffic, &channels_);
  wait_for_peers(where, what, until, [&] { return opening.advance(); });
}

void StreamRunner::wait_for_peers(const DeviceMemory& where, const std::string& what, const Until& until,
                                  const std::function<bool()>& enough) {
  opening_ = fmt::format("{} on device {}, until its peers have come to their first such call", what,
                         where.tables.memory->name);
  try {
    until(enough);
  } catch (...) {
    opening_.clear();
    throw;
  }
  opening_.clear();
}

// All ranks come to the same answer until they meet: what is asked before is the same on all of them.
StreamPlan& StreamRunner::settle_form(const Call& call, StreamPlan& plan, const Until& until) {
  const Shape& shape = call.shape;
  if (!has_channels() || !shape.dtype) return plan;
  if (!direct_) {
    tell_why_not_direct(call, plan, place_.no_board);
    return plan;
  }
  if (shape.count * dtype_bytes(shape.dtype) < DirectMemory::least_bytes) {
    tell_why_not_direct(call, plan,
                        fmt::format("blocks of less than {} bytes go through slots", DirectMemory::least_bytes));
    return plan;
  }
  opening_ = fmt::format("{} on device {}, until its peers have come to the call", collective_name(shape.collective),
                         call.where.tables.memory->name);
  const auto idle = [&] { until([this] { return operations_.empty(); }); };
  DirectMemory::Call mine{call.where.tables, call.where.device, nullptr, call.in,
                          call.out,          nullptr,           {},      call.capturing};
  std::string refusal;
  try {
    try {
      if (!plan.direct_form) plan.direct_form = bind(call, true);
      if (const uint64_t needed = plan.direct_form->plan.scratch_bytes; needed > place_.scratch_limit)
        throw Failure(TUTTI_NO_RESOURCES, fmt::format("it would take scratch of {} bytes, more than the limit of {}",
                                                      needed, place_.scratch_limit));
      require_scratch(call.where, plan.direct_form->plan.scratch_bytes, idle);
      mine.plan = plan.direct_form.get();
    } catch (const Failure& failure) {
      mine.refusal = failure.text;
    }
    mine.scratch = scratch_;
    refusal = direct_->agree(mine, until, idle);
    if (!refusal.empty()) require_scratch(call.where, plan.plan.scratch_bytes, idle);
  } catch (...) {
    direct_->settled();
    opening_.clear();
    throw;
  }
  opening_.clear();
  if (refusal.empty()) return *plan.direct_form;
  tell_why_not_direct(call, plan, refusal);
  return plan;
}

// Whoever registered memory wants it to be read directly. Each reason is told once in a row.
void StreamRunner::tell_why_not_direct(const Call& call, const StreamPlan& plan, const std::string& why) {
  if (why == not_direct_ || !log_enabled(TUTTI_LOG_INFO)) return;
  const auto registered = [&](const void* address, uint64_t bytes) {
    try {
      return address && bytes && (DirectBuffers::process().find(call.where.tables, address, bytes), true);
    } catch (const Failure&) {
      return false;
    }
  };
  if (!registered(call.in, plan.plan.in_bytes) && !registered(call.out, plan.plan.out_bytes)) return;
  not_direct_ = why;
  log(TUTTI_LOG_INFO, call.where.tables.memory->name,
      fmt::format("rank {}: registered buffers of {} are not read directly: {}", place_.rank,
                  collective_name(call.shape.collective), why));
}

std::vector<StreamRunner::Traffic> StreamRunner::traffic() const {
  std::map<uint32_t, Traffic> mapped;
  for (const auto& [way, channel] : channels_) {
    const auto* one = dynamic_cast<const MappedChannel*>(channel.get());
    if (!one || !one->bytes()) continue;
    Traffic& row = mapped.try_emplace(one->peer(), Traffic{MappedChannel::mapped, one->peer()}).first->second;
    (one->outgoing() ? row.sent : row.received) += one->bytes();
  }
  std::vector<Traffic> rows;
  for (const auto& [peer, row] : mapped) rows.push_back(row);
  if (direct_)
    for (const auto& [peer, bytes] : direct_->traffic())
      rows.push_back({DirectMemory::carrier, peer, bytes.sent, bytes.received});
  return rows;
}

void StreamRunner::require_scratch(const DeviceMemory& where, uint64_t bytes, const std::function<void()>& idle) {
  if (bytes <= scratch_bytes_) return;
  idle();
  const tutti_device* memory = where.tables.memory;
  if (scratch_captured_)
    captured_.push_back(scratch_);
  else if (scratch_ && !(direct_ && direct_->retire_scratch(where.tables, scratch_)))
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
  if (capturing && call.wants_request)
    throw Failure(TUTTI_NOT_SUPPORTED, "the stream is being captured: a recorded call has no request");
  return capturing;
}

// A replay is known to the devices alone: whatever it uses has to be there before, and no host may have a part in it.
// Where the call may go directly, that is settled in it.
void StreamRunner::require_recordable(const Call& call) const {
  if (!has_channels()) return;
  const auto found = plans_.find(call.shape);
  if (found != plans_.end() && found->second->direct_form) return;
  if (found == plans_.end() || !found->second->open)
    throw Failure(TUTTI_NOT_SUPPORTED,
                  "the stream is being captured: between processes a call can be recorded when one of the same "
                  "collective, count, type, operator and root was made before without capturing");
  require_mapped(*found->second);
}

void StreamRunner::require_mapped(const StreamPlan& plan) const {
  for (const StreamTraffic& traffic : plan.traffic)
    if (!dynamic_cast<const MappedChannel*>(&channel(traffic)))
      throw Failure(
          TUTTI_NOT_SUPPORTED,
          fmt::format("the stream is being captured: lane {} {} rank {} is carried by the host over {}, which takes "
                      "no part in a replay; only memory that processes of one host map can be recorded",
                      traffic.lane, traffic.outgoing ? "to" : "from", traffic.peer, channel(traffic).carrier()));
}

// ---- Sends and receives ------------------------------------------------------------------------------------

std::string StreamRunner::open_channels(const Call& call, const std::vector<Transfer>& transfers, const Until& until) {
  std::vector<StreamTraffic> traffic;
  std::set<uint32_t> peers;
  for (const Transfer& transfer : transfers)
    if (!is_local(transfer.peer) && peers.insert(transfer.peer).second)
      for (const bool outgoing : {true, false}) traffic.push_back({transfer.peer, place_.lanes, outgoing, {}});
  if (std::ranges::any_of(traffic, [this](const StreamTraffic& way) {
        return !channels_.contains({way.peer, way.lane, way.outgoing});
      }))
    open_missing(call.where, transfers.size() == 1 ? text_of(transfers[0]) : "exchange", traffic, until);
  std::set<std::string> carriers;
  for (const StreamTraffic& way : traffic) carriers.insert(channel(way).carrier());
  std::string text;
  for (const std::string& name : carriers) text += (text.empty() ? "" : "+") + name;
  return text;
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
  moved_ |= direct_ && direct_->moved();
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
  stuck_ = !let_go();
  for (Operation& operation : operations_) {
    if (operation.request) done(operation.request);
    if (!stuck_) retire(operation);
  }
  operations_.clear();
}

}  // namespace tutti::core
