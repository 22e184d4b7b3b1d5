// SPDX-License-Identifier: Apache-2.0
//
// What travels over a socket: four handshake messages of fixed size, then frames. Everything is little-endian; a
// machine of the other byte order is refused by the magic number.
//
//   connector                              acceptor
//   Hello     who, to whom, shape, nonce ->
//                                        <- Challenge   who, shape, nonce
//   Proof     MAC of both messages       ->
//                                        <- Verdict     MAC of both messages and of the verdict
//   frames                              <->  frames
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace tutti::tcp {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

inline constexpr uint64_t kMagic = 0x5043'5449'5454'5554;  // "TUTTITCP"
inline constexpr uint32_t kVersion = 1;

using Nonce = std::array<uint8_t, 32>;
using Id = std::array<uint8_t, 16>;
using Mac = std::array<uint8_t, 32>;

// What both ends must agree on.
struct Shape {
  uint32_t nranks;
  uint32_t lanes;
  uint32_t sockets;
  uint32_t eager_window;
  uint64_t fragment_bytes;
  uint64_t eager_bytes;
  uint64_t communicator;
  bool operator==(const Shape&) const = default;
};

struct Hello {
  uint64_t magic;
  uint32_t version;
  uint32_t from;
  uint32_t to;
  uint32_t socket;  // index among the sockets of this attempt
  Shape shape;
  Id attempt;  // the same for all sockets of one attempt to connect
  Id target;   // the endpoint id in the address that the connector was given
  Nonce nonce;
};

struct Challenge {
  uint64_t magic;
  uint32_t version;
  uint32_t rank;
  Shape shape;
  Id endpoint;
  Nonce nonce;
};

struct Proof {
  Mac mac;
};

enum class Answer : uint32_t {
  kAccepted = 1,
  kWrongSecret = 2,  // the only answer without a MAC: there is no common secret
  kWrongTarget = 3,  // another endpoint than the one that was meant listens here
  kMismatch = 4,     // the shapes differ
  kCrossed = 5,      // both connect at once; the acceptor has the lower rank, so its connection counts
  kConnected = 6,    // there is a connection already
  kGivenUp = 7       // the acceptor has given this peer up
};

struct Verdict {
  uint32_t answer;  // Answer
  uint32_t reserved;
  Mac mac;
};

static_assert(sizeof(Shape) == 40 && sizeof(Hello) == 128 && sizeof(Challenge) == 104);
static_assert(sizeof(Proof) == 32 && sizeof(Verdict) == 40);

// Frames. `posted` is how many RECVs the frame's sender has posted on the lane so far (modulo 2^32): a message with
// sequence number s may be sent when s < posted + window, where the window depends on its size (window_for).
enum class FrameKind : uint32_t {
  kData = 0x5443'5001,     // `bytes` of payload follow: message `sequence` of the lane
  kPosted = 0x5443'5002,   // only carries `posted`
  kWant = 0x5443'5003,     // the sender waits for the RECV of message `sequence`: say when it is posted
  kControl = 0x5443'5004,  // a control message of `bytes` follows
  kBye = 0x5443'5005       // orderly end: nothing follows on this socket
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
