// SPDX-License-Identifier: Apache-2.0
//
// A channel between streams of two processes of one host without the hosts' help: the slots are device memory of the
// sender, which the receiver has mapped and reads from, and the flags are memory that both devices see.
//
// The sender shares slots and flags (peer_memory.hpp), and the receiver maps them. All of that is done before the first
// fragment: while streams wait for flags nothing may synchronise a device. Slots are the library's own memory, made
// once and mapped once, so no address of a call's buffers ever leaves its process: buffers may come, go and come again
// at the same address. The sender's end is released when the receiver has unmapped it.
//
// No transport compares the sizes of what is sent and what is expected. So behind the flags there is a log: of each of
// the last fragments of collectives the sender's processor leaves a digest of all fragments up to it, and the
// receiver's compares it with its own. A difference is found at the latest when both have begun another operation.
#pragma once

#include "stream/peer_memory.hpp"
#include "stream/stream_channel.hpp"

namespace tutti::core {

class MappedChannel final : public StreamChannel {
 public:
  // The sender's end, for a receiver that has not mapped it yet: on the device, as rank `self`. Throws Failure, and
  // tells the peer, where memory cannot be shared.
  static std::unique_ptr<MappedChannel> share(PeerMemory& memory, const DeviceMemory& device, uint32_t peer,
                                              uint32_t self, uint32_t lane);
  // Either end. `ring` has the slots.
  MappedChannel(PeerMemory& memory, bool outgoing, const PeerRegion& ring, const PeerRegion& flags);
  // No command names it any more.
  ~MappedChannel() override;

  // The sender's: has the receiver mapped both? Throws Failure with its reason where it cannot.
  bool is_mapped() const { return memory_.has_mapped(slots_) && memory_.has_mapped(flags_); }

  void announce(uint64_t bytes, uint64_t operation, std::optional<uint64_t> sequence) override;
  bool advance() override;
  const char* carrier() const override { return mapped; }
  static constexpr const char* mapped = "mapped";
  static constexpr uint64_t logged = 64;  // fragments
  // Host memory: flags and log.
  static constexpr uint64_t shared_bytes = flags_bytes(slots) + logged * sizeof(uint64_t);

 private:
  void compare();

  PeerMemory& memory_;
  PeerRegion slots_, flags_;
  // A digest, and below it the number of the fragment from 1 on, at that number modulo `logged`. 0: none yet.
  uint64_t* sent_;                                 // the sender's log, in host memory that both have
  std::array<uint64_t, logged> expected_{};        // the receiver's own
  uint64_t digest_ = 0, last_ = 0, compared_ = 0;  // of the newest fragment; up to it they agree
};

}  // namespace tutti::core
