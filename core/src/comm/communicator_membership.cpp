// SPDX-License-Identifier: Apache-2.0
//
// Recovery from a failure: a new communicator of the ranks that live, and of newcomers.
#include <fmt/format.h>

#include "bootstrap/membership.hpp"
#include "comm/communicator_handle.hpp"
#include "comm/communicator_hold.hpp"
#include "net/interrupt.hpp"
#include "registry/host.hpp"

namespace tutti::core {

// The ranks of the next communicator agree on the settings of this one.
Configuration Communicator::heritage(const Roster& roster, uint32_t newcomers) const {
  Configuration next = configuration_;
  next.progress_thread = threaded_;
  next.joins = false;
  next.all_gather = nullptr;
  next.rendezvous = roster.place;
  const auto mine = std::lower_bound(roster.members.begin(), roster.members.end(), rank_);
  next.rank = static_cast<uint32_t>(mine - roster.members.begin());
  next.nranks = static_cast<uint32_t>(roster.members.size()) + newcomers;
  return next;
}

Membership& Communicator::membership(const char* call) {
  {
    const Hold hold(*this);
    look_around();
    if (async_error() == TUTTI_OK && operations_.pending())
      throw Failure(TUTTI_INVALID_USAGE, fmt::format("{}: {} operations are pending: wait for them, or end them by "
                                                     "tutti_comm_revoke or tutti_comm_abort, first",
                                                     call, operations_.pending()));
  }
  if (!membership_)
    membership_ = std::make_unique<Membership>(bootstrap_->control(), rank_, nranks_,
                                               [this] { ActiveEngines::process().progress_others(this); });
  return *membership_;
}

std::unique_ptr<tutti_comm> Communicator::shrink(uint64_t timeout_ns) {
  Membership& members = membership("shrink");
  const std::chrono::nanoseconds timeout(timeout_ns ? timeout_ns : configuration_.connect_timeout_ns);
  // Each further attempt means that a rank died during the one before.
  for (uint32_t attempt = 0; attempt < nranks_; ++attempt) {
    const Roster roster = members.gather(timeout, [this] { return bootstrap_->next_place(); });
    std::string why;
    if (auto made = make_next(members, roster, 0, timeout_ns, &why)) return made;
    log(TUTTI_LOG_INFO, name(), fmt::format("rank {}: shrink: trying again: {}", rank_, why));
  }
  throw Failure(TUTTI_PEER_FAILED,
                fmt::format("shrink: {} attempts failed, each by the loss of a further rank", nranks_));
}

std::string Communicator::invite(uint64_t timeout_ns) {
  Membership& members = membership("invite");
  invitation_ = members.gather(std::chrono::nanoseconds(timeout_ns ? timeout_ns : configuration_.connect_timeout_ns),
                               [] { return make_unique_id(); });
  return invitation_.place;
}

std::unique_ptr<tutti_comm> Communicator::grow(const std::string& id, uint32_t newcomers, uint64_t timeout_ns) {
  Membership& members = membership("grow");
  const std::chrono::nanoseconds timeout(timeout_ns ? timeout_ns : configuration_.connect_timeout_ns);
  if (id != invitation_.place || id.empty())
    throw Failure(TUTTI_INVALID_ARGUMENT, "grow: this is not the id of this communicator's last tutti_comm_invite");
  if (newcomers == 0 || newcomers > kMaxRanks - nranks_)
    throw Failure(TUTTI_INVALID_ARGUMENT,
                  fmt::format("grow: newcomers is {}, expected 1 to {}; without newcomers it is "
                              "tutti_comm_shrink",
                              newcomers, kMaxRanks - nranks_));
  const Roster roster = members.gather(timeout, [&] { return id; });
  const Roster invited = std::exchange(invitation_, {});
  std::string why;
  if (roster.members.empty() || roster.members[0] != invited.members[0])
    throw Failure(TUTTI_PEER_FAILED, fmt::format("rank {}, where the newcomers would come, has been lost since "
                                                 "tutti_comm_invite: invite them again",
                                                 invited.members[0]));
  if (auto made = make_next(members, roster, newcomers, timeout_ns, &why)) return made;
  throw Failure(TUTTI_PEER_FAILED, fmt::format("grow: not all {} members and {} newcomers came together: {}",
                                               roster.members.size(), newcomers, why));
}

// The communicator of the roster's members and the newcomers, when all members have got it. Making it and saying so
// have one deadline.
std::unique_ptr<tutti_comm> Communicator::make_next(Membership& members, const Roster& roster, uint32_t newcomers,
                                                    uint64_t timeout_ns, std::string* why) {
  constexpr std::chrono::seconds last_word(1);
  std::unique_ptr<tutti_comm> made;
  const uint64_t interrupts = Interrupt::count();
  Deadline deadline = configuration_.connect_deadline();
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
      return obstacle.empty() ? "" : fmt::format("{} ({})", obstacle, name());
    };
    made = std::make_unique<tutti_comm>(std::move(next), Succession{newcomers, hopeless});
    Configuration& settings = made->communicator.load()->configuration_;
    settings.connect_timeout_ns = configuration_.connect_timeout_ns;
    settings.connect_timeout_source = configuration_.connect_timeout_source;
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
  bootstrap_->control().announce(rank_, TUTTI_ABORTED, Interrupt::reason);  // the others go on without this rank
  throw Failure(TUTTI_ABORTED, fmt::format("rank {} {}", rank_, Interrupt::reason));
}

std::vector<uint32_t> Communicator::lost_ranks() const {
  std::vector<uint32_t> ranks;
  for (const Loss& loss : bootstrap_->control().losses())
    if (!loss.innocent) ranks.push_back(loss.rank);
  return ranks;
}

}  // namespace tutti::core
