// SPDX-License-Identifier: Apache-2.0
//
// A channel between streams of two processes of one host without the hosts' help: the slots are device memory of the
// sender, which the receiver has mapped and reads from, and the words are memory that both devices see.
//
// The sender makes its end and offers it (memory_exchange.hpp); the receiver maps what was offered. All of that is done
// before the first fragment: while streams wait for words nothing may synchronise a device. Slots are the library's own
// memory, made once and mapped once, so no address of a call's buffers ever leaves its process: buffers may come, go
// and come again at the same address. The sender's end is released when the receiver has unmapped it.
#pragma once

#include <optional>

#include "bootstrap/descriptor.hpp"
#include "stream/stream_channel.hpp"

namespace tutti::core {

class MappedChannel final : public StreamChannel {
 public:
  // What the receiver maps. Descriptors are -1 where none is needed.
  struct Offer {
    tutti_memory_export memory{};
    Descriptor words;
    Descriptor slots;
  };
  // The sender's end on one of its devices. Throws Failure where memory cannot be exported.
  MappedChannel(const DeviceTables& tables, uint32_t device, Link* link);
  // The receiver's end. Throws Failure where it cannot be mapped.
  MappedChannel(const DeviceTables& tables, uint32_t device, Link* link, const Offer& offer);
  // No command names it any more. Slots that the receiver has not unmapped are kept until the process ends.
  ~MappedChannel() override;

  // The sender's: once.
  Offer take_offer() { return std::move(offer_); }
  // The sender's: the receiver maps nothing of it, or has ended.
  void not_mapped() { not_mapped_ = true; }
  // The sender's: does the receiver still have it mapped?
  bool in_use() const;

  void announce(uint64_t bytes) override;
  uint64_t finished() const override { return announced_; }
  bool advance(const std::function<bool(Link&)>& connect) override;
  std::string where() const override { return {}; }  // only the streams know
  const char* carrier() const override { return mapped; }
  static constexpr const char* mapped = "mapped";

  uint32_t peer() const { return peer_; }
  bool outgoing() const { return outgoing_; }
  uint64_t bytes() const { return bytes_; }  // of all fragments announced

 private:
  uint32_t* unmapped() const { return reinterpret_cast<uint32_t*>(words_->host() + words_bytes); }

  DeviceTables tables_;
  const uint32_t peer_;  // the link may be gone before the channel
  std::optional<MappedMemory> words_;
  void* memory_ = nullptr;  // ours, or the mapping
  Offer offer_;
  bool not_mapped_ = false;
  uint64_t bytes_ = 0;
  std::array<uint32_t, 2 * slots> seen_{};
};

}  // namespace tutti::core
