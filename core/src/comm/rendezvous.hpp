// SPDX-License-Identifier: Apache-2.0
//
// How the ranks of a communicator meet: for the first time, as its configuration says, and later in the middle of
// calls. The control plane waits in a thread of its own then, so this one moves what is pending: peers may need that to
// come.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/wire.hpp"
#include "bootstrap/bootstrap.hpp"
#include "comm/breakdown.hpp"
#include "comm/configuration.hpp"
#include "comm/waiter.hpp"
#include "record/flight_recorder.hpp"

namespace tutti::core {

struct Foundation;

// Advance knowledge of a communicator that follows another one (shrink, grow).
struct Succession {
  uint32_t newcomers = 0;                           // of the ranks, those that come with TUTTI_COMM_JOIN
  std::function<std::string()> hopeless = nullptr;  // why not all can come, or ""
};

// The expected meeting, for the flight recorder, before the ranks have met. Errors are left to meet().
FlightRecorder::Meeting expected_meeting(const Configuration& configuration);

// Returns when all ranks have met. The deadline begins anew behind a function of the application. Throws Failure.
std::unique_ptr<Bootstrap> meet(const Configuration& configuration, const Succession& succession, Deadline& deadline);

// A call in which the ranks wait for each other.
struct JointCall {
  std::string what;  // the same on all ranks, for gather()
  Patience& patience;
  std::optional<uint64_t> sequence = {};  // of a collective
};

// A rank's word in a gather of all: the call that it is in, and what it brings.
struct JointWord {
  std::string call;
  std::string_view bytes;

  static void fields(auto& wire, auto& word) { wire(Field("call", word.call), word.bytes); }
};
constexpr const char* destroy_call = "tutti_comm_destroy";

class Meetings {
 public:
  // While `excused` says true a wait has no limit.
  Meetings(Waiter& waiter, Breakdown& breakdown, Foundation& base, std::function<bool()> excused)
      : waiter_(waiter), breakdown_(breakdown), base_(base), excused_(std::move(excused)) {}

  // Until other ranks have come as far. `absent`: who has not, to be named at the deadline. Throws Failure.
  void await(const JointCall& meeting, const std::function<bool()>& enough,
             const std::function<std::vector<uint32_t>()>& absent = nullptr);
  // Returns the bytes of each rank, by rank. Throws Failure, also where the ranks make different calls.
  std::vector<std::string> gather(const JointCall& meeting, const std::string& mine);

 private:
  Cause late(const JointCall& meeting, const std::vector<uint32_t>& absent) const;

  Waiter& waiter_;
  Breakdown& breakdown_;
  Foundation& base_;
  const std::function<bool()> excused_;
};

}  // namespace tutti::core
