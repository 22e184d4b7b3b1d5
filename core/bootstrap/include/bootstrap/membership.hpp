// SPDX-License-Identifier: Apache-2.0
//
// Membership: the surviving ranks of a communicator agree, over its control plane, on the members of the next one.
//
//   gather    every rank says that it is here; the lowest that lives decides who is, and where they meet
//   (the members make the next communicator at that place)
//   confirm   every member says whether it has got it; it counts only when all have and live
//
// A death before the first member has heard all makes confirm say no on all others, which gather again. A later death
// is one of the new communicator, which all others have by then.
//
// confirm is an atomic commit that outlives its coordinator. Only the first member can make the result a yes, when all
// have voted yes within the timeout: so a no vote, or its no, settles the result at once. That yes is passed from
// member to member (rotating coordinators, Chandra and Toueg 1996, section 6.1): each states its value after every
// member before it has stated one or has died. Time decides in one place only, how long the first member waits for
// votes; no member that lives is passed over, however slow it is. So all survivors end alike, whatever the timing: the
// lowest live member waits for no member that can still answer, and all after it adopt its value.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "bootstrap/control_plane.hpp"

namespace tutti::core {

struct Roster {
  std::vector<uint32_t> members;  // ranks, ascending
  std::string place;              // a rendezvous; its maker is members[0]
};

// The payload of the notices.
struct MembershipNotice {
  enum class What : uint32_t { join = 1, decision = 2, vote = 3, word = 4 } what = What::join;
  uint64_t round = 0;
  Roster roster;      // decision
  bool made = false;  // vote, word

  static void fields(auto& wire, auto& notice) {
    wire(notice.what, notice.round, notice.made, notice.roster.place, notice.roster.members);
  }
};

// One thread at a time. All ranks call gather and confirm equally often.
class Membership {
 public:
  // `idle` is called now and then while a function waits.
  Membership(ControlPlane& control, uint32_t rank, uint32_t nranks, std::function<void()> idle);

  // Collective over the ranks that live. Waits at most `timeout` for those that live and do not come, shorter for those
  // that do not answer: they are left out. `make_place` is called on the rank that decides. Throws Failure:
  // TUTTI_PEER_FAILED when the others have gone on without this rank.
  Roster gather(std::chrono::nanoseconds timeout, const std::function<std::string()>& make_place);
  // Why not all members can take part, as far as this rank knows; or "".
  std::string obstacle(const Roster& roster);
  // Collective over the members. True on all of them that live, or on none: did all of them make it? `timeout` is how
  // long the first member waits for the others' votes. After its yes a member that lives is waited for without limit.
  bool confirm(const Roster& roster, bool made, std::chrono::nanoseconds timeout);

 private:
  struct VotingRound {
    std::set<uint32_t> joined;
    std::optional<Roster> decision;
    std::map<uint32_t, bool> votes;
    std::map<uint32_t, bool> words;  // what each holds for the result, in its turn
  };
  void absorb();
  void take(const Notice& notice);
  void wait();
  // Ranks that neither answer nor are known to be dead, as of the last roll call.
  void call_the_roll(const std::set<uint32_t>& awaited);
  bool out(uint32_t rank) const { return control_.is_gone(rank) || silent_.count(rank) != 0; }
  Roster decide(const std::function<std::string()>& make_place);
  void say(MembershipNotice::What what, bool made);
  // Has every member got it, as far as this rank knows by the deadline?
  bool count_votes(const Roster& roster, const Deadline& deadline);
  // Is it known that not all have?
  bool refused(const Roster& roster);

  ControlPlane& control_;
  const uint32_t rank_, nranks_;
  const std::function<void()> idle_;
  uint64_t round_ = 0;
  std::map<uint64_t, VotingRound> rounds_;
  std::set<uint32_t> silent_;
};

// Throws Failure{TUTTI_MISMATCH}.
MembershipNotice decode_membership(std::string_view bytes, uint32_t nranks);

}  // namespace tutti::core
