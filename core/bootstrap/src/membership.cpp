// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/membership.hpp"

#include <poll.h>

#include <algorithm>

#include "base/make_failure.hpp"
#include "base/rank_list.hpp"
#include "base/wire.hpp"
#include "net/interrupt.hpp"

namespace tutti::core {
namespace {

// The interval of roll calls of the awaited ranks, and the time that they have to answer.
constexpr std::chrono::seconds kRollEvery(2), kRollLimit(1);
// The deciding rank may decide this much later than the deadline of the others.
constexpr std::chrono::seconds kDecisionLate(5);
constexpr int kWaitMs = 10;

}  // namespace

Membership::Membership(ControlPlane& control, uint32_t rank, uint32_t nranks, std::function<void()> idle)
    : control_(control), rank_(rank), nranks_(nranks), idle_(std::move(idle)) {}

Roster Membership::gather(std::chrono::nanoseconds timeout, const std::function<std::string()>& make_place) {
  const Deadline deadline(timeout);
  Deadline next_roll(kRollEvery);
  rounds_.erase(rounds_.begin(), rounds_.lower_bound(round_));
  VotingRound& round = rounds_[++round_];
  silent_.clear();
  round.joined.insert(rank_);
  say(MembershipNotice::What::join, false);
  // A decision that is on its way may count on this rank: its no lets the members go on.
  const auto give_up = [&](tutti_status status, const std::string& why) {
    say(MembershipNotice::What::vote, false);
    throw Failure(status, why);
  };
  while (true) {
    // The lowest that lives, seen before absorb(): a rank's decision comes before its end.
    uint32_t first = 0;
    while (first < rank_ && out(first)) ++first;
    absorb();
    for (const auto& [number, later] : rounds_)
      if (number >= round_ && later.decision &&
          !std::binary_search(later.decision->members.begin(), later.decision->members.end(), rank_))
        give_up(TUTTI_PEER_FAILED,
                fmt::format("rank {} came too late: {} went on without it", rank_, rank_list(later.decision->members)));
    if (round.decision) return *round.decision;
    std::set<uint32_t> awaited;
    for (uint32_t r = 0; r < nranks_; ++r)
      if (!out(r) && !round.joined.count(r)) awaited.insert(r);
    if (first == rank_ && (awaited.empty() || deadline.passed())) return decide(make_place);
    if (deadline.passed() && Deadline::Clock::now() > deadline.at() + kDecisionLate)
      give_up(TUTTI_TIMEOUT, fmt::format("rank {} did not say within {} who goes on; rank {} waits for it", first,
                                         deadline.text(), rank_));
    if (next_roll.passed()) {
      awaited.insert(first);
      call_the_roll(awaited);
      next_roll = Deadline(kRollEvery);
    }
    wait();
  }
}

Roster Membership::decide(const std::function<std::string()>& make_place) {
  VotingRound& round = rounds_[round_];
  Roster roster;
  for (const uint32_t r : round.joined)
    if (!out(r)) roster.members.push_back(r);
  roster.place = make_place();
  round.decision = roster;
  control_.send_notice(NoticeKind::membership,
                       encode(MembershipNotice{MembershipNotice::What::decision, round_, roster, false}));
  return roster;
}

bool Membership::confirm(const Roster& roster, bool made, std::chrono::nanoseconds timeout) {
  say(MembershipNotice::What::vote, made);
  const uint32_t first = roster.members.front();
  bool result = rank_ == first && count_votes(roster, Deadline(timeout));
  const std::map<uint32_t, bool>& words = rounds_[round_].words;
  for (const uint32_t member : roster.members) {
    if (member == rank_) break;
    while (true) {
      // Asked before absorb(): a member's word comes before its end.
      const bool gone = control_.is_gone(member);
      absorb();
      if (gone || refused(roster) || words.count(member)) break;
      wait();
    }
    if (const auto word = words.find(member); word != words.end()) result = word->second;
  }
  if (refused(roster)) result = false;
  say(MembershipNotice::What::word, result);
  return result;
}

std::string Membership::obstacle(const Roster& roster) {
  const auto gone = std::ranges::find_if(roster.members, [&](uint32_t member) { return control_.is_gone(member); });
  absorb();
  if (gone != roster.members.end()) return fmt::format("the member that was rank {} is lost", *gone);
  return refused(roster) ? "another member could not take part" : "";
}

bool Membership::refused(const Roster& roster) {
  const VotingRound& round = rounds_[round_];
  const auto is_no = [](const std::map<uint32_t, bool>& said, uint32_t member) {
    const auto found = said.find(member);
    return found != said.end() && !found->second;
  };
  return is_no(round.words, roster.members.front()) ||
         std::ranges::any_of(roster.members, [&](uint32_t member) { return is_no(round.votes, member); });
}

bool Membership::count_votes(const Roster& roster, const Deadline& deadline) {
  const std::map<uint32_t, bool>& votes = rounds_[round_].votes;
  while (true) {
    absorb();
    if (refused(roster) || std::ranges::any_of(roster.members, [&](uint32_t m) { return control_.is_gone(m); }))
      return false;
    const bool all = std::ranges::all_of(roster.members, [&](uint32_t member) { return votes.count(member) != 0; });
    if (all || deadline.passed()) return all;
    wait();
  }
}

void Membership::say(MembershipNotice::What what, bool made) {
  if (what == MembershipNotice::What::vote) rounds_[round_].votes[rank_] = made;
  control_.send_notice(NoticeKind::membership, encode(MembershipNotice{what, round_, {}, made}));
}

void Membership::absorb() {
  for (const Notice& notice : control_.take_notices(NoticeKind::membership)) take(notice);
}

void Membership::take(const Notice& notice) try {
  MembershipNotice what = decode_membership(notice.bytes, nranks_);
  if (what.round < round_) return;
  VotingRound& round = rounds_[what.round];
  switch (what.what) {
    case MembershipNotice::What::join:
      round.joined.insert(notice.rank);
      return;
    case MembershipNotice::What::decision:
      if (!round.decision) round.decision = std::move(what.roster);
      return;
    case MembershipNotice::What::vote:
      round.votes[notice.rank] = what.made;
      return;
    case MembershipNotice::What::word:
      round.words[notice.rank] = what.made;
      return;
  }
} catch (const Failure& failure) {
  control_.announce(notice.rank, TUTTI_MISMATCH, "broke the protocol of shrinking: " + failure.text);
}

void Membership::wait() {
  {
    const ControlPlane::Sleep sleep(control_);
    pollfd waiting = {sleep.fd(), POLLIN, 0};
    ::poll(&waiting, 1, kWaitMs);
  }
  if (Interrupt::is_wanted()) {  // the others go on without this rank
    say(MembershipNotice::What::vote, false);
    control_.announce(rank_, TUTTI_ABORTED, Interrupt::reason);
    throw Failure(TUTTI_ABORTED, fmt::format("rank {} {}", rank_, Interrupt::reason));
  }
  if (idle_) idle_();
}

void Membership::call_the_roll(const std::set<uint32_t>& awaited) {
  const auto states = control_.roll_call(kRollLimit);
  for (const uint32_t r : awaited) {
    if (states[r])
      silent_.erase(r);
    else
      silent_.insert(r);
  }
}

MembershipNotice decode_membership(std::string_view bytes, uint32_t nranks) {
  auto notice = decode<MembershipNotice>(bytes, "membership notice");
  if (const auto what = static_cast<uint32_t>(notice.what); what < 1 || what > 4)
    throw make_failure(TUTTI_MISMATCH, "a membership notice of kind {}", what);
  const std::vector<uint32_t>& members = notice.roster.members;
  if (members.size() > nranks) throw make_failure(TUTTI_MISMATCH, "{} members of {}", members.size(), nranks);
  if ((!members.empty() && members.back() >= nranks) ||
      std::ranges::adjacent_find(members, std::greater_equal<>()) != members.end())
    throw Failure(TUTTI_MISMATCH, "an ill list of members");
  return notice;
}

}  // namespace tutti::core
