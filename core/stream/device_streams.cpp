// SPDX-License-Identifier: Apache-2.0
#include "stream/device_streams.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/failure.hpp"
#include "engine/check/call_check.hpp"
#include "engine/p2p/point_to_point.hpp"
#include "record/call.hpp"
#include "record/reports.hpp"
#include "registry/host.hpp"

namespace tutti::core {
namespace {

constexpr std::chrono::seconds unmapping_limit(1), synchronising_limit(5);
constexpr uint64_t release_limit_ns = 5'000'000'000;

Failure device_failure(const DeviceMemory& device, tutti_status status) {
  return {status, fmt::format("device {}: {}", device.tables.memory->name, take_plugin_error())};
}

}  // namespace

bool Streams::exist() { return true; }
std::unique_ptr<Streams> Streams::make(StreamSetup setup, StreamComm& comm) {
  setup.find_local();
  return std::make_unique<DeviceStreams>(std::move(setup), comm);
}

DeviceStreams::DeviceStreams(StreamSetup setup, StreamComm& comm)
    : setup_(std::move(setup)),
      comm_(comm),
      gate_(setup_.device, setup_.communicator, fmt::format("rank {} of {}", setup_.rank, setup_.name)),
      memory_(setup_.device, setup_.mapped_links),
      channels_(setup_, memory_, gate_),
      windows_(setup_, memory_, gate_),
      plans_(setup_, channels_, windows_),
      scratch_(setup_.device),
      in_flight_(setup_.device.tables, gate_),
      issue_(setup_, comm_, gate_, channels_, windows_, scratch_, in_flight_) {}

// ---- The beginning of a call -------------------------------------------------------------------------------

template <typename Body>
void DeviceStreams::carry_out(StreamCall call, const StreamAsker& asker, Body&& body) {
  uint32_t service = 0;
  timeout_ns_ = call.timeout_ns;
  comm_.open(timeout_ns_, asker);
  state_ = StreamState::checks;
  try {
    require_stream(call);
    service = body(call);
  } catch (const std::exception& problem) {
    abort(problem);
    throw;
  }
  state_ = StreamState::idle;
  tutti_request* const request = comm_.pend(service, !in_flight_.captures());
  if (!request) {  // nothing runs now
    replays_ |= has_channels();
    return;
  }
  in_flight_.issued(request);
  comm_.progress();
}

// The call may have failed half-way. The communicator's error says what is left in the stream; where that error is
// known already, the call's own says it.
void DeviceStreams::abort(const std::exception& problem) {
  const StreamState at = std::exchange(state_, StreamState::idle);
  std::string in_use;
  if (at == StreamState::issues) {
    issue_.abort();
    if (comm_.has_ended()) {
      in_use = release();
      fail_all();
    }
  }
  comm_.fail(problem, at, in_use);
}

// Can the call's stream take it? Fills in what the device says of it.
void DeviceStreams::require_stream(StreamCall& call) const {
  const auto& [memory, executor] = setup_.device.tables;
  uint32_t device = 0;
  uint64_t flags = 0;
  if (const tutti_status status = executor->stream_state(executor->self, call.stream, &device, &flags); status < 0)
    throw device_failure(setup_.device, status);
  if (device != setup_.device.device)
    throw Failure(TUTTI_INVALID_ARGUMENT, fmt::format("the stream belongs to device {} {}, the buffers to device {}",
                                                      memory->name, device, setup_.device.device));
  call.capturing = (flags & TUTTI_STREAM_CAPTURING) != 0;
  call.stream_number = static_cast<uint32_t>(flags >> 32);
}

// Where the device waits for this process, no thread may ever wait for room in its queue.
void DeviceStreams::await_room() {
  const uint64_t most = has_channels() ? most_queued / setup_.local.size() : UINT64_MAX;
  while (!in_flight_.has_room(most)) comm_.turn(true);
}

// Runs what may wait for the whole device, once no communicator of the process has work pending there. Work of this one
// has deadlines of its own.
void DeviceStreams::when_idle(const std::function<void()>& body) {
  while (!gate_.try_run(body))
    if (!comm_.turn(in_flight_.oldest() != nullptr))
      throw Failure(TUTTI_TIMEOUT,
                    fmt::format("has waited {} for {}: this call needs memory or kernels of {}, "
                                "which waits until no communicator of the process has work pending there",
                                setup_.timeout.text(timeout_ns_), gate_.pending(), describe(setup_.device)));
}

// Before the first call: has the device load what it needs for commands.
void DeviceStreams::prepare() {
  if (in_flight_.is_open()) return;
  when_idle([this] {
    const tutti_executor* executor = setup_.device.tables.executor;
    if (const tutti_status status = executor->prepare(executor->self, setup_.device.device); status < 0)
      throw device_failure(setup_.device, status);
    issue_.enable_peers();
    in_flight_.open(setup_.device.device);
  });
}

void DeviceStreams::require_scratch(const StreamPlan& plan) {
  if (!scratch_.holds(plan.scratch_bytes)) when_idle([&] { scratch_.grow(plan.scratch_bytes); });
}

// ---- Collectives -------------------------------------------------------------------------------------------

void DeviceStreams::begin(const StreamCall& given, const BlockTable* blocks, const StreamAsker& asker) {
  carry_out(given, asker, [&](StreamCall& call) {
    if (call.capturing && asker.request)
      throw Failure(TUTTI_NOT_SUPPORTED, "the stream is being captured: a recorded call has no request");
    if (call.capturing) plans_.require_recordable(call);
    await_room();
    state_ = StreamState::plans;
    prepare();
    StreamPlan& plan = plans_.find(call, blocks);
    if (!plans_.may_use_windows(call)) require_scratch(plan);
    Call mine = call_of(plan.plan, 0, call.tag);
    mine.plan ^= plans_.places().hash();
    comm_.enter(mine, plan.plan, service_of(plan));
    state_ = StreamState::opens;
    call.sequence = mine.sequence;
    in_flight_.begin(call).call.shape.count = plan.plan.count;  // as messages have it
    if (!setup_.call_check->checked() && std::exchange(plan.plan.fresh, false))
      for (Link* link : plan.plan.links)
        if (!setup_.is_local(link->peer)) notices_.push_back({mine, link});
    StreamPlan& form = plans_.choose(call, plan, comm_);
    if (!form.windows) require_scratch(form);
    plans_.open(call, form, comm_);
    comm_.require_sound();  // also where all have come, and then something broke
    const uint32_t service = put(call, form);
    // Where no rank of another process takes part, no rank waits for this one any more, and perhaps no thread looks
    // when the stream has come to the end.
    if (!has_channels() || call.capturing) setup_.reports->recorder().end(call.sequence, ticks(), TUTTI_OK);
    return service;
  });
}

uint32_t DeviceStreams::service_of(StreamPlan& plan) {
  if (plan.service) return *plan.service;
  std::string carriers = setup_.device.tables.memory->name;
  if (!plan.plan.transports.empty()) carriers += "+" + plan.plan.transports;
  if (plan.fuses) carriers += "+fused";
  plan.service = setup_.reports->row(collective_name(plan.plan.shape.collective), plan.plan.algorithm, carriers);
  return *plan.service;
}

// Returns the row of reports of the plan by which it is served.
uint32_t DeviceStreams::put(const StreamCall& call, StreamPlan& plan) {
  const uint32_t service = service_of(plan);
  setup_.reports->set_service(plan.plan.shape.collective, service, plan.plan.slices, plan.plan.schedule_hash);
  state_ = StreamState::issues;
  issue_.put(call, plan, plans_.places());
  return service;
}

// Peers are notified of new plans once the links to them are connected. The threads of this process compare their calls
// when they meet.
void DeviceStreams::notify_peers() {
  std::erase_if(notices_, [this](const FirstUseNotice& one) {
    if (!connect(*one.link)) return false;
    setup_.call_check->notify(one.call, {one.link});
    return true;
  });
}

// ---- Sends and receives ------------------------------------------------------------------------------------

void DeviceStreams::begin(const StreamCall& given, std::span<const Transfer> transfers, const StreamAsker& asker) {
  carry_out(given, asker, [&](const StreamCall& call) {
    if (call.capturing)
      throw Failure(TUTTI_NOT_SUPPORTED, "the stream is being captured: sends and receives cannot be recorded");
    check_own(transfers, setup_.rank);
    await_room();
    state_ = StreamState::plans;
    prepare();
    const char* kind = transfers.size() > 1 ? "exchange" : transfers[0].sending ? "send" : "receive";
    const char* const device = setup_.device.tables.memory->name;
    Reports& reports = *setup_.reports;
    std::vector<Transfer>& group = comm_.enter(transfers, reports.transfer_row(kind, device, {}));
    state_ = StreamState::meets;
    match(group);
    state_ = StreamState::opens;
    in_flight_.begin(call, group);
    carriers_.clear();
    channels_.open(group, carriers_, comm_);
    comm_.require_sound();
    state_ = StreamState::issues;
    issue_.put(group);
    // Perhaps no thread looks when the stream has come to the end.
    if (!has_channels())
      for (const Transfer& transfer : group) reports.recorder().end_transfer(transfer.record, ticks(), TUTTI_OK);
    return reports.transfer_row(kind, device, carriers_);
  });
}

// Tells of the transfers, and waits until its sends have been told of, so that no byte comes before them. A rank of
// this process takes part in the call itself. Other receives meet their sends while the device waits for the bytes: the
// operation has the timeout.
void DeviceStreams::match(std::vector<Transfer>& transfers) {
  const auto may_wait = [this](const Transfer& transfer) {
    return !transfer.sending && !(transfer.bytes && setup_.is_local(transfer.peer));
  };
  for (Transfer& transfer : transfers)
    if (may_wait(transfer)) transfer.timeout_ns = no_timeout;
  for (Transfer& transfer : transfers) {
    if (transfer.peer == setup_.rank) continue;
    setup_.point_to_point->start(transfer);
    if (const auto difference = setup_.point_to_point->take_difference()) throw CallsDiffer(*difference);
  }
  comm_.progress();
  while (!std::ranges::all_of(transfers, [&](const Transfer& t) { return t.done || may_wait(t); })) comm_.turn(true);
}

// ---- Operations that are pending ---------------------------------------------------------------------------

bool DeviceStreams::advance() {
  if (!notices_.empty()) notify_peers();
  const size_t over = in_flight_.reached();  // first: the channels then see all that those operations have written
  const bool moved = channels_.advance();
  if (moved) in_flight_.moved();
  return in_flight_.finish(over, [this](const StreamOperation& one) {
    return !channels_.sends(one.number) && (!one.request || comm_.complete(*one.request));
  }) || moved;
}

const StreamOperation* DeviceStreams::overdue(uint64_t now_ns) {
  if (in_flight_.oldest() && channels_.moved()) in_flight_.moved();
  return in_flight_.overdue(now_ns, state_ == StreamState::issues);
}

std::string DeviceStreams::standpoint() const {
  if (state_ != StreamState::opens || in_flight_.oldest()) return issue_.standpoint();
  return fmt::format("{} on device {}, until its peers have come to their first such call", in_flight_.begun().text(),
                     setup_.device.tables.memory->name);
}

// ---- The end -----------------------------------------------------------------------------------------------

// True when the device has finished everything.
bool DeviceStreams::release_flags() {
  if (!in_flight_.is_done()) channels_.release_flags();
  return in_flight_.is_done();
}

// The communicator is half ended: no other thread may come in meanwhile.
std::string DeviceStreams::release() {
  for (const uint64_t begin = clock_ns(); !release_flags() && clock_ns() - begin < release_limit_ns;)
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  return in_flight_.take_in_use();
}

bool DeviceStreams::release_replays() {
  if (replays_) channels_.release_flags();
  return replays_;
}

void DeviceStreams::fail_all() {
  (void)release_flags();
  in_flight_.fail_all([this](tutti_request& request) { comm_.complete(request); });
}

bool DeviceStreams::synchronise_soon(const std::function<void()>& body) {
  const auto limit = std::chrono::steady_clock::now() + synchronising_limit;
  while (!gate_.try_run(body)) {
    if (std::chrono::steady_clock::now() > limit) {
      log(TUTTI_LOG_WARN, setup_.device.tables.memory->name,
          fmt::format("rank {} of {}: its device memory is kept until the process ends: the device still has work of "
                      "{}, and releasing memory would wait for it",
                      setup_.rank, setup_.name, gate_.pending()));
      return false;
    }
    comm_.drain();
    std::this_thread::yield();
  }
  return true;
}

bool DeviceStreams::end(bool last) {
  if (last && issue_.is_used_elsewhere()) {
    log(TUTTI_LOG_WARN, setup_.name,
        fmt::format("rank {}: the thread of another rank still puts work into this rank's stream: scratch and plans "
                    "are kept until the process ends",
                    setup_.rank));
    state_ = StreamState::idle;  // that thread does not say when it stops
    return false;
  }
  const auto unmap = [this] {
    channels_.unmap();
    windows_.close();
  };
  if (state_ != StreamState::unmapped && in_flight_.is_over() &&
      ((!windows_.is_open() && !channels_.any_mapped()) || synchronise_soon(unmap)))
    state_ = StreamState::unmapped;
  const bool unmapped = state_ == StreamState::unmapped;
  if (!last) return unmapped;
  const auto limit = std::chrono::steady_clock::now() + unmapping_limit;
  for (windows_.release_pending(); !memory_.all_released() && std::chrono::steady_clock::now() < limit;
       windows_.release_pending()) {
    comm_.drain();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return unmapped;
}

bool DeviceStreams::close() {
  const auto release_memory = [this] {
    channels_.clear();
    scratch_.release();
  };
  if (state_ == StreamState::unmapped &&
      ((channels_.empty() && scratch_.empty()) || synchronise_soon(release_memory))) {
    issue_.release_events(in_flight_.has_failed());
    return true;
  }
  gate_.clear();  // other communicators do not wait for it
  return false;
}

}  // namespace tutti::core
