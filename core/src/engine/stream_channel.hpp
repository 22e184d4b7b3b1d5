// SPDX-License-Identifier: Apache-2.0
//
// One way between a stream of this rank and a stream of a rank in another process: a ring of slots with two words each.
// A word is waited for by one end only, which resets it as soon as it has come; the other end sets it:
//
//   sender     wait empty = 1, empty = 0, copy into the slot, full = 1
//   receiver   wait full = 1, full = 0, read the slot, empty = 1
//
// A StagedChannel has its slots in host memory, and this rank's processors are the other end: they move the bytes over
// a link. They only look, so nothing inside the device ever waits for a processor that waits for the device. A
// MappedChannel (mapped_channel.hpp) has its slots in the sender's device memory, which the receiver has mapped, and
// the other end is the peer's stream.
#pragma once

#include <tutti/registry.h>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "engine/link.hpp"

namespace tutti::core {

// Host memory that a device sees: pages of its own, or those of a file that others map too.
class MappedMemory {
 public:
  MappedMemory(const DeviceTables& device, uint64_t bytes, int file = -1);
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;
  ~MappedMemory();
  std::byte* host() const { return host_; }
  std::byte* device() const { return device_; }

 private:
  DeviceTables tables_;
  uint64_t bytes_;
  std::byte* host_ = nullptr;
  std::byte* device_ = nullptr;
};

class StreamChannel {
 public:
  static constexpr uint32_t slots = 4;
  static constexpr uint64_t slot_bytes = 1u << 20;
  static constexpr uint64_t words_bytes = slots * 128;  // each word in a cache line of its own

  StreamChannel(const StreamChannel&) = delete;
  StreamChannel& operator=(const StreamChannel&) = delete;
  virtual ~StreamChannel() = default;

  // Of the k-th fragment since the channel was made, as the device sees it: the slot, the word that this rank's stream
  // waits for, and the one that it sets.
  void* slot(uint64_t k) const { return data_ + k % slots * slot_bytes; }
  uint32_t* awaited(uint64_t k) const { return word(device_words_, k, !outgoing_); }
  uint32_t* told(uint64_t k) const { return word(device_words_, k, outgoing_); }

  // Fragments that were announced so far: the number of the next one.
  uint64_t announced() const { return announced_; }
  // The next fragment will have so many bytes (at most slot_bytes).
  virtual void announce(uint64_t bytes) = 0;
  // Fragments that this rank has no more to do for once its stream has done its part.
  virtual uint64_t finished() const = 0;
  // Moves what can be moved; true when something was. Throws Failure when the transport failed.
  virtual bool advance(const std::function<bool(Link&)>& connect) = 0;
  // Gives the stream whatever it waits for, so that it comes to its end; what it reads is undefined.
  void let_go();
  // "at fragment 3 to rank 1 over tcp", for messages; "": nothing is under way.
  virtual std::string where() const = 0;
  // What carries the bytes, for reports.
  virtual const char* carrier() const = 0;

 protected:
  StreamChannel(Link* link, bool outgoing) : link_(link), outgoing_(outgoing) {}
  void place(std::byte* data, const MappedMemory& words, uint64_t offset);
  uint32_t* host_word(uint64_t k, bool full) const { return word(host_words_, k, full); }

  Link* const link_;
  const bool outgoing_;
  uint64_t announced_ = 0;

 private:
  static uint32_t* word(std::byte* words, uint64_t k, bool full) {
    return reinterpret_cast<uint32_t*>(words + k % slots * 128 + (full ? 64 : 0));
  }
  std::byte* data_ = nullptr;  // the slots, as the device sees them
  std::byte* host_words_ = nullptr;
  std::byte* device_words_ = nullptr;
};

class StagedChannel final : public StreamChannel {
 public:
  StagedChannel(const DeviceTables& device, Link* link, uint32_t transport_lane, bool outgoing);
  void announce(uint64_t bytes) override;
  uint64_t finished() const override { return finished_; }
  bool advance(const std::function<bool(Link&)>& connect) override;
  std::string where() const override;
  const char* carrier() const override { return link_->port->api->name; }

 private:
  bool busy() const { return finished_ != announced_; }
  std::byte* host_slot(uint64_t k) const { return memory_.host() + k % slots * slot_bytes; }
  Flow& flow(uint64_t k) { return outgoing_ ? static_cast<Flow&>(out_[k % slots]) : in_[k % slots]; }
  bool start(uint64_t k);

  MappedMemory memory_;
  uint32_t lane_;
  std::array<Outflow, slots> out_;
  std::array<Inflow, slots> in_;
  std::deque<uint64_t> sizes_;  // of fragments finished_ .. announced_
  uint64_t started_ = 0, finished_ = 0;
};

}  // namespace tutti::core
