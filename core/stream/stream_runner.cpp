// SPDX-License-Identifier: Apache-2.0
#include "stream/stream_runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/failure.hpp"
#include "base/settings.hpp"
#include "record/call.hpp"
#include "registry/host.hpp"

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
      windows_(std::make_unique<Windows>(setup_, *memory_, gate_)),
      fusing_(flag_setting("TUTTI_FUSED", true) ? executor_caps_of(setup_.device) : tutti_executor_caps{}) {
  for (uint32_t r = 0; r < setup_.topology->nranks(); ++r)
    if (setup_.topology->same_process(r, setup_.rank)) local_.push_back(r);
  rendezvous_ = LocalRendezvous::of(setup_.communicator, local_);
  for (StreamPart* part : {static_cast<StreamPart*>(&launch_), static_cast<StreamPart*>(&exchange_)}) {
    part->rank = setup_.rank;
    part->device = setup_.device.device;
    part->gate = &gate_;
    part->spare = &spare_;
    part->unreadable = &unreadable_;
  }
  exchange_.tables = setup_.device.tables;
  exchange_.handovers = &rendezvous_->handovers();
  exchange_.channel = [this](uint32_t peer, bool outgoing) {
    return is_local(peer) ? nullptr : &channel(peer, outgoing);
  };
  exchange_.writer = &writer_;
  exchange_.most_queued = most_queued / local_.size();
  exchange_.paced = local_.size() > 1;
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
  (void)counter_.release();
  (void)queue_.release();
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
  if (events_are_out_) rendezvous_->leave_events(executor, std::exchange(spare_, {}));
  for (tutti_event* event : spare_) executor->destroy_event(executor->self, event);
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
    setup_.advance_others();
    std::this_thread::yield();
  }
  return true;
}

// What this rank has mapped is unmapped at once: its owners wait for that before they release it, as this rank does.
bool StreamRunner::end() {
  if (ended_) return true;
  if (!operations_.empty() || stuck_ || !is_done()) return false;
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

void StreamRunner::require_stream(StreamCall& call) const {
  const auto& [memory, executor] = setup_.device.tables;
  uint32_t device = 0;
  uint64_t flags = 0;
  if (const tutti_status status = executor->stream_state(executor->self, call.stream, &device, &flags); status < 0)
    throw device_failure(status);
  if (device != setup_.device.device)
    throw Failure(TUTTI_INVALID_ARGUMENT, fmt::format("the stream belongs to device {} {}, the buffers to device {}",
                                                      memory->name, device, setup_.device.device));
  call.capturing = (flags & TUTTI_STREAM_CAPTURING) != 0;
  call.stream_number = static_cast<uint32_t>(flags >> 32);
}

Failure StreamRunner::device_failure(tutti_status status) const {
  return {status, fmt::format("device {}: {}", setup_.device.tables.memory->name, take_plugin_error())};
}

std::string StreamRunner::Operation::text() const {
  const Shape& s = call.shape;
  if (!transfers) return call_text({0, s.count, 0, s.collective, s.dtype, s.op, s.root});
  return transfers == 1 ? text_of(transfer)
                        : fmt::format("exchange of {} transfers ({} ...)", transfers, text_of(transfer));
}

// The end of the newest operation, which work in this stream has to wait for. Handles of destroyed streams come again
// while their work still runs: numbers tell streams apart.
std::optional<uint32_t> StreamRunner::end_elsewhere(uint32_t stream) const {
  if ((stream && last_stream_ == stream) || is_done()) return std::nullopt;
  return given_;
}

// The common beginning of collectives and transfers.
void StreamRunner::begin_operation(const StreamCall& call, StreamPart& part) {
  begun_ = {};
  begun_.number = ++number_;
  begun_.call = call;
  if (operations_.empty()) probe_.restart();
  part_ = &part;
  exchange_.awaits = StreamExchange::Awaits::nothing;
  part.stream = call.stream;
  part.after = call.capturing ? std::nullopt : end_elsewhere(call.stream_number);
  part.counter = call.capturing ? nullptr : counter_.get();
  part.queue = queue_.get();
  if (!call.capturing) {
    part.first = begun_.first = counter_->next();
    part.last = begun_.last = counter_->next();
  }
  part.counted = false;
  part.commands = 0;
  part.read_by.clear();
  begins_ = true;
}

// A turn of the wait until this thread has put a call's work into the stream. Work that the application has put there
// before may take as long as it likes.
bool StreamRunner::fill(const Turn& turn) const {
  return turn(exchange_.awaits == StreamExchange::Awaits::nothing && !captures() && !counter_->reached(begun_.first));
}

// The same, while the thread of another rank is to do it. It puts nothing there before all ranks of the process have
// come and the streams of ranks before this one have taken their work: until then only work of the application before
// earlier operations is an excuse.
bool StreamRunner::gather(const Turn& turn) const {
  const bool entered = launch_.entered.load(std::memory_order_relaxed);
  return turn(!captures() && (entered ? !counter_->reached(begun_.first) : held_up()));
}

Failure StreamRunner::stood_still(const StreamCall& call) const {
  const std::string time = setup_.timeout.text(call.timeout_ns);
  const std::string awaited = exchange_.waits_for();
  return {TUTTI_TIMEOUT,
          awaited.empty() ? fmt::format("{} has stood still for {}", standpoint(), time)
                          : fmt::format("has waited {} in {} on device memory for {}", time, begun_.text(), awaited)};
}

void StreamRunner::put(const StreamCall& call, const std::vector<Transfer>& transfers, const Turn& turn) {
  begin_operation(call, exchange_);
  begun_.transfers = transfers.size();
  begun_.transfer = transfers[0];
  exchange_.operation = begun_.number;
  exchange_.transfers = &transfers;
  exchange_.turn = local_.size() > 1 ? &rendezvous_->handovers().filling(call.stream) : nullptr;
  gate_.begin();
  exchange_.counted = true;
  const auto meanwhile = [&] {
    if (!fill(turn)) throw stood_still(call);
  };
  issue(exchange_, std::ref(meanwhile));
}

StreamSlot StreamRunner::slot_of(uint32_t way, uint64_t number) const {
  if (launch_.plan->windows) return windows_->slot(*launch_.plan, places_, way, number);
  const auto& [channel, first] = ways_[way];
  return {channel->slot(first + number), channel->awaited(first + number), channel->told(first + number)};
}

// The ranks of this process meet. The one that comes last puts the work of all into their streams.
void StreamRunner::put(const StreamCall& call, StreamPlan& plan, const Turn& turn) {
  begin(call, plan);
  const auto meanwhile = [&] {
    if (!fill(turn)) throw stood_still(call);
  };
  const std::function<void()> waiting = std::ref(meanwhile);
  const uint64_t place = rendezvous_->arrive({&launch_, setup_.device.tables, common(call.shape), &waiting});
  while (!rendezvous_->passed(place, std::chrono::microseconds(has_channels() ? 20 : 1000))) {
    bool in_time = true;
    try {
      in_time = gather(turn);
    } catch (const Failure& why) {
      leave(why);
      throw;
    }
    if (!in_time) require_peers(call, place);
  }
}

// The call's time is over: does a rank of this process keep it waiting?
void StreamRunner::require_peers(const StreamCall& call, uint64_t place) {
  std::string peer;
  if (const std::string missing = rendezvous_->missing(place); !missing.empty())
    peer =
        fmt::format("{} of its process: ranks that are threads of one process call from threads of their own", missing);
  else if (const auto issuer = rendezvous_->issuer(std::chrono::nanoseconds(call.timeout_ns)))
    peer = fmt::format(
        "{} of its process, whose thread puts the work of all into their streams and has not come back from a call of "
        "the device: is a stream full of work that waits for something else?",
        *issuer);
  else
    return;
  const Failure late(TUTTI_TIMEOUT,
                     fmt::format("has waited {} in {} on device memory for rank {}",
                                 setup_.timeout.text(call.timeout_ns), collective_name(call.shape.collective), peer));
  leave(late);
  throw late;
}

void StreamRunner::begin(const StreamCall& call, StreamPlan& plan) {
  begin_operation(call, launch_);
  begun_.call.shape.count = plan.plan.count;  // as messages have it
  if (call.capturing && plan.windows)
    windows_->keep_scratch();
  else
    scratch_captured_ |= call.capturing && plan.plan.scratch.bytes > 0;
  ways_.clear();
  for (size_t way = 0; way < plan.channels.size(); ++way) {
    StreamChannel& channel = *plan.channels[way];
    ways_.emplace_back(&channel, channel.announced());
    for (const uint64_t bytes : plan.traffic[way].sizes) channel.announce(bytes, begun_.number, call.sequence);
  }
  launch_.plan = &plan;
  launch_.in = static_cast<std::byte*>(const_cast<void*>(call.in));
  launch_.out = static_cast<std::byte*>(call.out);
  launch_.scratch = plan.windows ? windows_->scratch() : static_cast<std::byte*>(scratch_);
  launch_.fuse = plan.fuses;
  launch_.entered.store(false, std::memory_order_relaxed);
  if (plan.windows) {
    windows_->count(plan);
    if (call.shape.collective == TUTTI_BROADCAST && call.in && call.in != call.out && call.shape.root == setup_.rank)
      copy_to_output(call, plan);
  }
}

// The root's input is nobody else's to know: in windows the call goes on in place.
void StreamRunner::copy_to_output(const StreamCall& call, const StreamPlan& plan) {
  tutti_command commands[2]{};
  if (launch_.after) commands[0] = counter_->wait(*launch_.after);
  const void* const from = call.in;
  commands[1] = {.kind = TUTTI_COMMAND_COPY, .sources = 1, .dst = call.out, .src = &from, .count = plan.plan.out_bytes};
  const tutti_executor* executor = setup_.device.tables.executor;
  const uint32_t first = launch_.after ? 0 : 1;
  if (const tutti_status status = executor->enqueue(executor->self, call.stream, commands + first, 2 - first);
      status < 0)
    throw device_failure(status);
}

void StreamRunner::issued(tutti_request* request) {
  begins_ = false;
  if (captures()) {  // nothing runs now
    recorded_ |= has_channels();
    return;
  }
  begun_.request = request;
  begun_.counted = part_->counted;
  begun_.commands = std::min(part_->commands, most_queued);
  last_stream_ = begun_.call.stream_number;
  given_ = begun_.last;
  queued_ += begun_.commands;
  operations_.push_back(begun_);
}

void StreamRunner::failed() {
  if (!std::exchange(begins_, false)) return;
  if (const auto issuer = left_behind_ ? rendezvous_->issuer() : std::nullopt)
    return be_stuck(fmt::format(
        "the thread of rank {} of this process has not come back from a call of the device and may still put work into "
        "this rank's stream: keep the stream and the buffers untouched until that rank's call has returned and the "
        "stream is done",
        *issuer));
  if (captures()) return;
  if (!part_->read_by.empty())
    be_stuck(fmt::format("{} may still read this rank's memory: keep it untouched until their streams are done",
                         part_->read_by));
  tutti_command commands[2]{};
  if (part_->after) commands[0] = counter_->wait(*part_->after);
  given_ = counter_->next();
  commands[1] = counter_->store(given_);
  const tutti_executor* executor = setup_.device.tables.executor;
  const uint32_t first = part_->after && !part_->commands ? 0 : 1;  // it may have begun, and waited
  if (executor->enqueue(executor->self, part_->stream, commands + first, 2 - first) == TUTTI_OK) return;
  be_stuck(
      fmt::format("the device refuses to tell when the stream is done ({}): keep its buffers untouched until the "
                  "stream is destroyed",
                  take_plugin_error()));
}

void StreamRunner::be_stuck(const std::string& why) {
  stuck_ = true;
  untold_ += "; " + why;
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

bool StreamRunner::advance(const std::function<bool(tutti_request*)>& done) {
  const auto reached = [this](const Operation& one) { return counter_->reached(one.last); };
  // Before the channels advance: these then see all that those operations have written.
  auto over = std::ranges::find_if_not(operations_, reached) - operations_.begin();
  bool moved = false;
  for (auto& [way, channel] : channels_) moved |= channel->advance();
  moved_ |= moved;
  for (; over; --over) {
    const Operation& first = operations_.front();
    if (std::ranges::any_of(channels_, [&](const auto& entry) { return entry.second->sends(first.number); })) break;
    if (first.request && !done(first.request)) break;
    if (first.counted) gate_.end();
    queued_ -= first.commands;
    operations_.erase(operations_.begin());
    moved = true;
  }
  return moved;
}

bool StreamRunner::overdue(uint64_t now_ns) {
  if (!operations_.empty() || begins_)
    if (const auto failed = probe_.poll(now_ns))
      throw Failure(failed->status,
                    fmt::format("{}: {}", (operations_.empty() ? begun_ : operations_.front()).text(), failed->text));
  if (operations_.empty()) return false;
  Operation& first = operations_.front();
  moved_ |= windows_->moved();
  if (std::exchange(moved_, false) || !first.last_progress_ns || held_up()) first.last_progress_ns = now_ns;
  return now_ns - first.last_progress_ns > first.call.timeout_ns;
}

std::string StreamRunner::standpoint() const {
  if (operations_.empty() && !opening_.empty()) return opening_;
  const Operation& first = operations_.empty() ? begun_ : operations_.front();
  std::string text = fmt::format("{} on device {}", first.text(), setup_.device.tables.memory->name);
  for (const auto& [way, channel] : channels_)
    if (const std::string where = channel->where(); !where.empty()) text += ", " + where;
  return text;
}

void StreamRunner::let_replays_go() {
  for (auto& [way, channel] : channels_) channel->let_go();
  windows_->let_go();
}

bool StreamRunner::let_go() {
  if (is_done()) return true;
  let_replays_go();
  return is_done();
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
  for (const Operation& operation : operations_)
    if (operation.request) done(operation.request);
  operations_.clear();
  gate_.clear();  // nothing that they wait for is missing any more
}

}  // namespace tutti::core
