// SPDX-License-Identifier: Apache-2.0
//
// The wire formats: pair messages between two endpoints, and frames on the comms. All integers are little-endian.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <tutti/sdk/pair_messages.hpp>

#include <tutti/sdk/nccl_net.hpp>

namespace tutti::nccl {

inline constexpr sdk::PairFormat kPairFormat{.transport = "nccl", .magic = 0x4c43'4e54, .version = 1};  // "TNCL"

inline constexpr uint32_t kWindow = 4;  // messages of a lane that may leave before their RECV is known to be posted
inline constexpr uint32_t kQueueDepth = 16;  // SENDs and RECVs of a lane that are always accepted
inline constexpr uint64_t kControlBytes = 256;
inline constexpr size_t kComms = 2;  // in each direction: of frames, of long messages
enum CommIndex : size_t { kFrames = 0, kBulk = 1 };

// The names of Card::settings.
inline constexpr std::array kSettingNames{
    "the number of ranks", "the number of lanes",
    "the largest message in a frame (TUTTI_NCCL_NET_EAGER_BYTES, or less by the adapter)",
    "the largest message (TUTTI_NCCL_NET_FRAGMENT_BYTES, or less by the adapter)"};

// Each end's Card (sdk::CardExchange): its settings and the handles by which the peer connects.
struct Card {
  std::array<uint64_t, kSettingNames.size()> settings;
  uint64_t has_device;           // 1: messages lie in device memory, which the processor does not access
  std::array<char, 64> network;  // the plugin's name
  std::array<std::array<char, kHandleBytes>, kComms> handles;

  std::string flaw() const { return has_device > 1 || network.back() != 0 ? "it has no such fields" : ""; }
};

// Another pair message: all comms of this end are connected, so that it cannot fail any more.
inline constexpr uint32_t kReady = 2;
struct Ready {
  uint64_t zero;
};

// Frames. `taken` counts the messages of the lane that the frame's sender has given to RECVs (modulo 2^32). Message s
// of a lane may leave when s < taken + kWindow.
enum class FrameKind : uint32_t {
  kData = 0x4e43'0001,      // `bytes` of payload follow: the lane's next message
  kAnnounce = 0x4e43'0002,  // the lane's next message has `bytes`, which wait to be asked for
  kClear = 0x4e43'0003,     // asks for the message of the lane with the number `mark`, with `tag`
  kRefuse = 0x4e43'0004,    // does not want that message: it met a RECV of another size or mark
  kTaken = 0x4e43'0005,     // carries `taken` only
  kControl = 0x4e43'0006,   // a control message of `bytes` follows
  kBye = 0x4e43'0007        // orderly end. It comes as often as the peer has begun receives, so that none stays
};

struct Frame {
  FrameKind kind;
  uint32_t lane;
  uint32_t taken;
  uint32_t bytes;
  uint32_t mark;
  uint32_t tag;
};
static_assert(sizeof(Frame) == 24);
// The payload that follows a frame.
inline uint64_t payload_of(const Frame& frame) {
  return frame.kind == FrameKind::kData || frame.kind == FrameKind::kControl ? frame.bytes : 0;
}

}  // namespace tutti::nccl
