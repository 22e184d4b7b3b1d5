// SPDX-License-Identifier: Apache-2.0
//
// The wire formats. Two endpoints connect by pair messages:
//
//   offer     Each end's Card (sdk::CardExchange): the settings that must be equal, and for each rail its port, its
//             usable GIDs and new queue pairs.
//   ready     A bit for each queue pair that is connected now. Sent when both offers are known. The peer may send on
//             the queue pairs that both ends have connected.
//   path down   A path is out of use, and how many of its frames were taken in. Frames say the same over other paths:
//             they are sooner there, and travel while an endpoint closes.
//   rejoin      A new queue pair for such a path. Once both ends have sent one they connect them and say ready.
//
// Both ends compute the same pairs of rails from the two offers (pair_rails).
//
// Frames travel on the reliable queue pairs. All integers are little-endian.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <tutti/sdk/pair_messages.hpp>
#include <vector>

#include "settings.hpp"

namespace tutti::ib {

// The most GIDs that are offered of a port.
inline constexpr uint32_t kMaxGids = 16;

using RawGid = std::array<uint8_t, 16>;

struct OfferedGid {
  RawGid raw{};
  uint32_t index = 0;    // in the port's table
  uint32_t prefix = 64;  // bits of the subnet
};

struct OfferedQueuePair {
  uint32_t number = 0;
  uint32_t psn = 0;  // its first packet sequence number
};

struct OfferedRail {
  uint32_t infiniband = 0;  // 1, or 0: Ethernet
  uint32_t mtu = 0;         // ibv_mtu
  uint32_t lid = 0;
  uint32_t megabits = 0;
  uint32_t n_gids = 0;
  uint32_t needs_route = 0;  // InfiniBand: 1 when its port needs a global route header
  std::array<OfferedGid, kMaxGids> gids{};
  std::array<OfferedQueuePair, kMaxQueuePairs> queue_pairs{};

  std::string flaw() const;  // why no endpoint can have made it, or ""
};
static_assert(sizeof(OfferedRail) == 440);

inline constexpr sdk::PairFormat kPairFormat{.transport = "ib", .magic = 0x4249'5454, .version = 6};  // "TTIB"

// The names of Offer::settings.
inline constexpr std::array kSettingNames{"the number of ranks", "the number of lanes", "TUTTI_IB_CREDITS",
                                          "TUTTI_IB_EAGER_BYTES", "TUTTI_IB_FRAGMENT_BYTES", "TUTTI_IB_QUEUE_PAIRS"};

struct Offer {
  std::array<uint64_t, kSettingNames.size()> settings{};
  uint32_t n_rails = 0;
  uint32_t reserved = 0;
  std::array<OfferedRail, kMaxRails> rails{};

  std::string flaw() const;
};

// The kind of a ready. Its body is a uint32_t: 1 << i for pair i.
inline constexpr uint32_t kReady = 2;

// A path is out of use; the sender took `taken` frames from it. `generation`: how often the path was connected again.
struct PathDown {
  uint32_t path, taken, generation;
};
inline constexpr uint32_t kPathIsDown = 3;

// A new queue pair for a path that both ends have given up.
struct Rejoin {
  uint32_t path = 0, generation = 0;
  OfferedRail rail;
};
inline constexpr uint32_t kRejoin = 4;

// Frames. Both ends count each queue pair's frames, including writes with immediate data. The counts make up the
// credits, and after a failure they show which frames arrived.
enum class FrameKind : uint8_t {
  kData = 2,       // `bytes` at `offset` of message `sequence`, which has `total` bytes
  kAnnounce = 3,   // the RECV of message `sequence`, of `total` bytes and `mark`, is posted; an Announcement follows
  kPosted = 4,     // only carries `posted`
  kWant = 5,       // message `sequence` has `total` bytes and `mark`, and waits for its RECV's announcement
  kMismatch = 6,   // message `sequence`, of `total` bytes and `mark`, differs from its RECV and will not come
  kDiscard = 7,    // the RECV of message `sequence` differs from it: the message is not wanted
  kControl = 8,    // a control message
  kCredit = 9,     // only carries `freed`
  kPathDown = 10,  // PathDown: path `sequence`, taken `total`, generation `offset`
  kBye = 11,       // orderly end
  kFence = 12      // a frame about credit is to answer: all before it were taken in
};

struct Frame {
  FrameKind kind;
  uint8_t reserved;
  uint16_t lane;
  uint32_t freed;     // frames of this queue pair that the sender has taken in: the peer's credit
  uint32_t sequence;  // message of the lane
  uint32_t posted;    // RECVs that the sender has posted on the lane so far
  uint32_t bytes;     // payload of this frame
  uint32_t total;     // of the message
  uint32_t offset;
  uint32_t mark;  // of the message
};
static_assert(sizeof(Frame) == 32);

// The target of a message's writes. Address 0: no direct writes; the message travels in frames.
struct Announcement {
  uint64_t address;
  uint32_t keys[kMaxRails];  // remote keys, by pair of rails
};

// Immediate data of a write: the lane and the message that it is a part of.
constexpr uint32_t immediate(uint32_t lane, uint32_t sequence) { return lane << 16 | (sequence & 0xffff); }
inline constexpr uint32_t kMaxLanes = 65536;

}  // namespace tutti::ib
