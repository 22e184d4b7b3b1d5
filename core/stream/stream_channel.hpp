// SPDX-License-Identifier: Apache-2.0
//
// One way between a stream of this rank and a stream of a rank in another process: a ring of places with two flags
// each. A flag is waited for by one end only, which resets it as soon as it has come; the other end sets it:
//
//   sender     wait empty = 1, empty = 0, copy into the slot, full = 1
//   receiver   wait full = 1, full = 0, read the slot, empty = 1
//
// There are three kinds of channels.
//   * A StagedChannel's slots (staging_slots.hpp) are this rank's own, and its processors are the other end: they have
//     a link's transport send and fill them. They only look, so nothing inside the device ever waits for a processor
//     that waits for the device.
//   * A MappedChannel (mapped_channel.hpp) has its slots in the sender's device memory, which the receiver has mapped,
//     and the other end is the peer's stream.
//   * A WindowChannel (windows.hpp) has a place for each message of an operation, and no slots: the receiver reads a
//     message where the sender has it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/fabric/link.hpp"
#include "stream/mapped_memory.hpp"
#include "stream/staging_slots.hpp"

namespace tutti::core {

class StreamChannel {
 public:
  static constexpr uint32_t slots = 4;
  static constexpr uint64_t slot_bytes = 1u << 20;
  static constexpr uint64_t line = 64;  // each flag has a cache line of its own
  static constexpr uint64_t flags_bytes(uint64_t places) { return places * 2 * line; }

  StreamChannel(const StreamChannel&) = delete;
  StreamChannel& operator=(const StreamChannel&) = delete;
  virtual ~StreamChannel() = default;

  // The k-th fragment since the channel was made, as the device sees it: its slot, the flag that this rank's stream
  // waits for, and the one that it sets.
  void* slot(uint64_t k) const { return data_ + k % slots * slot_bytes; }
  uint32_t* awaited(uint64_t k) const { return flag(device_flags_, k, !outgoing_); }
  uint32_t* notified(uint64_t k) const { return flag(device_flags_, k, outgoing_); }

  // Fragments that were announced so far: the number of the next one.
  uint64_t announced() const { return announced_; }
  // The number of the first fragment that was announced since begin_message().
  uint64_t message() const { return message_; }
  void begin_message() { message_ = announced_; }
  // The next fragment will have so many bytes (at most slot_bytes). Operations are numbered in their order. `sequence`:
  // of a collective, the same at both ends.
  virtual void announce(uint64_t bytes, uint64_t operation, std::optional<uint64_t> sequence) = 0;
  // Has this rank still to send what the stream has put into slots for that operation, or for an earlier one?
  virtual bool sends(uint64_t) const { return false; }
  // Moves what can be moved; true when something was. Throws Failure when the transport failed.
  virtual bool advance() { return false; }
  // Has a stream changed a flag since the last call?
  bool moved();
  // Would the stream go on at once at the k-th fragment? For a stream that has carried out all before it.
  bool may_go_on(uint64_t k) const;
  // Sets every flag that the stream may wait for, so that it comes to its end; what it reads is undefined.
  void release_flags();
  // "at fragment 3 to rank 1 over tcp", for messages; "": nothing is under way, or only the streams know.
  virtual std::string where() const { return {}; }
  // The carrier of the bytes, for reports: a text at one address in all channels alike, which stays there.
  virtual const char* carrier() const = 0;
  // Do processors of the host take part in it?
  virtual bool by_host() const { return false; }
  uint32_t peer() const { return peer_; }
  bool outgoing() const { return outgoing_; }
  uint64_t bytes() const { return bytes_; }  // of all fragments that no transport counts

 protected:
  StreamChannel(uint32_t peer, bool outgoing) : peer_(peer), outgoing_(outgoing) {}
  void init(std::byte* data, std::byte* host_flags, std::byte* device_flags, uint64_t places = slots);
  uint32_t* host_flag(uint64_t k, bool full) const { return flag(host_flags_, k, full); }

  const uint32_t peer_;
  const bool outgoing_;
  uint64_t announced_ = 0;
  uint64_t bytes_ = 0;
  uint64_t places_ = 0;

 private:
  uint32_t* flag(std::byte* flags, uint64_t k, bool full) const {
    return reinterpret_cast<uint32_t*>(flags + (k % places_ * 2 + full) * line);
  }
  uint64_t message_ = 0;
  uint64_t seen_ = 0;          // a digest of the flags
  std::byte* data_ = nullptr;  // the slots, as the device sees them
  std::byte* host_flags_ = nullptr;
  std::byte* device_flags_ = nullptr;
};

class StagedChannel final : public StreamChannel {
 public:
  // On a device. `in_host`: never with slots in device memory.
  StagedChannel(const DeviceTables& tables, uint32_t device, Link* link, uint32_t transport_lane, bool outgoing,
                bool in_host);
  // Why the slots are not device memory; "": they are, or were not to be.
  const std::string& why_in_host() const { return slots_.why_in_host(); }
  void announce(uint64_t bytes, uint64_t operation, std::optional<uint64_t> sequence) override;
  bool sends(uint64_t operation) const override {
    return outgoing_ && busy() && fragment(finished_).operation <= operation;
  }
  bool advance() override;
  std::string where() const override;
  const char* carrier() const override { return carrier_; }
  bool by_host() const override { return true; }

 private:
  bool busy() const { return finished_ != announced_; }
  struct StagedFragment {
    uint64_t bytes, operation;
  };
  const StagedFragment& fragment(uint64_t k) const { return fragments_[k & (fragments_.size() - 1)]; }
  static uint64_t offset_of(uint64_t k) { return k % slots * slot_bytes; }
  Flow& flow(uint64_t k) { return outgoing_ ? static_cast<Flow&>(out_[k % slots]) : in_[k % slots]; }
  bool start(uint64_t k);
  void move(uint64_t k);
  bool ended(uint64_t k);

  Link* const link_;
  MappedMemory flags_;
  StagingSlots slots_;
  const char* const carrier_;
  uint32_t lane_;
  std::array<Outflow, slots> out_;
  std::array<Inflow, slots> in_;
  std::vector<StagedFragment> fragments_;  // finished_ .. announced_: fragment k at k modulo their power of two
  uint64_t started_ = 0, finished_ = 0;
};

}  // namespace tutti::core
