// SPDX-License-Identifier: Apache-2.0
#include "matrix/attest.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "filters.hpp"
#include "matrix/blame.hpp"
#include "matrix/device.hpp"
#include "oracle/blocks.hpp"

namespace tutti::conformance {
namespace {

// The id of the plugin that has an algorithm or a transport.
std::string plugin_of(const std::string& name, std::vector<std::string> PluginRecord::*offers) {
  for (const PluginRecord& record : list_plugins())
    if (record.loaded && std::find((record.*offers).begin(), (record.*offers).end(), name) != (record.*offers).end())
      return record.id;
  return {};
}

}  // namespace

Witness::Witness(const Cell& cell, const Mix& mix, const Communicator& comm, uint32_t rank)
    : cell_(cell), mix_(mix), comm_(comm), rank_(rank), before_(read(comm)), rails_before_(read_rails(comm)) {}

Witness::Counters Witness::read(const Communicator& comm) {
  Counters counters;
  for (const tutti_link_traffic& row : comm.traffic()) {
    auto& [sent, received] = counters[{row.transport, row.peer}];
    sent += row.sent_bytes;
    received += row.received_bytes;
  }
  return counters;
}

Witness::RailCounters Witness::read_rails(const Communicator& comm) {
  RailCounters counters;
  for (const tutti_rail_traffic& row : comm.rails())
    counters[{row.transport, row.rail}] = {row.sent_bytes, row.received_bytes};
  return counters;
}

tutti_plan_facts Witness::plan() const {
  tutti_plan_facts facts{};
  facts.struct_size = sizeof facts;
  if (tutti_comm_plan(comm_.handle(), cell_.operation.collective, &facts) < 0) facts.algorithm = "";
  return facts;
}

uint64_t Witness::slices() const { return std::max<uint64_t>(1, plan().slices); }

std::string Witness::judge(Attestation& attestation) const {
  std::string wrong = judge_plan(attestation);
  const std::string traffic = judge_traffic(attestation);
  if (wrong.empty()) wrong = judge_device(attestation);
  tell_rails(attestation);
  return wrong.empty() ? traffic : wrong;
}

// The core's report of the transports of a call: "simulated+shm" if streams ran it.
std::string Witness::judge_device(Attestation& attestation) const {
  const Operation& o = cell_.operation;
  // Of no elements nothing is anywhere.
  if (cell_.on_host() || (o.collective != TUTTI_BARRIER && !elements_in(o, rank_) && !elements_out(o, rank_)))
    return {};
  const std::string served = plan().transports;
  attestation.device = served.substr(0, served.find('+'));
  if (attestation.device != cell_.device)
    return fmt::format("attestation: the buffers are memory of the device {}, but the core ran the call over {}",
                       cell_.device, served.empty() ? "the host" : served);
  if (const std::string id = plugin_of(cell_.device, &PluginRecord::devices); !id.empty())
    attestation.plugins.push_back(id);
  return {};
}

std::string Witness::judge_plan(Attestation& attestation) const {
  const tutti_plan_facts facts = plan();
  attestation.algorithm = facts.algorithm;
  if (const std::string id = plugin_of(cell_.algorithm, &PluginRecord::algorithms); !id.empty())
    attestation.plugins.push_back(id);
  if (cell_.algorithm != facts.algorithm)
    return fmt::format("attestation: algorithm {} was asked for, but {} ran", cell_.algorithm,
                       *facts.algorithm ? facts.algorithm : "none");
  uint64_t hash = 0;
  std::vector<Schedule> schedules = schedules_of(cell_, mix_);
  // The root's input of a broadcast is in no window: the core copies it to its output, and goes on in place.
  if (cell_.memory == Memory::window && cell_.operation.collective == TUTTI_BROADCAST &&
      schedule_hash(schedules[rank_]) != facts.schedule_hash) {
    Cell in_place = cell_;
    in_place.place = InPlace::in;
    schedules = schedules_of(in_place, mix_);
  }
  for (const Schedule& schedule : schedules) hash = (hash ^ schedule_hash(schedule)) * 0x100000001b3u;
  attestation.plan_hash = hash;
  if (schedule_hash(schedules[rank_]) != facts.schedule_hash)
    return fmt::format(
        "attestation: {} gave the core another schedule for this call ({:016x}) than it gives when asked again "
        "({:016x}): an algorithm must be a pure function of its query",
        cell_.algorithm, facts.schedule_hash, schedule_hash(schedules[rank_]));
  return {};
}

// A stream's end says that what it sends is in the host's hands, not yet that it was handed to the transport, where the
// core counts it: that may be a moment later.
Witness::Counters Witness::settled() const {
  Counters now = read(comm_);
  if (cell_.on_host() || cell_.ranks_as == RanksAs::threads || cell_.operation.nranks == 1 ||
      !exchanges_any(cell_.operation, rank_))
    return now;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (int unchanged = 0; unchanged < 3 && std::chrono::steady_clock::now() < limit;) {
    std::this_thread::sleep_for(std::chrono::microseconds(300));
    Counters later = read(comm_);
    unchanged = later == now && later != before_ ? unchanged + 1 : 0;
    now = std::move(later);
  }
  return now;
}

std::string Witness::judge_traffic(Attestation& attestation) const {
  std::string wrong;
  uint64_t moved = 0;
  const bool by_streams = !cell_.on_host() && cell_.ranks_as == RanksAs::threads;
  for (const auto& [key, after] : settled()) {
    const auto& [transport, peer] = key;
    const auto found = before_.find(key);
    const auto before = found == before_.end() ? Bytes{} : found->second;
    const uint64_t sent = after.first - before.first, received = after.second - before.second;
    if (!sent && !received) continue;
    moved += sent + received;
    attestation.traffic.push_back({transport, rank_, peer, sent, received});
    if (by_streams && wrong.empty())
      wrong = fmt::format(
          "attestation: ranks {} and {} are threads that share the device {}, but {} carried their bytes ({} sent, {} "
          "received)",
          rank_, peer, cell_.device, transport, sent, received);
    std::string asked = mix_.between(rank_, peer, cell_.operation.nranks);
    const bool maps =
        mix_.maps && asked == mix_.transports.front() && !cell_.on_host() && make_device(cell_.device).exports;
    // Not every device reads every other one's memory.
    if (maps && (cell_.devices == 1 || transport == mapped_way)) asked = mapped_way;
    // A schedule that windows cannot carry goes through slots.
    const bool in_window = mix_.mapped && cell_.memory == Memory::window && transport == "window";
    if (transport != asked && !in_window && wrong.empty())
      wrong = fmt::format(
          "attestation: {} was asked for between ranks {} and {}, but {} carried their bytes ({} sent, {} received)",
          asked, rank_, peer, transport, sent, received);
    if (const std::string id = plugin_of(transport, &PluginRecord::transports);
        !id.empty() &&
        std::find(attestation.plugins.begin(), attestation.plugins.end(), id) == attestation.plugins.end())
      attestation.plugins.push_back(id);
  }
  const Operation& o = cell_.operation;
  if (wrong.empty() && !moved && !by_streams && o.nranks > 1 && exchanges_any(o, rank_) &&
      o.collective != TUTTI_BARRIER)
    wrong = fmt::format("attestation: {} of {} elements was done, but the core counted no byte at this rank",
                        collective_name(o.collective), o.count);
  return wrong;
}

void Witness::tell_rails(Attestation& attestation) const {
  for (const auto& [key, after] : read_rails(comm_)) {
    const auto& [transport, rail] = key;
    const auto found = rails_before_.find(key);
    const Bytes before = found == rails_before_.end() ? Bytes{} : found->second;
    if (after == before) continue;
    attestation.rails.push_back({transport, rail, rank_, after.first - before.first, after.second - before.second});
  }
}

}  // namespace tutti::conformance
