// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>

#include <algorithm>
#include <cstring>

#include "base/clock.hpp"
#include "base/failure.hpp"
#include "base/fork_generation.hpp"
#include "comm/communicator_hold.hpp"
#include "engine/choose/explain.hpp"
#include "registry/host.hpp"

namespace tutti::core {
namespace {

constexpr uint64_t look_interval_ns = 1'000'000;

}  // namespace

bool Communicator::try_progress() noexcept {
  const auto wanted = [this] {
    return pending_.load(std::memory_order_acquire) != 0 || settling_.load(std::memory_order_acquire);
  };
  if (!wanted()) return false;
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return true;
  if (!wanted()) return false;
  if (settling_.load(std::memory_order_relaxed)) {  // what this rank has sent may still be on its way out
    breakdown_.visit(true);
    progress_ports(true);
    breakdown_.visit(false);
    return true;
  }
  const Hold hold(*this, std::move(lock));
  if (breakdown_.pending()) return true;
  breakdown_.visit(true);
  try {
    progress();
    look(false);
  } catch (...) {  // out of memory: its own thread comes to it again
  }
  breakdown_.visit(false);
  if (breakdown_.pending() && !threaded_ && !failure_thread_.joinable()) {
    try {
      failure_thread_ = std::thread([this] { carry_out_unless_inside(); });
    } catch (const std::exception&) {  // no thread is to be had: left to its own
    }
  }
  return operations_.pending() != 0;
}

// ---- Operations --------------------------------------------------------------------------------------------

bool Communicator::forked() const { return fork_generation_ != fork_generation(); }

tutti_status Communicator::collective(const Shape& shape, const HostBuffers& buffers, const tutti_options* options,
                                      tutti_request** request, const BlockTable* blocks) {
  tutti_request* pending = nullptr;
  {
    Hold hold(*this);
    if (open_group_)
      return add_to_group({{shape, buffers.in, buffers.out}, buffers.factor, false, blocks}, options, request);
    // Calls that never wait would otherwise never look around.
    constexpr uint64_t calls_per_look = 256;
    if (breakdown_.pending() || waiter_.is_due(calls_per_look)) look_around();
    breakdown_.require_none();
    Plan* plan = plans_.recall(shape, blocks);
    if (!plan) plan = &breakdown_.or_tell([&]() -> Plan& { return plans_.find(shape, blocks); });
    if (persistent(options)) {
      auto made = breakdown_.or_tell([&] { return operations_.make<HostCollective>(true, timeout(options)); });
      *request = &Operations::keep(std::move(made), *plan, buffers);
      return TUTTI_OK;
    }
    if (call_check_->has_news()) operations_.hear_news(call_of(*plan, operations_.next_sequence()));
    if (!request && !hold.lock()) {
      tutti_request& direct = operations_.begin_direct(*plan, buffers, timeout(options));
      run_directly(direct);
      return result_of(direct);
    }
    pending = &operations_.begin(
        breakdown_.or_tell([&] { return operations_.make<HostCollective>(true, timeout(options)); }), *plan, buffers);
    progress();
    if (!pending->complete.load(std::memory_order_relaxed)) pending->collective().begun_ticks = ticks();
  }
  if (!request) return wait_for(*pending);
  *request = pending;
  return TUTTI_OK;
}

// The beginning of a call that may be made of any kind. The engine is held.
void Communicator::require_sound() {
  if (breakdown_.pending()) look_around();
  breakdown_.require_none();
}

// The first call on device memory: streams wait for bytes while the application does something else, so somebody has to
// move them. The caller holds the lock.
void Communicator::require_mover() {
  if (threaded_ || !streams_->has_channels()) return;
  breakdown_.require_none();
  breakdown_.or_tell([this] { begin_progress_thread(); });
}

tutti_status Communicator::in_stream(StreamCall call, std::span<const Transfer> transfers, const tutti_options* options,
                                     tutti_request** request, const BlockTable* blocks) {
  if (open_group_) return add_to_group({call, {}, true, blocks}, options, request);
  if (!threaded_ && streams_->has_channels()) {
    const Hold hold(*this, std::unique_lock(mutex_));
    require_mover();
  }
  const Hold hold(*this);
  require_sound();
  call.timeout_ns = timeout(options);
  if (persistent(options)) return keep_in_stream(call, transfers, blocks, *request);
  if (transfers.empty())
    streams_->begin(call, blocks, {.request = request});
  else
    streams_->begin(call, transfers, {.request = request});
  return TUTTI_OK;
}

// ---- Sends and receives ------------------------------------------------------------------------------------

tutti_status Communicator::exchange(const char* name, std::span<const Transfer> transfers, const StreamCall& call,
                                    const tutti_options* options, tutti_request** request) {
  if (open_group_) return add_to_group(transfers, call, options, request);
  return std::ranges::any_of(transfers, &Transfer::on_stream) ? in_stream(call, transfers, options, request)
                                                              : exchange_on_host(name, transfers, options, request);
}

// A blocking call that is alone waits inside, as a collective does: it takes no lock, and its request returns by
// itself.
tutti_status Communicator::exchange_on_host(const char* name, std::span<const Transfer> transfers,
                                            const tutti_options* options, tutti_request** request) {
  check_own(transfers, rank_);
  tutti_request* pending = nullptr;
  {
    Hold hold(*this);
    require_sound();
    const bool alone = !request && !hold.lock();
    auto made = operations_.make<TransferGroup>(!alone, timeout(options));
    made->service = transfer_service(name, transfers);
    if (persistent(options)) {
      made->group().given.assign(transfers.begin(), transfers.end());
      *request = &Operations::keep(std::move(made));
      return TUTTI_OK;
    }
    pending = &begin_group(std::move(made), transfers);
    if (alone) {
      for (uint32_t fruitless = 0; !pending->complete.load(std::memory_order_relaxed);) wait_on(*pending, fruitless);
      return result_of(*pending);
    }
  }
  if (!request) return wait_for(*pending);
  *request = pending;
  return TUTTI_OK;
}

tutti_request& Communicator::begin_group(Operations::Request made, std::span<const Transfer> transfers,
                                         tutti_request* group_of_calls) {
  operations_.begin(*made, transfers);
  if (group_of_calls) Operations::join(*made, *group_of_calls, std::nullopt);
  tutti_request& request = operations_.pend(std::move(made));
  std::vector<Transfer>& group = request.group().transfers;
  try {
    for_each_own(group, rank_, [this](Transfer& send, Transfer& receive) {
      if (send.bytes) std::memcpy(receive.data, send.data, send.bytes);
      for (Transfer* one : {&send, &receive}) operations_.ended(*one, TUTTI_OK, {});
    });
    operations_.tell(group, point_to_point_);
  } catch (const std::exception& problem) {
    breakdown_.fail(problem);
  }
  if (breakdown_.begun())  // those that did not begin
    for (Transfer& transfer : group)
      if (!transfer.done) operations_.ended(transfer, async_error(), breakdown_.text());
  operations_.all_begun(request);
  progress();
  return request;
}

// The row of the transports that carry these.
uint32_t Communicator::transfer_service(const char* name, std::span<const Transfer> transfers) {
  carriers_.clear();
  for (const Transfer& transfer : transfers) {
    if (transfer.any_peer || transfer.peer == rank_) continue;
    const char* const carrier = fabric_.link(transfer.peer).port->api->name;
    if (!std::ranges::count(carriers_, carrier)) carriers_.push_back(carrier);
  }
  return reports_->transfer_row(name, nullptr, carriers_);
}

tutti_status Communicator::probe(tutti_envelope& envelope, uint64_t timeout_ns) {
  const uint64_t deadline = deadline_after(timeout_ns);
  const Attendance here(*this);
  for (uint32_t fruitless = 0;;) {
    Hold hold(*this);
    require_sound();
    point_to_point_.watch(true);
    const bool moved = progress();
    point_to_point_.watch(false);
    breakdown_.require_none();
    if (const auto found = point_to_point_.probe(envelope)) {
      envelope = *found;
      return TUTTI_OK;
    }
    if (deadline != Waiter::for_ever && clock_ns() >= deadline) return TUTTI_AGAIN;
    if (moved) {
      fruitless = 0;
      continue;
    }
    open_to_others_ = hold.lock();
    waiter_.pause(fruitless, deadline);
    open_to_others_ = nullptr;
  }
}

// ---- Operators of the application --------------------------------------------------------------------------

uint32_t Communicator::make_op(UserOperator op) {
  const Hold hold(*this);
  return operators_.add(std::move(op));
}

void Communicator::free_op(uint32_t op) {
  const Hold hold(*this);
  if (open_group_)
    throw Failure(TUTTI_INVALID_USAGE,
                  "op_free: a group of calls is open, which may use the operator: end or cancel it "
                  "first");
  if (!plans_.drop(op))
    throw Failure(TUTTI_INVALID_USAGE, fmt::format("op_free: operator \"{}\" is used by an operation that has not "
                                                   "ended: wait for its request first, and free a persistent request",
                                                   operators_.find(op)->name));
  operators_.remove(op);
}

// ---- Progress ----------------------------------------------------------------------------------------------

bool Communicator::progress_ports(bool all) try {
  bool moved = fabric_.progress(all, *this);
  if (all && !breakdown_.begun())
    moved |= fabric_.deliver_pair_messages(
        [this](uint32_t from, std::string_view bytes) { departures_.hear(from, bytes); });
  stirred_ |= moved;
  if (!breakdown_.pending() || breakdown_.begun()) return moved;
  breakdown_.carry_out();
  return true;
} catch (const std::exception& problem) {
  breakdown_.fail(problem);
  return true;
}

bool Communicator::progress() {
  if (breakdown_.begun()) return false;
  if (breakdown_.pending()) {
    breakdown_.carry_out();
    return true;
  }
  try {
    const bool moved = advance_all();
    stirred_ |= moved;
    return moved;
  } catch (const std::exception& problem) {
    breakdown_.fail(problem);
    return true;
  }
}

bool Communicator::advance_all() {
  bool moved = false;
  const auto advance_transfers = [this] { return point_to_point_.advance([](Link& link) { return connect(link); }); };
  if (!operations_.empty()) moved |= operations_.advance();
  if (breakdown_.begun()) return true;
  if (point_to_point_.active()) moved |= advance_transfers();
  const bool streams = streams_ && streams_->pending();
  if (streams) moved |= streams_->advance();
  moved |= progress_ports(point_to_point_.active() || streams || !operations_.all_launched());
  if (point_to_point_.replies()) moved |= advance_transfers();
  return moved;
}

void Communicator::look(bool waits) {
  breakdown_.carry_out();
  if (breakdown_.begun()) return;
  progress_ports(true);
  if (waits) operations_.record_awaited(awaited_);
  const uint64_t now = clock_ns();
  if (waits) reports_->recorder().note_site(now);
  if (now < next_look_ns_) return;
  next_look_ns_ = now + look_interval_ns;
  breakdown_.hear_others();
  if (!breakdown_.begun() && bootstrap_->control().is_awaited()) hear_who_leaves();
  if (!breakdown_.begun()) check_deadlines(now);
  if (!breakdown_.begun()) departures_.look(now);
}

void Communicator::look_around(bool waits) {
  look(waits);
  ActiveEngines::process().progress_others(this);
}

// ---- Windows -----------------------------------------------------------------------------------------------

tutti_window* Communicator::register_window(void* address, uint64_t bytes, uint32_t flags, uint64_t timeout_ns) {
  const Hold hold(*this, std::unique_lock(mutex_));
  return windows_.add(address, bytes, flags, timeout_ns, [this] { require_mover(); });
}

void Communicator::deregister_window(const tutti_window* window, uint64_t timeout_ns) {
  const Hold hold(*this);
  windows_.remove(window, timeout_ns);
}

// ---- Reports -----------------------------------------------------------------------------------------------

std::string Communicator::topology_text() {
  const Hold hold(*this);
  return topology_.text() + fabric_.refusals_text();
}

std::vector<tutti_service> Communicator::services() {
  const Hold hold(*this);
  return reports_->services();
}

std::vector<tutti_link_traffic> Communicator::traffic() {
  const Hold hold(*this);
  return traffic_rows();
}

std::vector<tutti_link_traffic> Communicator::traffic_rows() const {
  std::vector<tutti_link_traffic> rows = fabric_.traffic();
  if (streams_)
    for (const tutti_link_traffic& row : streams_->traffic()) rows.push_back(row);
  return rows;
}

std::vector<tutti_rail_traffic> Communicator::rails() {
  const Hold hold(*this);
  return fabric_.rails();
}

tutti_plan_facts Communicator::plan_facts(uint32_t collective) {
  const Hold hold(*this);
  return reports_->plan_facts(collective);
}

std::string Communicator::explain(uint32_t collective, uint64_t count, uint32_t dtype) const {
  return core::explain(*selector_, topology_, collective, count, dtype);
}

}  // namespace tutti::core
