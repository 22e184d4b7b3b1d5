// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>

#include <algorithm>

#include "api/fork_generation.hpp"
#include "bootstrap/failure.hpp"
#include "comm/communicator_hold.hpp"
#include "plugins/host.hpp"

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
    look();
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

tutti_status Communicator::collective(const Shape& shape, const void* in, void* out, const tutti_options* options,
                                      tutti_request** request) {
  const Hold hold(*this);
  // Calls that never wait would otherwise never look around.
  constexpr uint64_t calls_per_look = 256;
  if (breakdown_.pending() || waiter_.is_due(calls_per_look)) look_around();
  breakdown_.require_none();
  Plan* plan = plans_.recall(shape);
  if (!plan) plan = &or_tell([&]() -> Plan& { return plans_.find(shape); });
  if (call_check_.has_news()) hear_news(call_of(*plan, operations_.next_sequence()));
  if (!request) {
    tutti_request& direct = operations_.begin_direct(*plan, in, out, timeout(options));
    run_directly(direct);
    return result_of(direct);
  }
  *request = &operations_.begin(or_tell([&] { return operations_.make<HostCollective>(true, timeout(options)); }),
                                *plan, in, out);
  progress();
  return TUTTI_OK;
}

// Others have told which calls they make. A difference ends the communicator before this rank's call begins.
void Communicator::hear_news(const Call& mine) {
  if (const auto difference = call_check_.compare_news(mine))
    breakdown_.fail({TUTTI_MISMATCH, difference->culprit, difference->reason});
  breakdown_.require_none();
}

bool Communicator::progress_ports(bool all) try {
  bool moved = fabric_.progress(all, *this);
  if (all && !breakdown_.begun()) moved |= fabric_.deliver_pair_messages();
  if (!breakdown_.pending() || breakdown_.begun()) return moved;
  breakdown_.carry_out();
  return true;
} catch (const std::exception& problem) {
  breakdown_.fail(cause_of(problem));
  return true;
}

bool Communicator::progress() {
  if (breakdown_.begun()) return false;
  if (breakdown_.pending()) {
    breakdown_.carry_out();
    return true;
  }
  try {
    return advance_all();
  } catch (const std::exception& problem) {
    breakdown_.fail(cause_of(problem));
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
  if (streams) moved |= advance_streams();
  moved |= progress_ports(point_to_point_.active() || streams || !operations_.all_launched());
  if (point_to_point_.replies()) moved |= advance_transfers();
  return moved;
}

void Communicator::look() {
  breakdown_.carry_out();
  if (breakdown_.begun()) return;
  progress_ports(true);
  const uint64_t now = clock_ns();
  if (now < next_look_ns_) return;
  next_look_ns_ = now + look_interval_ns;
  breakdown_.hear_others();
  if (!breakdown_.begun()) check_deadlines(now);
}

void Communicator::look_around() {
  look();
  ActiveEngines::process().progress_others(this);
}

// ---- Reports -----------------------------------------------------------------------------------------------

std::vector<tutti_service> Communicator::services() {
  const Hold hold(*this);
  return reports_->services();
}

std::vector<tutti_link_traffic> Communicator::traffic() {
  const Hold hold(*this);
  std::vector<tutti_link_traffic> rows = fabric_.traffic();
  if (streams_)
    for (const StreamRunner::Traffic& row : streams_->traffic())
      rows.push_back({row.carrier, row.peer, 0, row.sent, row.received});
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
