// SPDX-License-Identifier: Apache-2.0
#include "stream/stream_issue.hpp"

#include <fmt/format.h>

#include <chrono>
#include <functional>

#include "record/call.hpp"

namespace tutti::core {
namespace {

constexpr std::chrono::seconds leaving_limit(5);

}  // namespace

StreamIssue::StreamIssue(const StreamSetup& setup, StreamComm& comm, DeviceGate::User& gate, StreamChannels& channels,
                         Windows& windows, StreamScratch& scratch, InFlight& in_flight)
    : setup_(setup),
      comm_(comm),
      gate_(gate),
      channels_(channels),
      windows_(windows),
      scratch_(scratch),
      in_flight_(in_flight),
      rendezvous_(LocalRendezvous::of(setup.communicator, setup.local)) {
  for (StreamPart* part : {static_cast<StreamPart*>(&launch_), static_cast<StreamPart*>(&exchange_)}) {
    part->rank = setup_.rank;
    part->device = setup_.device.device;
    part->gate = &gate_;
    part->spare = &spare_;
    part->unreadable = &unreadable_;
  }
  exchange_.tables = setup_.device.tables;
  exchange_.rendezvous = rendezvous_.get();
  exchange_.channel = [this](uint32_t peer, bool outgoing) {
    return setup_.is_local(peer) ? nullptr : &channels_.of(peer, outgoing);
  };
  exchange_.writer = &writer_;
  exchange_.most_queued = most_queued / setup_.local.size();
  exchange_.paced = setup_.local.size() > 1;
  launch_.slot = [this](uint32_t way, uint64_t number) { return slot_of(way, number); };
}

void StreamIssue::enable_peers() {
  const auto& [tables, device] = setup_.device;
  for (const uint32_t rank : setup_.local)
    if (const uint32_t other = setup_.topology->rank(rank).device.index; other != device)
      if (const tutti_status status = tables.memory->enable_peer(tables.memory->self, device, other); status < 0)
        unreadable_.insert_or_assign(
            other, Failure(status, fmt::format("device {}: {}", tables.memory->name, take_plugin_error())));
}

StreamSlot StreamIssue::slot_of(uint32_t way, uint64_t number) const {
  const auto& [channel, first] = ways_[way];
  const uint64_t k = first + number;
  void* const data = launch_.plan->windows ? windows_.data(*launch_.plan, *places_, way, number) : channel->slot(k);
  return {data, channel->awaited(k), channel->notified(k)};
}

// ---- Waits -------------------------------------------------------------------------------------------------

std::string StreamIssue::standpoint() const {
  return fmt::format("{} on device {}{}", in_flight_.current().text(), setup_.device.tables.memory->name,
                     channels_.where());
}

// A turn of the wait until this thread has put a call's work into the stream. Work that the application has put there
// before may take as long as it likes.
void StreamIssue::wait_here() {
  const bool on_device = exchange_.awaits == StreamExchange::Awaits::nothing;
  if (comm_.turn(on_device && !in_flight_.captures() && !in_flight_.is_entered())) return;
  const StreamOperation& begun = in_flight_.begun();
  const std::string time = setup_.timeout.text(begun.call.timeout_ns);
  throw Failure(TUTTI_TIMEOUT, on_device ? fmt::format("{} has stood still for {}", standpoint(), time)
                                         : fmt::format("has waited {} in {} on device memory for {}", time,
                                                       begun.text(), exchange_.waits_for()));
}

// The same, while the thread of another rank is to do it. It puts nothing there before all ranks of the process have
// come and the streams of ranks before this one have taken their work: until then only work of the application before
// earlier operations is an excuse.
bool StreamIssue::wait_for_issuer() {
  const bool entered = launch_.entered.load(std::memory_order_relaxed);
  return comm_.turn(!in_flight_.captures() && (entered ? !in_flight_.is_entered() : in_flight_.is_held_up()));
}

// The call's time is over: does a rank of this process keep it waiting?
void StreamIssue::require_peers(uint64_t place) {
  const StreamCall& call = in_flight_.begun().call;
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
  throw Failure(TUTTI_TIMEOUT,
                fmt::format("has waited {} in {} on device memory for rank {}", setup_.timeout.text(call.timeout_ns),
                            collective_name(call.shape.collective), peer));
}

// The device's queue may be full of what waits for this rank, and the issuing thread wait for room in it. The call is
// half undone: no other thread may come in meanwhile.
void StreamIssue::withdraw(const Failure& why) {
  const auto limit = std::chrono::steady_clock::now() + leaving_limit;
  while (!rendezvous_->leave(setup_.rank, why, std::chrono::milliseconds(1))) {
    channels_.release_flags();
    if (std::chrono::steady_clock::now() > limit) return;
  }
}

// ---- Calls -------------------------------------------------------------------------------------------------

void StreamIssue::put(const std::vector<Transfer>& transfers) {
  in_flight_.enter(exchange_);
  exchange_.awaits = StreamExchange::Awaits::nothing;
  exchange_.operation = in_flight_.begun().number;
  exchange_.transfers = &transfers;
  exchange_.turn = setup_.local.size() > 1 ? &rendezvous_->filling(in_flight_.begun().call.stream) : nullptr;
  gate_.begin();
  exchange_.counted = true;
  issue(exchange_, [this] { wait_here(); });
}

// The rank that comes last puts the work of all into their streams. The others wait for it with the engine's lock,
// since to open it costs another lock: a millisecond at most. In each turn behind that other threads may come in.
void StreamIssue::put(const StreamCall& call, StreamPlan& plan, const WindowPlaces& places) {
  in_flight_.enter(launch_);
  exchange_.awaits = StreamExchange::Awaits::nothing;
  if (call.capturing && plan.windows) windows_.keep_scratch();
  if (call.capturing && !plan.windows && plan.plan.scratch.bytes > 0) scratch_.keep();
  ways_.clear();
  for (size_t way = 0; way < plan.channels.size(); ++way) {
    StreamChannel& channel = *plan.channels[way];
    ways_.emplace_back(&channel, channel.announced());
    for (const uint64_t bytes : plan.traffic[way].sizes)
      channel.announce(bytes, in_flight_.begun().number, call.sequence);
  }
  places_ = &places;
  launch_.plan = &plan;
  launch_.in = static_cast<std::byte*>(const_cast<void*>(call.in));
  launch_.out = static_cast<std::byte*>(call.out);
  launch_.scratch = plan.windows ? windows_.scratch() : scratch_.address();
  launch_.fuse = plan.fuses;
  launch_.entered.store(false, std::memory_order_relaxed);
  if (plan.windows && call.shape.collective == TUTTI_BROADCAST && call.in && call.in != call.out &&
      call.shape.root == setup_.rank)
    copy_to_output(call, plan);
  const std::function<void()> waiting = [this] { wait_here(); };
  const uint64_t place = rendezvous_->arrive({&launch_, setup_.device.tables, common(call.shape), &waiting, call.tag});
  while (!rendezvous_->passed(place, std::chrono::microseconds(setup_.has_channels() ? 20 : 1000))) try {
      if (!wait_for_issuer()) require_peers(place);
    } catch (const std::exception& problem) {  // nobody may use the launch any more
      withdraw(failure_of(problem));
      throw;
    }
}

// Other ranks do not know the root's input, so in windows the call goes on in place.
void StreamIssue::copy_to_output(const StreamCall& call, const StreamPlan& plan) {
  tutti_command commands[2]{};
  if (launch_.after) commands[0] = launch_.counter->wait(*launch_.after);
  const void* const from = call.in;
  commands[1] = {.kind = TUTTI_COMMAND_COPY, .sources = 1, .dst = call.out, .src = &from, .count = plan.plan.out_bytes};
  const auto& [memory, executor] = setup_.device.tables;
  const uint32_t first = launch_.after ? 0 : 1;
  if (const tutti_status status = executor->enqueue(executor->self, call.stream, commands + first, 2 - first);
      status < 0)
    throw Failure(status, fmt::format("device {}: {}", memory->name, take_plugin_error()));
}

void StreamIssue::abort() {
  if (const auto issuer = rendezvous_->issuer())
    in_flight_.keep_in_use(fmt::format(
        "the thread of rank {} of this process has not come back from a call of the device and may still put work into "
        "this rank's stream: keep the stream and the buffers untouched until that rank's call has returned and the "
        "stream is done",
        *issuer));
  else
    in_flight_.abort();
}

void StreamIssue::release_events(bool failed) {
  const tutti_executor* executor = setup_.device.tables.executor;
  if (failed && setup_.local.size() > 1) rendezvous_->leave_events(executor, std::exchange(spare_, {}));
  for (tutti_event* event : spare_) executor->destroy_event(executor->self, event);
}

}  // namespace tutti::core
