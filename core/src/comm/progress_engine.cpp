// SPDX-License-Identifier: Apache-2.0
#include "comm/progress_engine.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "base/clock.hpp"
#include "base/failure.hpp"
#include "base/graveyard.hpp"
#include "base/settings.hpp"
#include "comm/ending.hpp"
#include "registry/host.hpp"

namespace tutti::core {
namespace {

constexpr uint64_t look_interval_ns = 1'000'000;
constexpr std::chrono::seconds drain_limit(5);

// A rank without a core of its own yields almost at once.
WaitPolicy policy_of(const Foundation& base) {
  return base.topology.processors_of(base.rank()) < 1 ? WaitPolicy{16, crowded_yields} : WaitPolicy{};
}

}  // namespace

ProgressEngine::ProgressEngine(Communicator& comm, Foundation& foundation)
    : base(foundation),
      waiter(lock, policy_of(base)),
      breakdown(*this, base),
      planner{base.rank(),     base.nranks(),        base.configuration.verifies,
              &*base.selector, &base.fabric.links(), &operators},
      plans(planner, base.reports),
      call_check(base.rank(), base.nranks(), base.configuration.checks_calls, base.fabric.links(),
                 base.reports.recorder(), base.name()),
      point_to_point(base.rank(), base.fabric.links(), base.host_lanes() - PointToPoint::lanes,
                     [this](Transfer& transfer, tutti_status status, const std::string& error) {
                       operations.ended(transfer, status, error);
                     }),
      departures(point_to_point, breakdown, base.control()),
      operations(comm, base, *this, breakdown, call_check, windows),
      meetings(waiter, breakdown, base, [this] { return streams && streams->is_held_up(); }),
      stream_requests(*this),
      streams(make_streams()) {}

std::unique_ptr<Streams> ProgressEngine::make_streams() {
  if (!base.device) return nullptr;
  const Configuration& configuration = base.configuration;
  StreamSetup setup;
  setup.rank = base.rank();
  setup.device = base.device;
  setup.topology = &base.topology;
  setup.planner = &planner;
  setup.links = &base.fabric.links();
  setup.first_lane = base.host_lanes();
  setup.lanes = configuration.lanes;
  setup.communicator = base.common.communicator;
  setup.name = base.name();
  setup.timeout = configuration.timeout;
  setup.mapped_links = &base.fabric.mapped_links();
  setup.named = !configuration.transports.empty();
  setup.in_host = flag_setting("TUTTI_HOST_STAGING");
  setup.scratch_limit = configuration.scratch_limit;
  setup.windows = &windows;
  setup.point_to_point = &point_to_point;
  setup.call_check = &call_check;
  setup.reports = &base.reports;
  return Streams::make(std::move(setup), stream_requests);
}

// A step that fails for lack of memory has not ended.
ProgressEngine::~ProgressEngine() {
  const auto succeeds = [this](const auto& step) {
    try {
      return !streams || step();
    } catch (const std::exception&) {
      return false;
    }
  };
  const bool unmapped = succeeds([this] { return streams->end(true); });
  base.natives.clear();
  base.fabric.close(!unmapped);  // before the operations: what a transport has not given back must still be there
  if (succeeds([this] { return streams->close(); })) return;
  // The thread of another rank may look for windows, too.
  for (std::unique_ptr<tutti_window>& window : windows) keep_for_ever(std::move(window), "streams may still use it");
  keep_for_ever(std::move(streams), "the device or the thread of another rank may still use what they have");
}

void ProgressEngine::require_mover() {
  if (lock.has_thread() || !has_channels()) return;
  breakdown.require_none();
  breakdown.guard([this] { lock.begin_thread(); });
}

std::vector<tutti_link_traffic> ProgressEngine::traffic() const {
  std::vector<tutti_link_traffic> rows = base.fabric.traffic();
  if (streams)
    for (const tutti_link_traffic& row : streams->traffic()) rows.push_back(row);
  return rows;
}

// ---- Progress ----------------------------------------------------------------------------------------------

bool ProgressEngine::progress_ports(Ports which) try {
  bool moved = base.fabric.progress(which, *this);
  if (which != Ports::busy && !breakdown.begun())
    moved |= base.fabric.deliver_pair_messages(
        [this](uint32_t from, std::string_view bytes) { departures.receive(from, bytes); });
  lock.stir(moved);
  if (!breakdown.pending() || breakdown.begun()) return moved;
  breakdown.carry_out();
  return true;
} catch (const std::exception& problem) {
  breakdown.fail(problem);
  return true;
}

bool ProgressEngine::progress() {
  if (breakdown.begun()) return false;
  if (breakdown.pending()) {
    breakdown.carry_out();
    return true;
  }
  try {
    const bool moved = advance_all();
    lock.stir(moved);
    return moved;
  } catch (const std::exception& problem) {
    breakdown.fail(problem);
    return true;
  }
}

bool ProgressEngine::advance_transfers() {
  const bool moved = point_to_point.advance([](Link& link) { return connect(link); });
  if (const auto difference = point_to_point.take_difference())
    breakdown.report({TUTTI_MISMATCH, difference->culprit, difference->reason});
  return moved;
}

bool ProgressEngine::advance_all() {
  bool moved = false;
  if (!operations.empty()) moved |= operations.advance();
  if (breakdown.begun()) return true;
  if (point_to_point.active()) moved |= advance_transfers();
  const bool in_streams = streams && streams->pending();
  if (in_streams) moved |= streams->advance();
  const bool listens = point_to_point.active() || in_streams || !operations.all_launched();
  moved |= progress_ports(listens ? Ports::used : Ports::busy);
  if (!point_to_point.replies()) return moved;
  moved |= advance_transfers();
  return progress_ports(Ports::busy) || moved;  // begins what that has posted
}

void ProgressEngine::look(bool waits) {
  breakdown.carry_out();
  if (breakdown.begun()) return;
  progress_ports(Ports::all);
  if (waits) operations.record_awaited(awaited);
  const uint64_t now = clock_ns();
  if (waits) base.reports.recorder().note_site(now);
  if (now < next_look_ns_) return;
  // A poll comes between hearing of another rank's failure and the end: it takes what that rank sent before it failed.
  const bool knew = std::exchange(knows_of_failure_, base.control().failed());
  next_look_ns_ = knows_of_failure_ ? now : now + look_interval_ns;
  if (knew)
    breakdown.poll_others();
  else if (knows_of_failure_)
    lock.stir(true);  // no sleep before the poll
  if (!breakdown.begun() && base.control().is_awaited()) check_ending_peer(*this);
  if (!breakdown.begun()) check_deadlines(now);
  if (!breakdown.begun()) departures.look(now);
}

void ProgressEngine::look_around(bool waits) {
  look(waits);
  ActiveEngines::process().progress_others(&lock);
}

void ProgressEngine::check_deadlines(uint64_t now) {
  if (const tutti_request* late = operations.overdue(now))
    breakdown.fail(breakdown.late(late->timeout_ns, late->sequence));
  else if (const StreamOperation* stands = streams ? streams->overdue(now) : nullptr)
    breakdown.fail(breakdown.late(stands->call.timeout_ns, stands->sequence()));
  else if (const Transfer* transfer = point_to_point.overdue(now))
    breakdown.fail(breakdown.late(transfer->timeout_ns, std::nullopt,
                                  transfer->any_peer ? std::nullopt : std::optional(transfer->peer)));
}

void ProgressEngine::trace_wait(Trace& trace, bool moved) const {
  if (moved) return trace.moved();
  trace.idle([this] {
    if (const auto step = operations.waited_for()) return *step;
    tutti_trace_step nobody{};
    nobody.kind = TUTTI_TRACE_WAIT;
    nobody.peer = UINT32_MAX;
    if (const Transfer* transfer = point_to_point.oldest()) {
      nobody.peer = transfer->peer;
      nobody.sequence = transfer->record;
      nobody.bytes = transfer->bytes;
      nobody.flags = TUTTI_TRACE_TRANSFERS | (transfer->sending ? TUTTI_TRACE_SENDING : 0);
    }
    return nobody;
  });
}

// ---- Failures ----------------------------------------------------------------------------------------------

std::string ProgressEngine::standpoint() const {
  std::string where = operations.standpoint();
  const Transfer* transfer = point_to_point.oldest();
  const StreamOperation* on_device = streams ? streams->oldest() : nullptr;
  const bool has_request = on_device && on_device->request;
  const Transfer* unmatched = has_request ? Operations::unmatched(*on_device->request) : nullptr;
  if (unmatched) transfer = unmatched;
  const bool waits_to_match = unmatched || (transfer && transfer->on_stream && transfer->timeout_ns != no_timeout);
  if (where.empty() && !waits_to_match && streams && streams->pending()) where = streams->standpoint();
  if (where.empty() && transfer) where = PointToPoint::standpoint(*transfer) + point_to_point.hint(*transfer);
  return fmt::format("seen by rank {} in {}{}{}", base.rank(), base.name(), where.empty() ? "" : ": ", where);
}

void ProgressEngine::stop(Breakdown::ErrorText& text) {
  const bool lent = operations.lent();
  for (const auto& group : base.natives) group->abort();
  operations.abandon();
  base.fabric.abort(drain_limit, *this);
  text.add([this] { return base.fabric.not_given_back(); });
  if (lent)
    text.add([] {
      return "; peers may still be reading what was sent by reference: keep memory from tutti_mem_alloc untouched "
             "until the communicator is destroyed";
    });
  if (streams) text.add([this] { return streams->release(); });
}

void ProgressEngine::end_operations(tutti_status status, const std::string& text) {
  operations.fail_all(status);
  point_to_point.fail_all(status, text);
  if (streams) streams->fail_all();
}

void ProgressEngine::on_control(Port& port, uint32_t peer, const std::byte* data, uint64_t bytes) {
  if (peer >= base.nranks() || peer == base.rank() || breakdown.begun()) return;
  std::string error;
  std::optional<CallDifference> difference;
  uint32_t type = 0;
  if (bytes >= sizeof type) std::memcpy(&type, data, sizeof type);
  if (CallCheck::receives(type)) {
    error = call_check.on_control(peer, data, bytes, operations.next_sequence(), &difference);
  } else if (point_to_point.on_control(peer, data, bytes, &error)) {
    difference = point_to_point.take_difference();
  }
  if (difference)
    breakdown.report({TUTTI_MISMATCH, difference->culprit, difference->reason});
  else if (!error.empty())
    breakdown.report({TUTTI_MISMATCH, peer, fmt::format("sent over {} {}", port.api->name, error)});
}

void ProgressEngine::on_peer_failed(Port& port, uint32_t peer, const char* reason) {
  // A transport that the pair does without says nothing of the peer.
  if (peer >= base.nranks() || !base.fabric.serves(port, peer)) return;
  // Transports begin with their own name and the peer's.
  std::string why = reason;
  const std::string named = fmt::format("rank {} is lost: ", peer);
  if (const size_t at = why.find(named); at != std::string::npos) why.erase(0, at + named.size());
  breakdown.report({TUTTI_PEER_FAILED, peer, fmt::format("is out of reach over {}: {}", port.api->name, why)});
}

void ProgressEngine::on_port_error(Port& port, tutti_status status, const std::string& reason) {
  breakdown.report({status, base.rank(), fmt::format("failed: transport {}: {}", port.api->name, reason)});
}

}  // namespace tutti::core
