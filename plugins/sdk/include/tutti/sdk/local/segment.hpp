// SPDX-License-Identifier: Apache-2.0
//
// The memory that two ranks share: the layout of a pair's segment and of an endpoint's doorbell page. The other side
// can write all of it, so the reader checks each value. Zeroed memory is the valid initial state.
//
// A segment has two directions (0: from the lower rank to the higher, 1: back), each with a control ring, one LaneRing
// per lane and, from the next page on, each lane's data slots. Pages are touched only when they are used.
//
// Message n of a lane uses descriptor n % kDepth and is there when that descriptor's sequence is n + 1 (modulo 2^32);
// payload and sequence of a small message are one cache line, so it moves one line. Messages of more than kInlineBytes
// lie in the lane's data slots, used in turn. `released` counts the messages that the receiver has given back; the
// sender reads it only when its own copy says that there is no room.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <tutti/sdk/plugin.hpp>

namespace tutti::sdk {
inline namespace TUTTI_SDK_NAMESPACE {
namespace local {

inline constexpr uint32_t kDepth = 8;            // descriptors of a lane and direction
inline constexpr uint32_t kMaxSlots = kDepth;    // more data slots than descriptors could never be in use
inline constexpr uint32_t kInlineBytes = 48;     // payload that travels inside the descriptor
inline constexpr uint32_t kControlDepth = 16;    // control messages under way per direction
inline constexpr uint32_t kControlBytes = 256;   // the longest control message
inline constexpr uint32_t kMaxLanes = 1u << 14;  // keeps every size below far from overflow
inline constexpr uint64_t kPage = 4096;
// The largest number of a first message (Settings::first). A sequence of zero must not look like the message before the
// wrap to a reader of memory that nobody has written.
inline constexpr uint64_t kLastFirst = (uint64_t{1} << 32) - 1 - kControlDepth;
static_assert(kControlDepth >= kDepth);

static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);

// Where a message's bytes are. kReference: the payload says where, in words of the transport's own.
enum MessageKind : uint32_t { kInline = 1, kData = 2, kReference = 3 };

struct alignas(64) Descriptor {
  std::atomic<uint32_t> sequence;
  std::atomic<uint32_t> kind;
  std::atomic<uint32_t> bytes;
  std::atomic<uint32_t> mark;
  uint8_t payload[kInlineBytes];
};
static_assert(sizeof(Descriptor) == 64);

struct LaneRing {
  Descriptor descriptors[kDepth];
  alignas(128) std::atomic<uint64_t> released;  // 128: not in the pair of lines that a prefetcher fetches together
};
static_assert(sizeof(LaneRing) == 640);

struct alignas(64) ControlSlot {
  std::atomic<uint32_t> sequence;
  std::atomic<uint32_t> bytes;
  alignas(64) uint8_t data[kControlBytes];
};

struct ControlRing {
  ControlSlot slots[kControlDepth];
  alignas(128) std::atomic<uint64_t> released;
};

// Where things lie in a segment.
struct Geometry {
  uint32_t lanes;
  uint32_t slots;
  uint64_t slot_bytes;

  uint64_t slots_offset() const { return (sizeof(ControlRing) + lanes * sizeof(LaneRing) + kPage - 1) / kPage * kPage; }
  uint64_t direction_bytes() const { return slots_offset() + uint64_t{lanes} * slots * slot_bytes; }
  uint64_t segment_bytes() const { return 2 * direction_bytes(); }
};

// One direction of a mapped segment.
class Direction {
 public:
  Direction() = default;
  Direction(uint8_t* segment, const Geometry& geometry, uint32_t direction)
      : base_(segment + direction * geometry.direction_bytes()), geometry_(geometry) {}
  ControlRing* control() const { return reinterpret_cast<ControlRing*>(base_); }
  LaneRing* lane(uint32_t lane) const { return reinterpret_cast<LaneRing*>(base_ + sizeof(ControlRing)) + lane; }
  uint8_t* slots(uint32_t lane) const {
    return base_ + geometry_.slots_offset() + uint64_t{lane} * geometry_.slots * geometry_.slot_bytes;
  }

 private:
  uint8_t* base_ = nullptr;
  Geometry geometry_{};
};

// An endpoint's own page(s), which all its peers map. `sleeps` is 1 while the endpoint sleeps on its descriptor: a peer
// that makes something ready and then reads 1 swaps it to 0 and rings the eventfd. One of the two must see the other's
// store, so that no wake-up is lost:
// - `barriers` is 1: between its store and its look for news the endpoint makes a barrier on the peers' threads
//   (host_barrier.hpp). A peer whose process these barriers reach stores and looks in program order, no more.
// - Otherwise both sides use seq_cst operations.
// Bit r of `control` says that rank r sent a control message.
struct Doorbell {
  alignas(64) std::atomic<uint32_t> sleeps;
  std::atomic<uint32_t> barriers;

  static uint64_t control_words(uint32_t nranks) { return (uint64_t{nranks} + 63) / 64; }
  static uint64_t page_bytes(uint32_t nranks) {
    return (sizeof(Doorbell) + control_words(nranks) * sizeof(uint64_t) + kPage - 1) / kPage * kPage;
  }
  // The words follow on lines of their own.
  std::atomic<uint64_t>& control(uint64_t word) { return reinterpret_cast<std::atomic<uint64_t>*>(this + 1)[word]; }
};
static_assert(sizeof(Doorbell) == 64);

}  // namespace local
}  // namespace TUTTI_SDK_NAMESPACE
}  // namespace tutti::sdk
