// SPDX-License-Identifier: Apache-2.0
#include "handshake.hpp"

#include <poll.h>
#include <unistd.h>

#include <thread>

#include "base/make_failure.hpp"
#include "bootstrap/authentication.hpp"
#include "net/interrupt.hpp"

namespace tutti::core {

std::string this_process() {
  char host[65] = "";
  if (::gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  return fmt::format("process {} on host {}", ::getpid(), host);
}

std::string name_of(uint32_t rank) { return rank == kAnyRank ? "a newcomer" : fmt::format("rank {}", rank); }

Welcome decode_welcome(std::string_view payload) {
  const auto welcome = decode<Welcome>(payload, "welcome");
  if (welcome.rank >= welcome.nranks || welcome.host >= welcome.nranks || welcome.nranks > kMaxRanks)
    throw make_failure(TUTTI_MISMATCH, "a welcome of rank {} of {} came", welcome.rank, welcome.nranks);
  return welcome;
}

// ---- The end that listens ----------------------------------------------------------------------------------

TcpGuest::GuestState TcpGuest::advance(const std::string& secret) {
  try {
    read(secret);
  } catch (const Failure& failure) {
    why_ = failure.text;
  }
  stream_.flush();
  if (stage_ == HandshakeStage::introduced) return GuestState::introduced;
  if (why_.empty() && stream_.ended())
    why_ = stage_ == HandshakeStage::proof
               ? fmt::format("it went away after rank 0's proof ({}): its secret may differ", stream_.end())
               : fmt::format("it went away in the middle of the handshake ({})", stream_.end());
  return why_.empty() ? GuestState::talking : GuestState::turned_away;
}

void TcpGuest::read(const std::string& secret) {
  if (stage_ == HandshakeStage::opening) {
    stream_.fill_to(kPrefixBytes + kNonceBytes);
    if (stream_.buffered() < kPrefixBytes) return;
    why_ = prefix_problem(stream_.peek(kPrefixBytes));
    // Another version of Tutti learns of ours from this; others get nothing.
    if (!why_.empty() && stream_.peek(kMagic.size()) == kMagic) stream_.put(meeting_prefix());
    const auto opening = why_.empty() ? stream_.take(kPrefixBytes + kNonceBytes) : std::nullopt;
    if (!opening) return;
    const std::string spoke_nonce = opening->substr(kPrefixBytes), hub_nonce = random_bytes(kNonceBytes);
    stream_.put(meeting_prefix() + hub_nonce + hub_proof(secret, spoke_nonce, hub_nonce));
    expected_proof_ = spoke_proof(secret, spoke_nonce, hub_nonce);
    stage_ = HandshakeStage::proof;
  }
  if (stage_ == HandshakeStage::proof) {
    stream_.fill_to(kProofBytes);
    const auto proof = stream_.take(kProofBytes);
    if (!proof) return;
    if (!equal_proof(*proof, expected_proof_)) throw Failure(TUTTI_MISMATCH, "it does not know this job's secret");
    stage_ = HandshakeStage::hello;
  }
  stream_.fill(kMaxHello);
  const auto frame = stream_.next(kMaxHello);
  if (!frame) return;
  if (frame->kind != FrameKind::hello)
    throw make_failure(TUTTI_MISMATCH, "it sent frame {} where a hello was expected",
                       static_cast<uint32_t>(frame->kind));
  hello_ = decode<Hello>(frame->payload, "hello");
  stage_ = HandshakeStage::introduced;
}

// ---- The end that connects ---------------------------------------------------------------------------------

namespace {

constexpr uint64_t kMaxWelcome = 4096;  // or a refusal

class Introduction {
 public:
  Introduction(const Caller& caller, const MeetingPlace& place, const SocketAddress& address, const Deadline& limit)
      : caller_(caller), place_(place), address_(address), limit_(limit) {}

  Introduced run(const Deadline& deadline) {
    std::string problem;
    FileDescriptor socket = connect_to(address_, limit_.poll_ms(1 << 30), problem);
    if (!socket) throw Discouraged{problem};
    FrameStream stream(std::move(socket), caller_.tls.get(), false);
    prove(stream);
    limit_ = deadline;
    say_hello(stream);
    std::optional<Frame> answer;
    while (!(answer = stream.next(kMaxWelcome))) await(stream, stream.buffered() + 1, "its welcome");
    if (answer->kind == FrameKind::error) {
      Failure refusal = read_error(*answer);
      if (refusal.status == TUTTI_PEER_FAILED) throw refusal;  // this run's meeting is over
      refusal.text = me() + "refused by " + host() + ": " + refusal.text;
      if (place_.trust == MeetingPlace::Trust::stale) throw Discouraged{refusal.text};
      throw refusal;
    }
    if (answer->kind != FrameKind::welcome) futile({TUTTI_MISMATCH, me() + at() + " did not answer with a welcome"});
    const Welcome welcome = decode_welcome(answer->payload);
    if (welcome.host != caller_.host)
      futile({TUTTI_MISMATCH, fmt::format("{}{} is rank {}, not {}", me(), at(), welcome.host, host())});
    return {std::move(stream), welcome, place_.secret};
  }

 private:
  std::string me() const { return name_of(caller_.rank) + ": bootstrap: "; }
  std::string host() const { return name_of(caller_.host); }
  std::string at() const { return "the process at " + address_.text(); }

  [[noreturn]] void futile(const Failure& failure) const {
    if (place_.trust != MeetingPlace::Trust::certain) throw Discouraged{failure.text};
    throw failure;
  }

  // Reads until `bytes` are there: what the handshake has at this point.
  void await(FrameStream& stream, size_t bytes, const char* what) {
    while (true) {
      stream.flush();
      stream.fill_to(bytes);
      if (stream.buffered() >= bytes) return;
      if (stream.refused()) futile({TUTTI_MISMATCH, me() + at() + " cannot be met: " + stream.end()});
      if (stream.ended())
        throw Discouraged{
            fmt::format("{} went away before {}: {}; does it have TUTTI_TLS_CERTIFICATE? This rank has {}", at(), what,
                        stream.end(), caller_.tls ? "it" : "none")};
      if (limit_.passed())
        throw Discouraged{fmt::format("{} accepted the connection but did not send {} in time", at(), what)};
      pollfd waiting = {stream.fd(), static_cast<short>(POLLIN | (stream.wants_room() ? POLLOUT : 0)), 0};
      Interrupt::poll(waiting, limit_.poll_ms(1000));
    }
  }

  void prove(FrameStream& stream) {
    const std::string nonce = random_bytes(kNonceBytes);
    stream.put(meeting_prefix() + nonce);
    await(stream, kPrefixBytes, "its part of the handshake");
    const std::string problem = prefix_problem(*stream.take(kPrefixBytes));
    if (!problem.empty()) futile({TUTTI_MISMATCH, me() + at() + " is not " + host() + " of this job: " + problem});
    await(stream, kNonceBytes + kProofBytes, "its proof");
    const std::string hub_nonce = *stream.take(kNonceBytes);
    if (!equal_proof(*stream.take(kProofBytes), hub_proof(place_.secret, nonce, hub_nonce)))
      futile({TUTTI_MISMATCH, fmt::format("{}{} does not know this rank's secret{}: give all ranks of the job the same "
                                          "TUTTI_SECRET, and each job its own port",
                                          me(), at(), place_.secret.empty() ? " (this rank has none)" : "")});
    stream.put(spoke_proof(place_.secret, nonce, hub_nonce));
  }

  // A rank that cannot take part says why, so that the others do not wait until their time is up.
  void say_hello(FrameStream& stream) {
    Hello hello{place_.job, caller_.rank, caller_.nranks, this_process(), "", ""};
    std::optional<Failure> unfit;
    if (caller_.door) try {
        hello.contact = caller_.door(place_.secret, SocketAddress::local_of(stream.fd()));
      } catch (const std::exception& problem) {
        unfit = failure_of(problem);
        hello.problem = unfit->text.substr(0, kMaxContact / 2);
      }
    stream.put(FrameKind::hello, encode(hello));
    if (!unfit) return;
    try {
      await(stream, stream.buffered() + 1, "its welcome");
    } catch (const Discouraged&) {  // it has gone
    }
    throw *unfit;
  }

  const Caller& caller_;
  const MeetingPlace& place_;
  const SocketAddress& address_;
  Deadline limit_;
};

}  // namespace

Introduced introduce(const Caller& caller, const MeetingPlace& place, const SocketAddress& address,
                     const Deadline& limit, const Deadline& deadline) {
  return Introduction(caller, place, address, limit).run(deadline);
}

Introduced introduce(const Caller& caller, const FindPlace& find, std::chrono::milliseconds first,
                     const Deadline& deadline, const std::function<void(const std::string& problem)>& check) {
  std::chrono::milliseconds pause(10), attempt = first;
  std::string problem = "it offers no address";
  while (true) {
    try {
      const MeetingPlace place = find();
      const bool patient = place.addresses.size() == 1 && place.trust == MeetingPlace::Trust::certain;
      const auto each =
          patient ? std::chrono::nanoseconds::max() : std::exchange(attempt, std::min(attempt * 2, first * 16));
      for (size_t i = 0; i < place.addresses.size() && !(i > 0 && deadline.passed()); ++i) try {
          return introduce(caller, place, place.addresses[i], deadline.sooner(each), deadline);
        } catch (const Discouraged& why) {
          problem = why.problem;
        }
    } catch (const Discouraged& why) {
      problem = why.problem;
    }
    check(problem);
    Interrupt::check();
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause, deadline.left()));
    pause = std::min(pause * 2, std::chrono::milliseconds(200));
  }
}

}  // namespace tutti::core
