// SPDX-License-Identifier: Apache-2.0
//
// One strand of one rank: its communicators, its requests, and what it has to do.
#pragma once

#include <tutti/tutti.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "fuzz/meeting.hpp"
#include "fuzz/player.hpp"
#include "fuzz/work.hpp"

namespace tutti::conformance::fuzz {

// Something that must not be; the text begins with its kind.
struct Finding : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Strand {
 public:
  Strand(const Program& program, const std::string& folder, const Whereabouts& whereabouts, uint32_t rank,
         uint32_t strand);
  Strand(const Strand&) = delete;
  Strand& operator=(const Strand&) = delete;

  // Carries out everything, ends what is pending and destroys the communicators. Throws Finding.
  void run();

 private:
  struct Comm {
    tutti_comm* handle = nullptr;
    std::vector<uint32_t> members;
    uint32_t rank = 0;  // this one's, in the communicator
    std::unique_ptr<CallbackMeeting> callback;
    bool broken = false;
  };
  struct Pending {
    uint32_t event, comm;
    tutti_request* request;
    std::unique_ptr<Work> work;
  };

  void carry_out(const Event& event);
  void make(const Event& event);
  void shrink(const Event& event);
  void destroy(uint32_t comm);
  void start(const Event& event, bool sends);
  void wait(const Event& event);
  void test(const Event& event);
  void fork_child(const Event& event);
  void end_comm(const Event& event);
  // Ends what goes on on other communicators than `but`, unless the program lets it overlap.
  void settle(uint32_t but);
  void finish();

  // Ends the request at `at` by the given way, judges its work, and forgets it.
  void end_pending(size_t at, const std::string& way);
  void end_pending_of(uint32_t comm);
  bool can_end(uint32_t event) const;
  // Judges a call's status: true when it succeeded, false when it was allowed to fail. Throws Finding.
  bool accept(const Event& event, uint32_t comm, tutti_status status, const std::string& text);
  std::optional<size_t> place_of(uint32_t event) const;
  const Event& event_of(uint32_t id) const;

  const Program& program_;
  const Fault fault_;
  const std::string folder_;
  const Whereabouts& whereabouts_;
  const uint32_t rank_, strand_;
  std::map<uint32_t, Comm> comms_;
  std::vector<Pending> pending_;
  std::vector<pid_t> children_;
  std::set<uint32_t> begun_;  // events of this strand so far, on any rank
  std::set<uint32_t> used_;   // communicators with calls since all have settled, on any rank
};

}  // namespace tutti::conformance::fuzz
