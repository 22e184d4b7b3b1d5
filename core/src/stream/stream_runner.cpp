// SPDX-License-Identifier: Apache-2.0
#include "stream/stream_runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "bootstrap/failure.hpp"
#include "comm/progress.hpp"
#include "observe/call.hpp"
#include "plugins/host.hpp"
#include "plugins/settings.hpp"

namespace tutti::core {
namespace {

constexpr size_t most_operations = 256;  // issued and not finished by the device
constexpr std::chrono::seconds unmapping_limit(1);
constexpr std::chrono::seconds leaving_limit(5);

}  // namespace

StreamRunner::StreamRunner(Setup setup)
    : setup_(std::move(setup)),
      gate_(setup_.device, setup_.communicator, fmt::format("rank {} of {}", setup_.rank, setup_.name)),
      memory_(std::make_unique<PeerMemory>(setup_.device, setup_.mapped_links)),
      windows_(std::make_unique<Windows>(
          Windows::Setup{setup_.rank, setup_.topology, setup_.device, memory_.get(), setup_.lanes, &gate_})),
      fuses_(flag_setting("TUTTI_FUSED", true)) {
  for (uint32_t r = 0; r < setup_.topology->nranks(); ++r)
    if (setup_.topology->same_process(r, setup_.rank)) local_.push_back(r);
  rendezvous_ = LocalRendezvous::of(setup_.communicator, local_);
  handovers_ = Handovers::of(setup_.communicator);
  launch_.rank = setup_.rank;
  launch_.gate = &gate_;
  launch_.spare = &spare_;
  launch_.slot = [this](uint32_t way, uint64_t number) { return slot_of(way, number); };
}

StreamRunner::~StreamRunner() {
  if (!keeps_all_ && end()) {
    const bool has_memory = !channels_.empty() || scratch_ || !captured_.empty();
    if (!has_memory || synchronise_soon([this] { release_memory(); })) {
      release_events();
      return;
    }
  }
  // The device may still touch all of it.
  for (auto& [way, channel] : channels_) (void)channel.release();
  (void)windows_.release();
  (void)memory_.release();
  rendezvous_->keep_events();
}

void StreamRunner::release_memory() {
  channels_.clear();
  captured_.push_back(scratch_);
  const tutti_device* memory = setup_.device.tables.memory;
  for (void* scratch : captured_)
    if (scratch) memory->release(memory->self, scratch);
}

void StreamRunner::release_events() {
  const tutti_executor* executor = setup_.device.tables.executor;
  if (events_are_out_) {
    rendezvous_->leave_events(executor, std::exchange(spare_, {}));
    rendezvous_->leave_events(executor, std::exchange(free_, {}));
  }
  for (const auto* events : {&spare_, &free_})
    for (tutti_event* event : *events) executor->destroy_event(executor->self, event);
}

void StreamRunner::synchronise(const std::function<void()>& idle, const std::function<void()>& body) {
  for (idle(); !gate_.try_run(body); idle()) std::this_thread::yield();
}

bool StreamRunner::synchronise_soon(const std::function<void()>& body) {
  const auto limit = std::chrono::steady_clock::now() + leaving_limit;
  while (!gate_.try_run(body)) {
    if (std::chrono::steady_clock::now() > limit) {
      log(TUTTI_LOG_WARN, setup_.device.tables.memory->name,
          fmt::format("rank {} of {}: its device memory is kept until the process ends: the device still has work of "
                      "{}, and releasing memory would wait for it",
                      setup_.rank, setup_.name, gate_.pending()));
      return false;
    }
    ActiveEngines::process().progress_others(nullptr);
    std::this_thread::yield();
  }
  return true;
}

// What this rank has mapped is unmapped at once: its owners wait for that before they release it, as this rank does.
bool StreamRunner::end() {
  if (ended_) return true;
  if (!operations_.empty() || is_in_use()) return false;
  const auto is_mapped = [](const auto& entry) { return dynamic_cast<MappedChannel*>(entry.second.get()) != nullptr; };
  ended_ = (!windows_->is_open() && std::ranges::none_of(channels_, is_mapped)) || synchronise_soon([&] {
             std::erase_if(channels_, is_mapped);
             windows_->close();
           });
  return ended_;
}

bool StreamRunner::end_for_good() {
  keeps_all_ = !end();
  const auto limit = std::chrono::steady_clock::now() + unmapping_limit;
  for (settle_memory(); !memory_->is_settled() && std::chrono::steady_clock::now() < limit; settle_memory()) {
    setup_.progress();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return ended_;
}

bool StreamRunner::has_room() const {
  // Where the device waits for this process nobody may ever have to wait for its queue.
  return operations_.size() < most_operations && (!has_channels() || queued_ <= most_queued / local_.size());
}

tutti_event* StreamRunner::take_event(const DeviceMemory& where) {
  if (!free_.empty()) {
    tutti_event* event = free_.back();
    free_.pop_back();
    return event;
  }
  tutti_event* made = nullptr;
  const tutti_executor* executor = where.tables.executor;
  if (const tutti_status status = executor->create_event(executor->self, where.device, &made); status < 0)
    throw Failure(status, fmt::format("device {}: no event: {}", where.tables.memory->name, take_plugin_error()));
  free_.reserve(++events_);  // an operation that ends needs no memory
  return made;
}

bool StreamRunner::require_stream(const StreamCall& call) const {
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

std::string StreamRunner::Operation::text() const {
  if (!transfers) return call_text({0, shape.count, 0, shape.collective, shape.dtype, shape.op, shape.root});
  const std::string one = text_of(Transfer::of(sending, peer, tag, nullptr, bytes));
  return transfers == 1 ? one : fmt::format("exchange of {} transfers ({} ...)", transfers, one);
}

void StreamRunner::Operation::clear() {
  auto memory = std::move(sends);
  memory.clear();
  *this = {};
  sends = std::move(memory);
}

// The common beginning of collectives and transfers.
void StreamRunner::begin_operation(const StreamCall& call) {
  begun_.clear();
  begun_.where = call.where;
  begun_.stream = call.stream;
  begun_.timeout_ns = call.timeout_ns;
  if (call.capturing) return;
  begun_.begin = take_event(call.where);
  begun_.end = take_event(call.where);
}

void StreamRunner::put(const StreamCall& call, const std::vector<Transfer>& transfers,
                       const std::function<void()>& meanwhile) {
  begin_operation(call);
  begun_.transfers = transfers.size();
  begun_.sending = transfers[0].sending;
  begun_.peer = transfers[0].peer;
  begun_.tag = transfers[0].tag;
  begun_.bytes = transfers[0].bytes;
  launch_.read_by.clear();
  exchange_.rank = setup_.rank;
  exchange_.transfers = &transfers;
  exchange_.tables = call.where.tables;
  exchange_.device = call.where.device;
  exchange_.stream = call.stream;
  exchange_.after = last_end_ && last_stream_ != call.stream ? last_end_ : nullptr;
  exchange_.begin = begun_.begin;
  exchange_.end = begun_.end;
  exchange_.spare = &spare_;
  exchange_.readable = &readable_;
  exchange_.handovers = handovers_.get();
  exchange_.channel = [this](uint32_t peer, bool outgoing) {
    return is_local(peer) ? nullptr : &channel(peer, outgoing);
  };
  exchange_.writer = &writer_;
  exchange_.turn = local_.size() > 1 ? &handovers_->filling(call.stream) : nullptr;
  exchange_.most_queued = most_queued / local_.size();
  exchange_.paced = local_.size() > 1;
  exchange_.commands = 0;
  exchange_.awaits = StreamExchange::Awaits::nothing;
  exchange_.read_by.clear();
  begins_ = true;
  gate_.begin();
  launch_.counted = true;
  core::issue(exchange_, meanwhile);
  launch_.commands = exchange_.commands;
  expect_ways(transfers.size());
  for (const Transfer& transfer : transfers)
    if (transfer.sending && is_far(transfer)) {
      const StreamChannel& way_of = channel(transfer.peer, true);
      begun_.sends.emplace_back(&way_of, way_of.announced());
    }
}

// No operation that follows needs memory for as many.
void StreamRunner::expect_ways(size_t ways) {
  if (ways > most_ways_) {
    most_ways_ = ways;
    for (auto* nodes : {&operations_, &idle_})
      for (Operation& node : *nodes) node.sends.reserve(most_ways_);
  }
  begun_.sends.reserve(most_ways_);
}

StreamSlot StreamRunner::slot_of(uint32_t way, uint64_t number) const {
  if (launch_.plan->windows) return windows_->slot(*launch_.plan, places_, way, number);
  const OpenWay& open = ways_[way];
  const uint64_t k = open.first + number;
  return {open.channel->slot(k), open.channel->awaited(k), open.channel->told(k)};
}

uint64_t StreamRunner::begin(const StreamCall& call, StreamPlan& plan, const std::function<void()>& meanwhile) {
  begin_operation(call);
  begun_.sequence = call.sequence;
  begun_.shape = call.shape;
  if (call.capturing && plan.windows)
    windows_->keep_scratch();
  else
    scratch_captured_ |= call.capturing && plan.plan.scratch_bytes > 0;
  expect_ways(plan.channels.size());
  ways_.clear();
  for (size_t way = 0; way < plan.channels.size(); ++way) {
    StreamChannel& channel = *plan.channels[way];
    ways_.push_back({&channel, channel.announced()});
    for (const uint64_t bytes : plan.traffic[way].sizes) channel.announce(bytes);
    if (plan.traffic[way].outgoing) begun_.sends.emplace_back(&channel, channel.announced());
  }
  launch_.plan = &plan;
  launch_.in = static_cast<std::byte*>(const_cast<void*>(call.in));
  launch_.out = static_cast<std::byte*>(call.out);
  launch_.scratch = plan.windows ? windows_->scratch() : static_cast<std::byte*>(scratch_);
  launch_.device = call.where.device;
  launch_.stream = call.stream;
  launch_.after = !call.capturing && last_end_ && last_stream_ != call.stream ? last_end_ : nullptr;
  launch_.begin = begun_.begin;
  launch_.end = begun_.end;
  launch_.fuse = plan.fuses;
  launch_.fused = false;
  launch_.counted = false;
  launch_.recorded = call.capturing;
  launch_.commands = 0;
  launch_.read_by.clear();
  exchange_.read_by.clear();
  begins_ = true;
  if (plan.windows) {
    windows_->count(plan);
    if (call.shape.collective == TUTTI_BROADCAST && call.in && call.in != call.out && call.shape.root == setup_.rank)
      copy_to_output(call, plan);
  }
  return rendezvous_->arrive({&launch_, call.where.tables, common(call.shape), &meanwhile});
}

// The root's input is nobody else's to know: in windows the call goes on in place.
void StreamRunner::copy_to_output(const StreamCall& call, const StreamPlan& plan) {
  tutti_command commands[2]{};
  commands[0].kind = TUTTI_COMMAND_AFTER;
  commands[0].event = launch_.after;
  const void* const from = call.in;
  commands[1].kind = TUTTI_COMMAND_COPY;
  commands[1].dst = call.out;
  commands[1].src = &from;
  commands[1].sources = 1;
  commands[1].count = plan.plan.out_bytes;
  const tutti_executor* executor = call.where.tables.executor;
  const uint32_t first = launch_.after ? 0 : 1;
  if (const tutti_status status = executor->enqueue(executor->self, call.stream, commands + first, 2 - first);
      status < 0)
    throw Failure(status, fmt::format("device {}: {}", call.where.tables.memory->name, take_plugin_error()));
}

void StreamRunner::issued(tutti_request* request) {
  begins_ = false;
  if (!begun_.end) {  // captured: nothing runs now
    recorded_ |= has_channels();
    return;
  }
  begun_.request = request;
  begun_.counted = launch_.counted;
  last_end_ = begun_.end;
  last_stream_ = begun_.stream;
  begun_.commands = std::min(launch_.commands, most_queued);
  queued_ += begun_.commands;
  add_begun();
}

// The work that has begun is pending from now on.
void StreamRunner::add_begun() {
  if (idle_.empty()) idle_.emplace_back();
  std::swap(idle_.front(), begun_);
  operations_.splice(operations_.end(), idle_, idle_.begin());
  begun_.clear();
}

void StreamRunner::failed() {
  if (!std::exchange(begins_, false)) {
    for (tutti_event* event : {begun_.begin, begun_.end})
      if (event) free_.push_back(event);
    return begun_.clear();
  }
  if (const auto issuer = left_behind_ ? rendezvous_->issuer() : std::nullopt) {
    begun_.clear();
    return be_stuck(fmt::format(
        "the thread of rank {} of this process has not come back from a call of the device and may still put work into "
        "this rank's stream: keep the stream and the buffers untouched until that rank's call has returned and the "
        "stream is done",
        *issuer));
  }
  if (!begun_.end) return;
  begun_.counted = launch_.counted;
  for (const std::string& reader : {launch_.read_by, exchange_.read_by})
    if (!reader.empty())
      be_stuck(
          fmt::format("{} may still read this rank's memory: keep it untouched until their streams are done", reader));
  tutti_command event{};
  event.kind = TUTTI_COMMAND_RECORD;
  event.event = begun_.end;
  const tutti_executor* executor = begun_.where.tables.executor;
  if (executor->enqueue(executor->self, begun_.stream, &event, 1) == TUTTI_OK) return add_begun();
  begun_.clear();
  be_stuck(
      fmt::format("the device refuses to tell when the stream is done ({}): keep its buffers untouched until the "
                  "stream is destroyed",
                  take_plugin_error()));
}

void StreamRunner::be_stuck(const std::string& why) {
  stuck_ = true;
  untold_ += "; " + why;
}

// Retires the failed operations that the device has finished since.
bool StreamRunner::is_in_use() {
  std::erase_if(unfinished_, [this](Operation& operation) {
    if (poll(operation, operation.end) == TUTTI_AGAIN) return false;
    retire(operation);
    return true;
  });
  return stuck_ || !unfinished_.empty();
}

// The device's queue may be full of what waits for this rank, and the issuing thread wait for room in it.
void StreamRunner::leave(const Failure& why) {
  const auto limit = std::chrono::steady_clock::now() + leaving_limit;
  while (!rendezvous_->leave(setup_.rank, why, std::chrono::milliseconds(1))) {
    let_replays_go();
    left_behind_ = std::chrono::steady_clock::now() > limit;
    if (left_behind_) return;
  }
}

tutti_status StreamRunner::poll(const Operation& operation, tutti_event* event) const {
  const tutti_executor* executor = operation.where.tables.executor;
  return executor->query_event(executor->self, event);
}

// Its events may be used again. The newest operation's end is kept: a later one may have to come after it.
void StreamRunner::retire(Operation& operation) {
  if (operation.counted) gate_.end();
  queued_ -= operation.commands;
  free_.push_back(operation.begin);
  if (operation.end == last_end_) last_end_ = nullptr;  // it is over: nothing has to wait for it any more
  free_.push_back(operation.end);
}

bool StreamRunner::advance(const std::function<bool(tutti_request*)>& done) {
  bool moved = false;
  for (auto& [way, channel] : channels_) moved |= channel->advance(setup_.connect);
  moved_ |= moved;
  while (!operations_.empty()) {
    Operation& first = operations_.front();
    const tutti_status status = poll(first, first.end);
    if (status == TUTTI_AGAIN) break;
    if (status < 0)
      throw Failure(
          status, fmt::format("{}: device {}: {}", first.text(), first.where.tables.memory->name, take_plugin_error()));
    if (std::ranges::any_of(first.sends, [](const auto& send) { return send.first->finished() < send.second; })) break;
    if (first.request && !done(first.request)) break;
    retire(first);
    first.clear();
    idle_.splice(idle_.begin(), operations_, operations_.begin());
    moved = true;
  }
  return moved;
}

bool StreamRunner::overdue(uint64_t now_ns) {
  if (operations_.empty()) return false;
  Operation& first = operations_.front();
  moved_ |= windows_->moved();
  if (std::exchange(moved_, false) || !first.last_progress_ns || held_up()) first.last_progress_ns = now_ns;
  return now_ns - first.last_progress_ns > first.timeout_ns;
}

std::string StreamRunner::standpoint() const {
  if (operations_.empty() && !opening_.empty()) return opening_;
  const Operation& first = operations_.empty() ? begun_ : operations_.front();
  std::string text = fmt::format("{} on device {}", first.text(), first.where.tables.memory->name);
  for (const auto& [way, channel] : channels_)
    if (const std::string where = channel->where(); !where.empty()) text += ", " + where;
  return text;
}

void StreamRunner::let_replays_go() {
  for (auto& [way, channel] : channels_) channel->let_go();
  windows_->let_go();
}

bool StreamRunner::let_go() {
  if (operations_.empty()) return true;
  let_replays_go();
  for (const Operation& operation : operations_)
    if (poll(operation, operation.end) == TUTTI_AGAIN) return false;
  return true;
}

std::string StreamRunner::in_use() {
  if (!let_go())
    untold_ +=
        "; the device has not come to the end of what it was given: keep its buffers untouched until the stream is "
        "destroyed";
  return std::exchange(untold_, {});
}

void StreamRunner::fail_all(const std::function<void(tutti_request*)>& done) {
  (void)let_go();
  events_are_out_ = local_.size() > 1;
  for (Operation& operation : operations_) {
    if (operation.request) done(operation.request);
    operation.counted = false;  // nothing that it waits for is missing any more
    unfinished_.push_back(std::move(operation));
  }
  operations_.clear();
  gate_.clear();
}

}  // namespace tutti::core
