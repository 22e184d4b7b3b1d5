// SPDX-License-Identifier: Apache-2.0
//
// Rank 0's list of the ranks that have come to a meeting, and its judgement of those that come. Nothing here does any
// I/O.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "handshake.hpp"

namespace tutti::core {

class Attendance {
 public:
  // `rendezvous` must outlive this. Where the place is Trust::stale, a rank of another world is turned away like a
  // stranger and does not end the meeting.
  Attendance(const Rendezvous& rendezvous, MeetingPlace place);

  const MeetingPlace& place() const { return place_; }
  // Takes in a rank and gives its number; or throws the Failure with which it is refused. `loss`: is a rank lost?
  uint32_t admit(Hello hello, const std::string& from, const std::optional<Loss>& loss);
  // Why the meeting is over: ranks contradict each other.
  const std::optional<Failure>& failure() const { return failure_; }
  // Have all ranks come?
  bool is_complete() const { return came_ == nranks_; }
  std::vector<uint32_t> absent() const;
  // Has every rank come, or been told of a loss?
  bool all_know() const { return told_ + 1 == nranks_; }
  Contacts contacts_of(uint32_t rank) const;
  void note_turned_away(const std::string& text);
  // "rank 1 of 2 did not connect to localhost port 1; 3 connections were turned away, for instance ..."
  std::string missing_text() const;

 private:
  // Why the rank cannot be one of these; "": it can.
  std::string contradiction(const Hello& hello, const std::string& who) const;
  void number_newcomer(Hello& hello) const;

  struct Member {
    std::string who, contact;
    bool came = false;
  };
  const Rendezvous& rendezvous_;
  const MeetingPlace place_;
  const uint32_t nranks_;
  std::vector<Member> members_;  // by rank
  uint32_t came_ = 1;
  uint32_t told_ = 0;  // ranks that know of a loss if there is one: those that came, and those refused for it
  std::optional<Failure> failure_;
  uint64_t turned_away_ = 0;
  std::string last_turned_away_, last_refused_;
};

}  // namespace tutti::core
