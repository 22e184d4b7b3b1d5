// SPDX-License-Identifier: Apache-2.0
//
// A channel between streams of two processes of one host without the hosts' help: the slots are device memory of the
// sender, which the receiver has mapped and reads from, and the flags are memory that both devices see.
//
// The sender shares slots and flags (peer_memory.hpp), and the receiver maps them. All of that is done before the first
// fragment: while streams wait for flags nothing may synchronise a device. Slots are the library's own memory, made
// once and mapped once, so no address of a call's buffers ever leaves its process: buffers may come, go and come again
// at the same address. The sender's end is released when the receiver has unmapped it.
#pragma once

#include "stream/peer_memory.hpp"
#include "stream/stream_channel.hpp"

namespace tutti::core {

class MappedChannel final : public StreamChannel {
 public:
  // The sender's end, for a receiver that has not mapped it yet: on the device, as rank `self`. Throws Failure, and the
  // peer is told, where memory cannot be shared.
  static std::unique_ptr<MappedChannel> share(PeerMemory& memory, const DeviceMemory& device, Link* link, uint32_t self,
                                              uint32_t lane);
  // Either end. `ring` has the slots.
  MappedChannel(PeerMemory& memory, Link* link, bool outgoing, const PeerRegion& ring, const PeerRegion& flags);
  // No command names it any more.
  ~MappedChannel() override;

  // The sender's: has the receiver mapped both? Throws Failure with its reason where it cannot.
  bool is_mapped() const { return memory_.has_mapped(slots_) && memory_.has_mapped(flags_); }

  void announce(uint64_t bytes, uint64_t operation) override;
  bool sends(uint64_t) const override { return false; }  // nobody has to
  bool advance() override;
  std::string where() const override { return {}; }  // only the streams know
  const char* carrier() const override { return mapped; }
  static constexpr const char* mapped = "mapped";

  uint32_t peer() const { return slots_.peer; }
  bool outgoing() const { return outgoing_; }
  uint64_t bytes() const { return bytes_; }  // of all fragments announced

 private:
  PeerMemory& memory_;
  PeerRegion slots_, flags_;
  uint64_t bytes_ = 0;
  std::array<uint32_t, 2 * slots> seen_{};
};

}  // namespace tutti::core
