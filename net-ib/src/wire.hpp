// SPDX-License-Identifier: Apache-2.0
//
// What travels between two ranks. Greetings are unreliable datagrams, repeated until they are answered:
//
//   connector                                          acceptor
//   Hello    who, to whom, shape, queue pairs, MAC ->
//                                                   <- Welcome   the same, and a MAC over both
//   Ready    (a frame on each queue pair) ->
//
// The MACs cover both endpoints' random ids, of which each end made one and got the other from the job's own bootstrap:
// an old greeting is worth nothing to another endpoint. From then on frames travel on reliable connections. Everything
// is little-endian; a machine of the other byte order is refused by the magic number.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "settings.hpp"

namespace tutti::ib {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

inline constexpr uint64_t kMagic = 0x3142'4949'5454'5554;  // "TUTTIIB1"
inline constexpr uint32_t kVersion = 1;

using Id = std::array<uint8_t, 16>;
using Mac = std::array<uint8_t, 32>;
using RawGid = std::array<uint8_t, 16>;

// What both ends must agree on.
struct Shape {
  uint32_t nranks;
  uint32_t lanes;
  uint32_t credits;
  uint32_t reserved;
  uint64_t eager_bytes;
  uint64_t fragment_bytes;
  uint64_t communicator;
  bool operator==(const Shape&) const = default;
};

// One queue pair of the sender of a greeting, and which of the other's rails it is for.
struct PathOffer {
  uint8_t rail;       // of the greeting's sender
  uint8_t peer_rail;  // of its receiver
  uint8_t mtu;        // ibv_mtu
  uint8_t reserved;
  uint32_t qp;
  uint32_t psn;
  uint32_t lid;
  RawGid gid;       // of the sender
  RawGid peer_gid;  // of the receiver, as the connector chose it
};

enum class Greet : uint32_t {
  kHello = 1,
  kWelcome = 2,
  kMismatch = 3,    // the shapes differ
  kGivenUp = 4,     // the answerer has given the asker up
  kWrongPlace = 5,  // no such rank, endpoint or rail here
  kNoResources = 6  // the answerer cannot make queue pairs; its log says why
};

struct Greeting {
  uint64_t magic;
  uint32_t version;
  uint32_t kind;  // Greet
  uint32_t from;
  uint32_t to;
  Id sender;  // endpoint ids
  Id receiver;
  Shape shape;
  uint64_t attempt;  // the connector's; a Welcome repeats it
  uint32_t paths;
  uint32_t way;        // of a Hello: the offer whose rails it travels on
  uint32_t reply_key;  // ... and the key of the queue pair that takes the answer
  uint32_t reserved;
  PathOffer offers[kMaxRails];
  Mac mac;  // over everything before
};
static_assert(sizeof(Shape) == 40 && sizeof(PathOffer) == 48);
static_assert(sizeof(Greeting) <= 512 - 64, "a greeting fits in a datagram of the smallest usual MTU");

// Frames. Each queue pair's frames are counted at both ends, writes with immediate data included: the counts are what
// credits are made of, and what tells after a failure which frames arrived.
enum class FrameKind : uint8_t {
  kReady = 1,
  kData = 2,       // `bytes` at `offset` of message `sequence`, which has `total` bytes
  kAnnounce = 3,   // the RECV of message `sequence` is posted, of `total` bytes; an Announcement follows
  kPosted = 4,     // only carries `posted`
  kWant = 5,       // message `sequence` has `total` bytes and waits for its RECV's announcement
  kMismatch = 6,   // message `sequence` has `total` bytes, not as many as announced: it will not come
  kDiscard = 7,    // message `sequence` met a RECV of another size: it is not wanted
  kControl = 8,    // a control message
  kCredit = 9,     // only carries `freed`
  kPathDown = 10,  // path `sequence` is out of use; its receiver took `total` frames from it
  kBye = 11        // orderly end
};

struct Frame {
  FrameKind kind;
  uint8_t reserved;
  uint16_t lane;
  uint32_t freed;     // frames of this queue pair that the sender has taken in so far; its receiver may send as many
  uint32_t sequence;  // message of the lane
  uint32_t posted;    // RECVs that the sender has posted on the lane so far
  uint32_t bytes;     // payload of this frame
  uint32_t total;     // of the message
  uint64_t offset;
};
static_assert(sizeof(Frame) == 32);

// Where a message is to be written. Address 0: nowhere directly, send it in frames.
struct Announcement {
  uint64_t address;
  uint32_t keys[kMaxRails];  // remote keys, by path
};

// Immediate data of a write: the message that it is a part of.
constexpr uint32_t immediate(uint32_t lane, uint32_t sequence) { return lane << 16 | (sequence & 0xffff); }
inline constexpr uint32_t kMaxLanes = 65536;

}  // namespace tutti::ib
