// SPDX-License-Identifier: Apache-2.0
//
// The wire formats: pair messages between two endpoints; then, on each socket, a token in each direction and frames.
// All integers are little-endian.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <tutti/sdk/pair_messages.hpp>

#include "address.hpp"

namespace tutti::tcp {

using Token = std::array<uint8_t, 24>;
using Digest = std::array<uint8_t, 32>;  // SHA-256

// Settings that must be equal at both ends.
struct Terms {
  uint32_t nranks;
  uint32_t lanes;
  uint32_t sockets;
  uint32_t eager_window;
  uint64_t fragment_bytes;
  uint64_t eager_bytes;
  uint64_t tls;  // 1: every socket is encrypted
  bool operator==(const Terms&) const = default;
};

// An address that accepts connections, and its port.
struct Listener {
  IpBytes ip;
  uint16_t port;
  uint16_t reserved;

  static Listener at(const Where& where) { return {to_bytes(where.address()), where.port(), 0}; }
  Where where() const { return {to_address(ip), port}; }
};

struct Offer {
  Terms terms;
  Digest host;  // equal for ranks of one host
  Token knock, answer;
  uint64_t n_listeners;
  std::array<Listener, kMaxAddresses> listeners;

  std::vector<Where> addresses() const;
};

// Two endpoints connect by these messages:
//   Offer     each end sends one: its terms, its listeners, and the tokens that open a socket to it
//   Dial      the end whose turn it was could not dial (`text`) and asks the other end to dial
//   Refusal   the connection has failed for good: `status` and `text`
struct PairMessage : Offer {
  enum Kind : uint32_t { kOffer = 1, kDial = 2, kRefusal = 3 };

  Kind kind = kOffer;
  tutti_status status = TUTTI_OK;  // Dial, Refusal
  std::string text;                // Dial, Refusal

  std::string encode() const;
  // Throws sdk::Error: TUTTI_MISMATCH where another version of this transport wrote the bytes, else
  // TUTTI_INVALID_ARGUMENT.
  static PairMessage decode(std::string_view bytes);
};

// The first bytes on a socket. The dialler sends `knock` and the listener replies `answer`; both tokens are from the
// listener's offer.
struct Opening {
  Token token;
  uint32_t rank;    // the sender's
  uint32_t socket;  // index among the link's sockets
};
static_assert(sizeof(Opening) == 32);

// Frames. `posted` counts the RECVs that the frame's sender has posted on the lane so far (modulo 2^32). A message with
// sequence number s may be sent when s < posted + window. The window depends on the message's size (window_for).
enum class FrameKind : uint32_t {
  kData = 0x5443'5001,     // `bytes` of payload follow: message `sequence` of the lane
  kPosted = 0x5443'5002,   // carries `posted` only
  kWant = 0x5443'5003,     // asks for a kPosted once the RECV of message `sequence` is posted
  kControl = 0x5443'5004,  // a control message of `bytes` follows
  kBye = 0x5443'5005       // orderly end: no frame follows on this socket
};

struct Frame {
  FrameKind kind;
  uint32_t lane;
  uint32_t posted;
  uint32_t sequence;
  uint64_t bytes;
};
static_assert(sizeof(Frame) == 24);

}  // namespace tutti::tcp
