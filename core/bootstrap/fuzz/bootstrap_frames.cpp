// SPDX-License-Identifier: Apache-2.0
//
// Connections to a rank that listens: a stranger that sends anything, a rank that knows the secret and then sends
// anything, and the payloads of legal frames. Before the proof nothing depends on what it says.
#include <sys/socket.h>

#include "bootstrap/authentication.hpp"
#include "bootstrap/bootstrap.hpp"
#include "fuzz_input.hpp"
#include "handshake.hpp"

using namespace tutti::core;
using tutti::FileDescriptor;

namespace {

const std::string kSecret(32, 's');

template <typename Body>
void refused_or_read(Body body) {
  try {
    body();
  } catch (const Failure& failure) {
    FUZZ_CHECK(failure.status < 0 && !failure.text.empty());
  }
}

class Stranger {
 public:
  Stranger() {
    int pair[2];
    FUZZ_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    near_ = FileDescriptor(pair[0]);
    far_ = FileDescriptor(pair[1]);
  }
  FileDescriptor take() { return std::move(near_); }
  void say(const std::string& bytes) { (void)!::send(far_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  std::string hear(size_t most) {
    std::string bytes(most, '\0');
    const ssize_t n = ::recv(far_.get(), bytes.data(), most, MSG_DONTWAIT);
    bytes.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return bytes;
  }

 private:
  FileDescriptor near_, far_;
};

void visit(FuzzInput& input) {
  Stranger stranger;
  const bool knows_secret = input.flag();
  TcpGuest guest(stranger.take(), "fuzz", Deadline(std::chrono::seconds(10)));
  if (knows_secret) {
    const std::string nonce(kNonceBytes, 'n');
    stranger.say(meeting_prefix() + nonce);
    FUZZ_CHECK(guest.advance(kSecret) == TcpGuest::GuestState::talking);
    const std::string answer = stranger.hear(kPrefixBytes + kNonceBytes + kProofBytes);
    FUZZ_CHECK(answer.size() == kPrefixBytes + kNonceBytes + kProofBytes);
    stranger.say(spoke_proof(kSecret, nonce, answer.substr(kPrefixBytes, kNonceBytes)));
  }
  TcpGuest::GuestState state = TcpGuest::GuestState::talking;
  while (!input.empty() && state == TcpGuest::GuestState::talking) {
    stranger.say(input.text());
    state = guest.advance(kSecret);
  }
  FUZZ_CHECK(state != TcpGuest::GuestState::turned_away || !guest.why().empty());
  if (state != TcpGuest::GuestState::introduced) return;
  FUZZ_CHECK(knows_secret);
  FUZZ_CHECK(encode(guest.hello()).size() <= kMaxHello);
}

void read_frames(FuzzInput& input) {
  Stranger stranger;
  FrameStream stream(stranger.take());
  const uint64_t limit = input.take<uint16_t>();
  refused_or_read([&] {
    while (!input.empty()) {
      stranger.say(input.text());
      stream.fill(input.take<uint16_t>());
      while (const auto frame = stream.next(limit)) {
        FUZZ_CHECK(frame->payload.size() <= limit);
        if (frame->kind == FrameKind::error) FUZZ_CHECK(read_error(*frame).status < 0);
      }
    }
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  FuzzInput input(data, bytes);
  switch (input.byte() % 4) {
    case 0:
      visit(input);
      break;
    case 1:
      read_frames(input);
      break;
    case 2:
      refused_or_read([&] { FUZZ_CHECK(decode_welcome(input.rest()).rank < kMaxRanks); });
      break;
    default:
      refused_or_read([&] { FUZZ_CHECK(read_error({FrameKind::error, input.rest()}).status < 0); });
  }
  return 0;
}
