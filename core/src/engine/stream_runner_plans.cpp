// SPDX-License-Identifier: Apache-2.0
//
// What a call needs before its work goes into a stream: a plan, scratch, channels to other processes, and the answer
// whether registered memory is read where it is.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "bootstrap/failure.hpp"
#include "engine/device_census.hpp"
#include "engine/direct_buffers.hpp"
#include "engine/hash.hpp"
#include "engine/host.hpp"
#include "engine/settings.hpp"
#include "engine/stream_runner.hpp"

namespace tutti::core {
namespace {

constexpr size_t most_plans = 256;

}  // namespace

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
  if (call.capturing && !plan.open)
    throw Failure(TUTTI_NOT_SUPPORTED,
                  "the stream is being captured, and the call goes through slots that no earlier one has opened: then "
                  "all ranks had registered what they pass");
  if (!plan.open) open_all(call, plan, until);
  if (call.capturing && !plan.direct) require_mapped(plan);
}

void StreamRunner::open_all(const Call& call, StreamPlan& plan, const Until& until) {
  plan.plan.transports = open_ways(call.where, collective_name(call.shape.collective), plan.traffic, until);
  plan.fuses = may_fuse(call, plan);
  plan.open = true;
}

std::string StreamRunner::open_ways(const DeviceMemory& where, const std::string& what,
                                    const std::vector<StreamTraffic>& traffic, const Until& until) {
  if (std::ranges::any_of(traffic, [this](const StreamTraffic& way) {
        return !channels_.contains({way.peer, way.lane, way.outgoing});
      }))
    open_missing(where, what, traffic, until);
  std::set<std::string> carriers;
  for (const StreamTraffic& way : traffic) carriers.insert(channel(way).carrier());
  return fmt::format("{}", fmt::join(carriers, "+"));
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

std::string StreamRunner::open_channels(const Call& call, const std::vector<Transfer>& transfers, const Until& until) {
  std::vector<StreamTraffic> traffic;
  std::set<uint32_t> peers;
  for (const Transfer& transfer : transfers)
    if (!is_local(transfer.peer) && peers.insert(transfer.peer).second)
      for (const bool outgoing : {true, false}) traffic.push_back({transfer.peer, place_.lanes, outgoing, {}});
  return open_ways(call.where, transfers.size() == 1 ? text_of(transfers[0]) : "exchange", traffic, until);
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

// All ranks come to the same answer until they meet: what is asked before is the same on all of them.
StreamPlan& StreamRunner::settle_form(const Call& call, StreamPlan& plan, const Until& until) {
  const Shape& shape = call.shape;
  if (!has_channels() || !shape.dtype) return plan;
  if (!direct_) {
    tell_why_not_direct(call, plan, place_.no_board);
    return plan;
  }
  if (shape.count * dtype_bytes(shape.dtype) < DirectMemory::least_bytes) {
    static const std::string small =
        fmt::format("blocks of less than {} bytes go through slots", DirectMemory::least_bytes);
    tell_why_not_direct(call, plan, small);
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

}  // namespace tutti::core
