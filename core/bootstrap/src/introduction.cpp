// SPDX-License-Identifier: Apache-2.0
#include "introduction.hpp"

#include <poll.h>

#include "bootstrap/authentication.hpp"
#include "bootstrap/bootstrap.hpp"
#include "make_failure.hpp"
#include "tcp_guest.hpp"

namespace tutti::core {
namespace {

constexpr uint64_t kMaxWelcome = 4096;  // or a refusal

class Introduction {
 public:
  Introduction(const Caller& caller, const SocketAddress& address, const Deadline& limit)
      : caller_(caller), address_(address), limit_(limit) {}

  Introduced run(const Deadline& deadline) {
    std::string problem;
    Descriptor socket = connect_to(address_, limit_.poll_ms(1 << 30), problem);
    if (!socket) throw Discouraged{problem};
    FrameStream stream(std::move(socket), caller_.tls.get(), false);
    prove(stream);
    limit_ = deadline;
    const SocketAddress own = SocketAddress::local_of(stream.fd());
    const Hello hello{caller_.job, caller_.rank, caller_.nranks, this_process(),
                      caller_.door ? caller_.door(caller_.secret, own) : ""};
    stream.put(FrameKind::hello, encode(hello));
    std::optional<Frame> answer;
    while (!(answer = stream.next(kMaxWelcome))) await(stream, stream.buffered() + 1, "its welcome");
    if (answer->kind == FrameKind::error) {
      Failure refusal = read_error(*answer);
      if (refusal.status == TUTTI_PEER_FAILED) throw refusal;  // this run's meeting is over
      refusal.text = me() + "refused by " + host() + ": " + refusal.text;
      if (caller_.retry_refusals) throw Discouraged{refusal.text};
      throw refusal;
    }
    if (answer->kind != FrameKind::welcome) hopeless({TUTTI_MISMATCH, me() + at() + " did not answer with a welcome"});
    const Welcome welcome = decode_welcome(answer->payload);
    if (welcome.host != caller_.host)
      hopeless({TUTTI_MISMATCH, fmt::format("{}{} is rank {}, not {}", me(), at(), welcome.host, host())});
    return {std::move(stream), welcome};
  }

 private:
  std::string me() const {
    return (caller_.rank == kAnyRank ? "a newcomer" : fmt::format("rank {}", caller_.rank)) + ": bootstrap: ";
  }
  std::string host() const { return fmt::format("rank {}", caller_.host); }
  std::string at() const { return "the process at " + address_.text(); }

  [[noreturn]] void hopeless(const Failure& failure) const {
    if (caller_.lenient) throw Discouraged{failure.text};
    throw failure;
  }

  // Reads until `bytes` are there: what the handshake has at this point.
  void await(FrameStream& stream, size_t bytes, const char* what) {
    while (true) {
      stream.flush();
      stream.fill_to(bytes);
      if (stream.buffered() >= bytes) return;
      if (stream.refused()) hopeless({TUTTI_MISMATCH, me() + at() + " cannot be met: " + stream.end()});
      if (stream.ended())
        throw Discouraged{
            fmt::format("{} went away before {}: {}; has it TUTTI_TLS_CERTIFICATE just as this rank has{}?", at(), what,
                        stream.end(), caller_.tls ? "" : " not")};
      if (limit_.passed())
        throw Discouraged{fmt::format("{} accepted the connection but did not send {} in time", at(), what)};
      pollfd waiting = {stream.fd(), static_cast<short>(POLLIN | (stream.wants_room() ? POLLOUT : 0)), 0};
      ::poll(&waiting, 1, limit_.poll_ms(1000));
    }
  }

  void prove(FrameStream& stream) {
    const std::string nonce = random_bytes(kNonceBytes);
    stream.put(std::make_shared<const std::string>(meeting_prefix() + nonce));
    await(stream, kPrefixBytes, "its part of the handshake");
    const std::string problem = prefix_problem(*stream.take(kPrefixBytes));
    if (!problem.empty()) hopeless({TUTTI_MISMATCH, me() + at() + " is not " + host() + " of this job: " + problem});
    await(stream, kNonceBytes + kProofBytes, "its proof");
    const std::string hub_nonce = *stream.take(kNonceBytes);
    if (!equal_proof(*stream.take(kProofBytes), hub_proof(caller_.secret, nonce, hub_nonce)))
      hopeless(
          {TUTTI_MISMATCH, fmt::format("{}{} does not know this rank's secret{}: give all ranks of the job the same "
                                       "TUTTI_SECRET, and each job its own port",
                                       me(), at(), caller_.secret.empty() ? " (this rank has none)" : "")});
    stream.put(std::make_shared<const std::string>(spoke_proof(caller_.secret, nonce, hub_nonce)));
  }

  const Caller& caller_;
  const SocketAddress& address_;
  Deadline limit_;
};

}  // namespace

Welcome decode_welcome(std::string_view payload) {
  const auto welcome = decode<Welcome>(payload, "welcome");
  if (welcome.rank >= welcome.nranks || welcome.host >= welcome.nranks || welcome.nranks > kMaxRanks)
    throw make_failure(TUTTI_MISMATCH, "a welcome of rank {} of {} came", welcome.rank, welcome.nranks);
  return welcome;
}

Introduced introduce(const Caller& caller, const SocketAddress& address, const Deadline& limit,
                     const Deadline& deadline) {
  return Introduction(caller, address, limit).run(deadline);
}

}  // namespace tutti::core
