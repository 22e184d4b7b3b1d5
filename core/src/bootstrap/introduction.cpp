// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/introduction.hpp"

#include <poll.h>

#include "bootstrap/authentication.hpp"
#include "bootstrap/bootstrap.hpp"
#include "bootstrap/tcp_guest.hpp"
#include "bootstrap/wire.hpp"

namespace tutti::core {
namespace {

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
    const Hello hello{caller_.job, caller_.rank, caller_.nranks, this_process()};
    stream.put(FrameKind::hello, encode_hello(hello));
    std::optional<Frame> answer;
    while (!(answer = stream.next(kMaxHello * 4))) await(stream, stream.buffered() + 1, "its welcome");
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
      hopeless({TUTTI_MISMATCH, me() + at() + " is rank " + std::to_string(welcome.host) + ", not " + host()});
    return {std::move(stream), welcome};
  }

 private:
  std::string me() const {
    return (caller_.rank == kAnyRank ? "a newcomer" : "rank " + std::to_string(caller_.rank)) + ": bootstrap: ";
  }
  std::string host() const { return "rank " + std::to_string(caller_.host); }
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
        throw Discouraged{at() + " went away before " + what + ": " + stream.end() +
                          "; has it TUTTI_TLS_CERTIFICATE just as this rank has" + (caller_.tls ? "?" : " not?")};
      if (limit_.passed()) throw Discouraged{at() + " accepted the connection but did not send " + what + " in time"};
      wait_for(stream, limit_.poll_ms(1000));
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
      hopeless({TUTTI_MISMATCH, me() + at() + " does not know this rank's secret" +
                                    (caller_.secret.empty() ? " (this rank has none)" : "") +
                                    ": give all ranks of the job the same TUTTI_SECRET, and each job its own port"});
    stream.put(std::make_shared<const std::string>(spoke_proof(caller_.secret, nonce, hub_nonce)));
  }

  const Caller& caller_;
  const SocketAddress& address_;
  Deadline limit_;
};

}  // namespace

std::string encode_welcome(const Welcome& welcome) {
  return WireWriter().u32(welcome.host).u32(welcome.rank).u32(welcome.nranks).take();
}

Welcome decode_welcome(std::string_view payload) {
  WireReader reader(payload, "welcome");
  Welcome welcome;
  welcome.host = reader.u32();
  welcome.rank = reader.u32();
  welcome.nranks = reader.u32();
  reader.end();
  if (welcome.rank >= welcome.nranks || welcome.host >= welcome.nranks || welcome.nranks > kMaxRanks)
    throw Failure(TUTTI_MISMATCH, "a welcome of rank " + std::to_string(welcome.rank) + " of " +
                                      std::to_string(welcome.nranks) + " came");
  return welcome;
}

void wait_for(FrameStream& stream, int timeout_ms) {
  pollfd waiting = {stream.fd(), static_cast<short>(POLLIN | (stream.wants_room() ? POLLOUT : 0)), 0};
  ::poll(&waiting, 1, timeout_ms);
}

Introduced introduce(const Caller& caller, const SocketAddress& address, const Deadline& limit,
                     const Deadline& deadline) {
  return Introduction(caller, address, limit).run(deadline);
}

}  // namespace tutti::core
