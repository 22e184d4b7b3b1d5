// SPDX-License-Identifier: Apache-2.0
//
// The communicator as its streams see it: how a call waits, meets other ranks, becomes a request, and fails. One call
// is under way at a time.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/p2p/transfer.hpp"
#include "engine/plan/plan.hpp"
#include "record/call.hpp"
#include "stream/stream_call.hpp"

namespace tutti::core {

// The state of a rank's streams. During a call it says which ranks a failure concerns.
enum class StreamState {
  idle,
  checks,    // the call may be wrong: this rank
  plans,     // the rank may lack something, and then the others are told; or the call is wrong
  meets,     // the call has begun: all ranks
  opens,     // all ranks; this one waits for peers that come to their first such call
  issues,    // all ranks; the stream may have some of the call's work
  unmapped,  // no call will follow, and nothing of other ranks is mapped any more
};

// "rank 1: ..." of the first rank that says why it refuses; "": none does.
inline std::string first_refusal(const std::vector<std::string>& refusals) {
  for (size_t r = 0; r < refusals.size(); ++r)
    if (!refusals[r].empty()) return fmt::format("rank {}: {}", r, printable(refusals[r], longest_message));
  return {};
}

class StreamComm {
 public:
  // A call begins. From here on nothing of the one before is used.
  virtual void open(uint64_t timeout_ns, const StreamAsker& asker) = 0;
  // Advances all that is pending.
  virtual void progress() = 0;
  // One turn of a wait: the same, and passes some time. False: nothing has moved for the call's timeout in turns that
  // were not excused. Throws Failure where the communicator has ended.
  virtual bool turn(bool excused) = 0;
  // Waits until other ranks have come as far. Throws Failure.
  virtual void await(const std::function<bool()>& enough) = 0;
  // All ranks come to the same call with some bytes, and get those of all, by rank. Throws Failure.
  virtual std::vector<std::string> gather(const std::string& mine) = 0;
  // The call is an operation from here on; sets its sequence. In checked mode returns when all ranks have made the same
  // call. `service`: its row in reports. Throws Failure, also where another rank makes another call.
  virtual void enter(Call& mine, const Plan& plan, uint32_t service) = 0;
  // The same for sends and receives. Returns the request's transfers; those to the rank itself are done.
  virtual std::vector<Transfer>& enter(std::span<const Transfer> transfers, uint32_t service) = 0;
  // The operation is in the stream. Returns the request that stands for it, or nullptr where it was recorded for later
  // replays and nothing `runs`.
  virtual tutti_request* pend(uint32_t service, bool runs) = 0;
  // The device has finished, or the communicator has ended. False: the request waits for something else yet.
  virtual bool complete(tutti_request& request) = 0;
  virtual bool has_ended() const = 0;
  // Throws Failure where something is known that ends the communicator, which is carried out before.
  virtual void require_sound() = 0;
  // In the handler of `problem`: the call has failed in this state. Where other ranks are concerned ends the
  // communicator, and throws Failure. `in_use`: the error's words about memory.
  virtual void fail(const std::exception& problem, StreamState at, const std::string& in_use) = 0;
  // At the end of the communicator: advances its transports and the other communicators of the process.
  virtual void drain() = 0;

 protected:
  ~StreamComm() = default;
};

}  // namespace tutti::core
