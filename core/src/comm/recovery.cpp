// SPDX-License-Identifier: Apache-2.0
#include "comm/recovery.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/communicator_handle.hpp"
#include "comm/progress_engine.hpp"
#include "net/interrupt.hpp"
#include "registry/host.hpp"

namespace tutti::core {

Recovery::Recovery(ProgressEngine& engine) : engine_(engine), base_(engine.base) {}

std::chrono::nanoseconds Recovery::timeout(uint64_t given_ns) const {
  return std::chrono::nanoseconds(given_ns ? given_ns : base_.configuration.connect_timeout_ns);
}

// The ranks of the next communicator agree on the settings of this one.
Configuration Recovery::heritage(const Roster& roster, uint32_t newcomers) const {
  Configuration next = base_.configuration;
  next.progress_thread = engine_.lock.has_thread();
  next.joins = false;
  next.all_gather = nullptr;
  next.rendezvous = roster.place;
  const auto mine = std::lower_bound(roster.members.begin(), roster.members.end(), base_.rank());
  next.rank = static_cast<uint32_t>(mine - roster.members.begin());
  next.nranks = static_cast<uint32_t>(roster.members.size()) + newcomers;
  return next;
}

Membership& Recovery::membership(const char* call) {
  {
    const Hold hold(engine_.lock);
    engine_.look_around();
    if (engine_.breakdown.error() == TUTTI_OK && engine_.operations.pending())
      throw Failure(TUTTI_INVALID_USAGE, fmt::format("{}: {} operations are pending: wait for them, or end them by "
                                                     "tutti_comm_revoke or tutti_comm_abort, first",
                                                     call, engine_.operations.pending()));
  }
  if (!membership_)
    membership_.emplace(base_.control(), base_.rank(), base_.nranks(),
                        [this] { ActiveEngines::process().progress_others(&engine_.lock); });
  return *membership_;
}

std::unique_ptr<tutti_comm> Recovery::shrink(uint64_t timeout_ns) {
  Membership& members = membership("shrink");
  // Each further attempt means that a rank died during the one before.
  for (uint32_t attempt = 0; attempt < base_.nranks(); ++attempt) {
    const Roster roster = members.gather(timeout(timeout_ns), [this] { return base_.bootstrap->next_place(); });
    std::string why;
    if (auto made = make_next(members, roster, 0, timeout_ns, &why)) return made;
    log(TUTTI_LOG_INFO, base_.name(), fmt::format("rank {}: shrink: trying again: {}", base_.rank(), why));
  }
  throw Failure(TUTTI_PEER_FAILED,
                fmt::format("shrink: {} attempts failed, each by the loss of a further rank", base_.nranks()));
}

std::string Recovery::invite(uint64_t timeout_ns) {
  Membership& members = membership("invite");
  invitation_ = members.gather(timeout(timeout_ns), [] { return make_unique_id(); });
  return invitation_.place;
}

std::unique_ptr<tutti_comm> Recovery::grow(const std::string& id, uint32_t newcomers, uint64_t timeout_ns) {
  Membership& members = membership("grow");
  if (id != invitation_.place || id.empty())
    throw Failure(TUTTI_INVALID_ARGUMENT, "grow: this is not the id of this communicator's last tutti_comm_invite");
  if (newcomers == 0 || newcomers > kMaxRanks - base_.nranks())
    throw Failure(TUTTI_INVALID_ARGUMENT,
                  fmt::format("grow: newcomers is {}, expected 1 to {}; without newcomers it is "
                              "tutti_comm_shrink",
                              newcomers, kMaxRanks - base_.nranks()));
  const Roster roster = members.gather(timeout(timeout_ns), [&] { return id; });
  const Roster invited = std::exchange(invitation_, {});
  std::string why;
  if (roster.members.empty() || roster.members[0] != invited.members[0])
    throw Failure(TUTTI_PEER_FAILED, fmt::format("rank {}, to which newcomers connect, has been lost since "
                                                 "tutti_comm_invite: invite them again",
                                                 invited.members[0]));
  if (auto made = make_next(members, roster, newcomers, timeout_ns, &why)) return made;
  throw Failure(TUTTI_PEER_FAILED, fmt::format("grow: not all {} members and {} newcomers came together: {}",
                                               roster.members.size(), newcomers, why));
}

// The communicator of the roster's members and the newcomers, when all members have got it. Making it and saying so
// have one deadline.
std::unique_ptr<tutti_comm> Recovery::make_next(Membership& members, const Roster& roster, uint32_t newcomers,
                                                uint64_t timeout_ns, std::string* why) {
  constexpr std::chrono::seconds last_word(1);
  std::unique_ptr<tutti_comm> made;
  const uint64_t interrupts = Interrupt::count();
  Deadline deadline = base_.configuration.connect_deadline();
  try {
    Configuration next = heritage(roster, newcomers);
    if (timeout_ns) {
      next.connect_timeout_ns = timeout_ns;
      next.connect_timeout_source = CallTimeout::of_the_call;
      deadline = next.connect_deadline();
    }
    // This communicator's control plane knows of what the new one's meeting would wait out.
    const auto hopeless = [&] {
      const std::string obstacle = members.obstacle(roster);
      return obstacle.empty() ? "" : fmt::format("{} ({})", obstacle, base_.name());
    };
    made = std::make_unique<tutti_comm>(std::move(next), Succession{newcomers, hopeless});
    Configuration& settings = made->communicator.load()->base().configuration;
    settings.connect_timeout_ns = base_.configuration.connect_timeout_ns;
    settings.connect_timeout_source = base_.configuration.connect_timeout_source;
  } catch (const std::exception& e) {
    *why = e.what();
  }
  const bool interrupted = Interrupt::count() != interrupts;
  const auto left = std::max<std::chrono::nanoseconds>(deadline.left(), last_word);
  if (members.confirm(roster, made && !interrupted, left)) return made;
  if (made) {
    *why = "another member could not take part";
    made->communicator.load()->abort(interrupted ? Interrupt::reason
                                                 : "went back, since another member could not take part");
    made->communicator.load()->end();
  }
  if (!interrupted) return nullptr;
  base_.control().announce(base_.rank(), TUTTI_ABORTED, Interrupt::reason);  // the others go on without this rank
  throw Failure(TUTTI_ABORTED, fmt::format("rank {} {}", base_.rank(), Interrupt::reason));
}

std::vector<uint32_t> Recovery::lost_ranks() const {
  std::vector<uint32_t> ranks;
  for (const Loss& loss : base_.control().losses())
    if (!loss.innocent) ranks.push_back(loss.rank);
  return ranks;
}

}  // namespace tutti::core
