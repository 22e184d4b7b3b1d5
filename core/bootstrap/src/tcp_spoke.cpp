// SPDX-License-Identifier: Apache-2.0
#include <climits>

#include "make_failure.hpp"
#include "tcp_star.hpp"

namespace tutti::core {
namespace {

constexpr uint64_t kMaxFromHub = 64 << 10;  // two contacts, or a text
// After the deadline rank 0 has this long to say which ranks are missing.
constexpr std::chrono::milliseconds kWhoLimit(1000);
// The first attempt at each of several addresses takes at most this long.
constexpr std::chrono::milliseconds kFirstAttemptAtHub(2000);

class TcpSpoke final : public TcpStar {
 public:
  // Takes the stream out of `joined` once it can serve it.
  TcpSpoke(Introduced& joined, BootstrapLog log, const Deadline& deadline)
      : TcpStar(joined.welcome.rank, joined.welcome.nranks, joined.secret, kMaxFromHub, std::move(log)) {
    address_ = SocketAddress::local_of(joined.stream.fd());
    add(0, std::move(joined.stream));
    for (step(0); !met(); step(deadline.poll_ms(INT_MAX)))
      if (deadline.passed()) ask_who(deadline);
  }
  ~TcpSpoke() override { say_goodbye(); }

 private:
  void take(uint32_t, const Frame& frame) override {
    switch (frame.kind) {
      case FrameKind::goodbye:
        hub_left_ = true;
        return;
      case FrameKind::contacts:
        contacts_ = decode<Contacts>(frame.payload, "contacts");
        met_ = true;
        return;
      case FrameKind::missing:
        missing_ = frame.payload;
        return;
      case FrameKind::error:
        if (!failure_) failure_ = read_error(frame);
        return;
      default:
        throw make_failure(TUTTI_MISMATCH, "it sent frame {}, which rank 0 never sends",
                           static_cast<uint32_t>(frame.kind));
    }
  }

  void ended(uint32_t, const std::string& why, bool broke) override {
    drop(0);
    if (failure_ || (hub_left_ && !broke)) return;
    failure_ =
        lost(0, broke ? "broke the bootstrap protocol: " + why
                      : fmt::format("died: it ended its connection to rank {} without a goodbye ({})", rank_, why));
  }

  // Throws when it can no longer be.
  bool met() const {
    if (met_) return true;
    if (failure_) throw *failure_;
    if (hub_left_) throw Failure(TUTTI_PEER_FAILED, me() + "rank 0 has left while others wait for it");
    return false;
  }

  // The deadline has passed. Rank 0 knows which ranks are missing.
  void ask_who(const Deadline& deadline) {
    put(0, FrameKind::who, "");
    for (const Deadline limit(kWhoLimit); missing_.empty() && !limit.passed(); step(limit.poll_ms(100)))
      if (met()) return;
    if (met()) return;
    if (missing_.empty()) missing_ = "rank 0 did not arrive (it does not answer either)";
    const std::string why = fmt::format("the meeting timed out after {}: {}", deadline.text(), missing_);
    // The others learn from this rank's last words what it has waited for, and not just of its end.
    fail("gave up: " + why);
    throw Failure(TUTTI_TIMEOUT, me() + why);
  }

  std::string missing_;
  bool met_ = false, hub_left_ = false;
};

}  // namespace

std::unique_ptr<Meeting> join_hub(const Rendezvous& rendezvous, const std::string& where, const FindPlace& find,
                                  const OpenDoor& door, const Deadline& deadline) {
  const bool joins = rendezvous.joins;
  const Caller caller{joins ? kAnyRank : static_cast<uint32_t>(rendezvous.rank),
                      joins ? 0 : static_cast<uint32_t>(rendezvous.nranks), 0, rendezvous.tls, door};
  const std::string me = joins ? "a newcomer: bootstrap: " : fmt::format("rank {}: bootstrap: ", caller.rank);
  const auto check = [&](const std::string& problem) {
    if (const std::string why = rendezvous.obstacle ? rendezvous.obstacle() : ""; !why.empty())
      throw Failure(TUTTI_PEER_FAILED, me + why);
    if (deadline.passed())
      throw make_failure(TUTTI_TIMEOUT,
                         "{}rank 0 was not met at {} within {}; last attempt: {}; is rank 0 running, and is that port "
                         "open?",
                         me, where, deadline.text(), problem);
  };
  Introduced joined = introduce(caller, find, kFirstAttemptAtHub, deadline, check);
  try {
    return std::make_unique<TcpSpoke>(joined, rendezvous.log, deadline);
  } catch (const Failure& failure) {
    if (joined.stream.fd() >= 0) {
      joined.stream.put(FrameKind::error,
                        encode_error(make_failure(TUTTI_PEER_FAILED, "rank {} cannot take part in the meeting: {}",
                                                  joined.welcome.rank, failure.text)));
      joined.stream.flush();
    }
    throw;
  }
}

}  // namespace tutti::core
