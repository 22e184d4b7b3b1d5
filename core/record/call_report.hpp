// SPDX-License-Identifier: Apache-2.0
//
// A rank's answer about its calls when the roll is called (bootstrap/control_plane.hpp), and what follows from all
// answers when an operation has not moved for too long: who keeps the others waiting, or whose calls differ.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "record/call.hpp"

namespace tutti::core {

// A call of another communicator that a thread of the rank's process waits in.
struct WaitElsewhere {
  enum WaitKind : uint32_t { collective, receive, send };
  uint64_t communicator = 0;
  uint64_t number = 0;  // of the collective, or of the send or receive
  uint32_t rank = 0;    // this rank's number there
  uint32_t kind = collective;
  uint32_t peer = UINT32_MAX, tag = 0;  // of a send or receive; UINT32_MAX: any rank
  bool any_tag = false;                 // of a receive
  std::string text;                     // "all_reduce #1 of world.1 (at train.py:14)"

  static void fields(auto& wire, auto& wait) {
    wire(wait.communicator, wait.number, wait.rank, wait.kind, wait.peer, wait.tag, wait.any_tag,
         Field("call", wait.text));
  }
};
constexpr size_t most_calls_reported = 32, most_waits_reported = 4;

struct CallReport {
  uint64_t issued = 0;           // collectives so far
  uint64_t oldest = UINT64_MAX;  // the first that is not complete; UINT64_MAX: all are
  uint32_t step = 0;             // where that one stands, in its first lane that does
  uint32_t peer = UINT32_MAX;    // whom it waits for there; UINT32_MAX: not known
  uint64_t outside_ns = 0;       // since this rank was last inside Tutti
  std::string site;              // of the call that waits in this communicator: " (at train.py:14)"; "": not known
  std::vector<Call> calls;       // the last ones, in order
  std::vector<WaitElsewhere> elsewhere;

  static void fields(auto& wire, auto& report) {
    wire(report.issued, report.oldest, report.step, report.peer, report.outside_ns, Field("site", report.site),
         Field("calls", report.calls, 0, most_calls_reported),
         Field("waits", report.elsewhere, 0, most_waits_reported));
  }
  // Nothing when the bytes make no sense.
  static std::optional<CallReport> read(std::string_view bytes);
  const Call* find(uint64_t sequence) const;
};

// The first call that some rank made otherwise than this one, of those that are known. `reports` are by rank; nothing:
// no answer.
std::optional<CallDifference> first_difference(uint32_t rank, const std::vector<std::optional<CallReport>>& reports);

struct Stall {
  std::optional<uint32_t> culprit;
  bool mismatch = false;  // the culprit's calls differ
  std::string text;       // with a culprit it goes on after "rank 3 "; "": the answers say nothing
};
// Does a call that another rank waits in elsewhere wait for this rank?
using WaitsForMe = std::function<bool(const WaitElsewhere&)>;
// Why operation `sequence` of rank `rank` has not moved for `waited_ns`. `reports` are by rank; nothing: no answer.
Stall explain_stall(uint32_t rank, uint64_t sequence, uint64_t waited_ns,
                    const std::vector<std::optional<CallReport>>& reports, const WaitsForMe& waits_for_me);
// Why a send to `peer`, or a receive from it, has not moved. It has no culprit.
Stall explain_transfer(uint32_t rank, uint32_t peer, const std::vector<std::optional<CallReport>>& reports,
                       const WaitsForMe& waits_for_me);

// The first difference between the calls that ranks made before all of them destroyed the communicator. `reports` are
// by rank; nothing: one that makes no sense. `odd`: a rank that made other calls than rank 0. The same on all ranks.
CallDifference explain_end(uint32_t odd, const std::vector<std::optional<CallReport>>& reports);

}  // namespace tutti::core
