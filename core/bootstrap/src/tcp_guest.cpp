// SPDX-License-Identifier: Apache-2.0
#include "tcp_guest.hpp"

#include <unistd.h>

#include "bootstrap/authentication.hpp"
#include "make_failure.hpp"

namespace tutti::core {

std::string this_process() {
  char host[65] = "";
  if (::gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  return fmt::format("process {} on host {}", ::getpid(), host);
}

TcpGuest::TcpGuest(Descriptor socket, std::string from, Deadline limit, const Tls* tls)
    : stream_(std::move(socket), tls, true), from_(std::move(from)), limit_(limit) {}

TcpGuest::State TcpGuest::advance(const std::string& secret) {
  try {
    bool more = true;
    while (more && why_.empty() && !introduced_) {
      switch (stage_) {
        case Stage::opening:
          more = read_opening(secret);
          break;
        case Stage::proof:
          more = read_proof(secret);
          break;
        case Stage::hello:
          more = read_hello();
          break;
      }
    }
  } catch (const Failure& failure) {
    why_ = failure.text;
  }
  stream_.flush();
  if (introduced_) return State::introduced;
  if (why_.empty() && stream_.ended())
    why_ = stage_ == Stage::proof
               ? fmt::format("it went away after rank 0's proof ({}): its secret may differ", stream_.end())
               : fmt::format("it went away in the middle of the handshake ({})", stream_.end());
  return why_.empty() ? State::talking : State::turned_away;
}

bool TcpGuest::read_opening(const std::string& secret) {
  stream_.fill_to(kPrefixBytes + kNonceBytes);
  if (stream_.buffered() >= kPrefixBytes) {
    why_ = prefix_problem(stream_.peek(kPrefixBytes));
    if (!why_.empty()) {
      // Another version of Tutti learns of ours from this; others get nothing.
      if (stream_.peek(kMagic.size()) == kMagic) stream_.put(std::make_shared<const std::string>(meeting_prefix()));
      return false;
    }
  }
  const auto opening = stream_.take(kPrefixBytes + kNonceBytes);
  if (!opening) return false;
  spoke_nonce_ = opening->substr(kPrefixBytes);
  hub_nonce_ = random_bytes(kNonceBytes);
  stream_.put(
      std::make_shared<const std::string>(meeting_prefix() + hub_nonce_ + hub_proof(secret, spoke_nonce_, hub_nonce_)));
  stage_ = Stage::proof;
  return true;
}

bool TcpGuest::read_proof(const std::string& secret) {
  stream_.fill_to(kProofBytes);
  const auto proof = stream_.take(kProofBytes);
  if (!proof) return false;
  if (!equal_proof(*proof, spoke_proof(secret, spoke_nonce_, hub_nonce_))) why_ = "it does not know this job's secret";
  stage_ = Stage::hello;
  return true;
}

bool TcpGuest::read_hello() {
  stream_.fill(kMaxHello);
  const auto frame = stream_.next(kMaxHello);
  if (!frame) return false;
  if (frame->kind != FrameKind::hello)
    throw make_failure(TUTTI_MISMATCH, "it sent frame {} where a hello was expected",
                       static_cast<uint32_t>(frame->kind));
  hello_ = decode<Hello>(frame->payload, "hello");
  introduced_ = true;
  return true;
}

}  // namespace tutti::core
