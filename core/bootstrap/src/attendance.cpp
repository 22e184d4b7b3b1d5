// SPDX-License-Identifier: Apache-2.0
#include "attendance.hpp"

#include "base/make_failure.hpp"
#include "base/rank_list.hpp"
#include "bootstrap/authentication.hpp"
#include "packet.hpp"

namespace tutti::core {

Attendance::Attendance(const Rendezvous& rendezvous, MeetingPlace place)
    : rendezvous_(rendezvous),
      place_(std::move(place)),
      nranks_(static_cast<uint32_t>(rendezvous.nranks)),
      members_(nranks_) {
  // All others are connected to rank 0 by the meeting: it needs no address.
  members_[0] = {this_process(), encode(MeshAddress{{}, this_process(), to_hex(random_bytes(16))}), true};
}

uint32_t Attendance::admit(Hello hello, const std::string& from, const std::optional<Loss>& loss) {
  if (hello.rank == kAnyRank) number_newcomer(hello);
  const std::string who = fmt::format("rank {} ({}, {})", hello.rank, hello.who, from);
  const auto refused = [&](Failure why) {
    ++turned_away_;
    last_refused_ = from + ": " + why.text;
    return why;
  };
  const auto mismatch = [&](const std::string& text) { return refused({TUTTI_MISMATCH, "bootstrap: " + text}); };
  if (hello.job != place_.job)
    throw mismatch(fmt::format("{} is of job \"{}\", rank 0 at {} of job \"{}\" (TUTTI_JOB)", who, printable(hello.job),
                               place_.text, place_.job));
  if (loss) {
    ++told_;
    throw refused({TUTTI_PEER_FAILED, loss->text()});
  }
  if (hello.rank == kAnyRank)
    throw mismatch(fmt::format("the {} newcomers that rank 0 at {} awaits are all here; one more ({}) came",
                               rendezvous_.newcomers, place_.text, hello.who));
  if (const std::string why = contradiction(hello, who); !why.empty()) {
    const Failure failure = mismatch(why);
    if (place_.trust != MeetingPlace::Trust::stale) failure_ = failure;
    throw failure;
  }
  ++told_;
  if (hello.problem.empty()) {
    members_[hello.rank] = {hello.who + ", " + from, hello.contact, true};
    ++came_;
  }
  return hello.rank;
}

std::string Attendance::contradiction(const Hello& hello, const std::string& who) const {
  if (hello.nranks != nranks_)
    return fmt::format("rank 0 ({}) has a world of {} ranks, {} one of {}", members_[0].who, nranks_, who,
                       hello.nranks);
  const Member& member = members_[hello.rank < nranks_ ? hello.rank : 0];
  if (!member.came) return "";
  return fmt::format("{} came, but there is already rank {} ({})", who, hello.rank, member.who);
}

// Gives a newcomer the first free one of the last ranks. Without one its rank stays kAnyRank.
void Attendance::number_newcomer(Hello& hello) const {
  for (uint32_t r = nranks_ - rendezvous_.newcomers; r < nranks_; ++r) {
    if (members_[r].came) continue;
    hello.rank = r;
    hello.nranks = nranks_;
    return;
  }
}

std::vector<uint32_t> Attendance::absent() const {
  std::vector<uint32_t> ranks;
  for (uint32_t r = 1; r < nranks_; ++r)
    if (!members_[r].came) ranks.push_back(r);
  return ranks;
}

Contacts Attendance::contacts_of(uint32_t rank) const {
  return {members_[0].contact, members_[(rank + 1) % nranks_].contact};
}

void Attendance::note_turned_away(const std::string& text) {
  ++turned_away_;
  last_turned_away_ = text;
}

std::string Attendance::missing_text() const {
  std::string text = fmt::format("{} of {} did not connect to {}", rank_list(absent()), nranks_, place_.text);
  if (turned_away_ == 0) return text;
  // A rank that was refused gives a better reason than one that only disconnected.
  return text + fmt::format("; {} turned away, for instance from {}",
                            turned_away_ == 1 ? "1 connection was" : fmt::format("{} connections were", turned_away_),
                            last_refused_.empty() ? last_turned_away_ : last_refused_);
}

}  // namespace tutti::core
