// SPDX-License-Identifier: Apache-2.0
//
// The wire formats: pair messages between two endpoints; then, on each socket, a token in each direction and frames.
// All integers are little-endian.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <tutti/sdk/pair_messages.hpp>
#include <vector>

#include "address.hpp"

namespace tutti::tcp {

using Token = std::array<uint8_t, 24>;
using Digest = std::array<uint8_t, 32>;  // SHA-256

// An address that accepts connections, and its port.
struct Listener {
  IpBytes ip;
  uint16_t port;
  uint16_t reserved;

  static Listener at(const Where& where) { return {to_bytes(where.address()), where.port(), 0}; }
  Where where() const { return {to_address(ip), port}; }
};

inline constexpr sdk::PairFormat kPairFormat{.transport = "tcp", .magic = 0x5043'5454, .version = 6};  // "TTCP"

// The names of Offer::settings.
inline constexpr std::array kSettingNames{
    "the number of ranks",      "the number of lanes",   "TUTTI_TCP_SOCKETS",          "the eager window",
    "TUTTI_TCP_FRAGMENT_BYTES", "TUTTI_TCP_EAGER_BYTES", "TLS (TUTTI_TLS_CERTIFICATE)"};

// Each end's Card (sdk::CardExchange): its settings, its listeners, and the tokens that open a socket to it.
struct Offer {
  std::array<uint64_t, kSettingNames.size()> settings;
  Digest host;  // equal for ranks of one host
  Token knock, answer;
  uint64_t n_listeners;
  std::array<Listener, kMaxAddresses> listeners;

  std::vector<Where> addresses() const;
  std::string flaw() const;
};

// Another pair message, with a status and a text: the end whose turn it was could not dial, and asks the other end to,
// or to refuse where it could not before.
inline constexpr uint32_t kDial = 2;

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
  uint32_t bytes;
  uint32_t mark;  // of the message
};
static_assert(sizeof(Frame) == 24);

}  // namespace tutti::tcp
