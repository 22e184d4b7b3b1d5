// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator.hpp"

#include <fmt/format.h>

#include <utility>

#include "comm/ending.hpp"
#include "engine/choose/explain.hpp"
#include "net/interrupt.hpp"
#include "registry/host.hpp"
#include "topology/topology_file.hpp"

namespace tutti::core {
namespace {

// The foundation outlives a communicator that cannot be made: it tells the others.
std::unique_ptr<Communicator> build(std::shared_ptr<Foundation> base, const std::string& after_rank) {
  std::unique_ptr<Communicator> made;
  try {
    made = std::make_unique<Communicator>(base);
  } catch (const std::exception& problem) {
    base->give_up(problem);
  }
  log(TUTTI_LOG_INFO, base->name(), fmt::format("rank {} of {}{}", base->rank(), base->nranks(), after_rank));
  return made;
}

}  // namespace

std::unique_ptr<Communicator> Communicator::make(Configuration configuration, const Succession& succession) {
  auto base = std::make_shared<Foundation>(std::move(configuration), succession);
  return build(base, "\n" + (base->rank() == 0 ? base->topology.text() : std::string()));
}

std::unique_ptr<Communicator> Communicator::make_part(const Foundation& parent, SplitPart part) {
  return build(std::make_shared<Foundation>(parent, std::move(part)), ", split from " + parent.name());
}

Communicator::Communicator(std::shared_ptr<Foundation> base)
    : base_(std::move(base)),
      engine_(*this, *base_),
      windows_(engine_),
      waits_(engine_),
      calls_(engine_, waits_),
      recovery_(engine_) {
  base_->reports.recorder().enter(TUTTI_FLIGHT_READY);
  base_->control().answer_roll_calls(
      [recorder = base_->reports.shared_recorder()] { return encode(recorder->report()); });
  if (!base_->configuration.progress_thread) return;
  const Hold hold = Hold::locked(engine_.lock);
  engine_.lock.begin_thread();
}

// Where end() was not called, since what follows its making has failed, other threads may still be inside.
Communicator::~Communicator() {
  engine_.lock.close();
  base_->control().answer_roll_calls(nullptr);
}

void Communicator::abort(const std::string& reason) {
  engine_.breakdown.report({TUTTI_ABORTED, rank(), reason});
  // A rank that is ending the communicator waits for other ranks, and learns of the abort when they do. So does a rank
  // whose caller is being asked whether the wait is to end.
  if (Interrupt::is_asking() || !engine_.lock.carry_out_unless_inside())
    base_->control().announce(rank(), TUTTI_ABORTED, reason);
}

void Communicator::give_up(const std::exception& problem) {
  const Hold hold = Hold::visit(engine_.lock);
  engine_.breakdown.fail(problem);
}

tutti_status Communicator::end() { return end_together(engine_, calls_.group()); }

// ---- Reports -----------------------------------------------------------------------------------------------

std::vector<tutti_service> Communicator::services() {
  const Hold hold(engine_.lock);
  return base_->reports.services();
}

std::vector<tutti_link_traffic> Communicator::traffic() {
  const Hold hold(engine_.lock);
  return engine_.traffic();
}

std::vector<tutti_rail_traffic> Communicator::rails() {
  const Hold hold(engine_.lock);
  return base_->fabric.rails();
}

tutti_plan_facts Communicator::plan_facts(uint32_t collective) {
  const Hold hold(engine_.lock);
  return base_->reports.plan_facts(collective);
}

std::string Communicator::explain(uint32_t collective, uint64_t count, uint32_t dtype) const {
  return core::explain(*base_->selector, base_->topology, collective, count, dtype,
                       base_->configuration.order);
}

tutti_host_facts Communicator::host_facts(uint32_t rank) const {
  const Topology& topology = base_->topology;
  return {sizeof(tutti_host_facts),        topology.host_of_rank()[rank],   topology.hosts(),
          topology.rank_on_its_host(rank), topology.ranks_on_host_of(rank), 0};
}

std::string Communicator::topology_text() {
  const Hold hold(engine_.lock);
  return base_->topology.text() + base_->fabric.refusals_text();
}

std::string Communicator::topology_file() const { return core::topology_file(base_->topology); }

}  // namespace tutti::core
