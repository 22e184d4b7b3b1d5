// SPDX-License-Identifier: Apache-2.0
//
// A TCP meeting is a star: rank 0 listens (the hub), and all others (spokes) are connected to it while they meet and
// link the control plane. The first failure ends the meeting for all of them.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "bootstrap/deadline.hpp"
#include "handshake.hpp"
#include "links.hpp"
#include "make_failure.hpp"
#include "meeting.hpp"
#include "wire.hpp"

namespace tutti::core {

// Rank 0. Returns when all ranks have joined, with each rank's contacts. Strangers and slow handshakes delay no rank.
// Where the place is Trust::stale, a rank of another world is turned away like a stranger and does not end the meeting.
std::unique_ptr<Meeting> open_hub(const Rendezvous& rendezvous, MeetingPlace place, Descriptor listener,
                                  const OpenDoor& door, const Deadline& deadline);
// Another rank, which looks for rank 0 at `where`. Returns when all ranks have joined.
std::unique_ptr<Meeting> join_hub(const Rendezvous& rendezvous, const std::string& where, const FindPlace& find,
                                  const OpenDoor& door, const Deadline& deadline);

class TcpStar : public Meeting, protected Links {
 public:
  std::string problem() override {
    step(0);
    return failure_ ? failure_->text : "";
  }
  Traffic traffic() const override { return all_traffic(); }
  void fail(const std::string& reason) noexcept override try {
    say_last(FrameKind::error, encode_error(lost(rank_, reason)));
  } catch (...) {
  }

 protected:
  static constexpr std::chrono::milliseconds kLastWords{500};

  TcpStar(uint32_t rank, uint32_t nranks, std::string secret, uint64_t longest, BootstrapLog log)
      : Meeting(rank, nranks, std::move(secret)), Links(me(), longest, 1 << 20, std::move(log)) {}

  // For destructors. Does nothing once the others were told otherwise.
  void say_goodbye() noexcept try {
    say_last(FrameKind::goodbye, "");
  } catch (...) {  // the others then see an end without a goodbye
  }

  // Sends what was put; false: not all by the deadline.
  bool flush(const Deadline& deadline) {
    while (!unsent().empty()) {
      if (deadline.passed()) return false;
      step(deadline.poll_ms(100));
    }
    return true;
  }

  static Failure lost(uint32_t rank, const std::string& reason) {
    return make_failure(TUTTI_PEER_FAILED, "rank {} {}", rank, reason);
  }

  std::optional<Failure> failure_;  // the first

 private:
  void say_last(FrameKind kind, const std::string& payload) {
    if (std::exchange(said_last_, true)) return;
    broadcast(kind, payload);
    flush(Deadline(kLastWords));
  }

  bool said_last_ = false;
};

}  // namespace tutti::core
