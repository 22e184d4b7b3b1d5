// SPDX-License-Identifier: Apache-2.0
//
// One way between a stream of this rank and a stream of a rank in another process: a ring of slots in host memory, with
// a word for each. A word is 0 while its slot is empty and 1 while it is full, and whoever waited for a value sets the
// other one:
//
//   outgoing   stream: wait 0, copy into the slot, write 1     here: send the slot's bytes over the link, set 0
//   incoming   here: receive into the slot, set 1              stream: wait 1, read the slot, write 0
//
// Neither side ever waits inside the device for a processor that waits for the device: this end only looks.
#pragma once

#include <tutti/registry.h>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "engine/link.hpp"

namespace tutti::core {

// Host memory that a device sees.
class MappedMemory {
 public:
  MappedMemory(const DeviceTables& device, uint64_t bytes);
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;
  ~MappedMemory();
  std::byte* host() const { return host_; }
  std::byte* device() const { return device_; }

 private:
  DeviceTables tables_;
  std::byte* host_ = nullptr;
  std::byte* device_ = nullptr;
};

class StreamChannel {
 public:
  static constexpr uint32_t slots = 4;
  static constexpr uint64_t slot_bytes = 256u << 10;

  StreamChannel(const DeviceTables& device, Link* link, uint32_t transport_lane, bool outgoing);

  // The device's addresses of the slot and the word of the k-th fragment since the channel was made.
  void* slot(uint64_t k) const { return memory_.device() + k % slots * slot_bytes; }
  uint32_t* word(uint64_t k) const { return reinterpret_cast<uint32_t*>(memory_.device() + word_offset(k)); }

  // Fragments that were announced so far: the number of the next one.
  uint64_t announced() const { return announced_; }
  // The next fragment will have so many bytes (at most slot_bytes).
  void announce(uint64_t bytes);
  uint64_t finished() const { return finished_; }
  bool busy() const { return finished_ != announced_; }
  // Moves what can be moved; true when something was. Throws Failure when the transport failed.
  bool advance(const std::function<bool(Link&)>& connect);
  // Gives the stream whatever it waits for, so that it comes to its end; what it reads is undefined.
  void let_go();
  // "fragment 3 of the bytes for rank 1 over tcp", for messages.
  std::string where() const;

 private:
  static uint64_t word_offset(uint64_t k) { return slots * slot_bytes + k % slots * 64; }
  std::byte* host_slot(uint64_t k) const { return memory_.host() + k % slots * slot_bytes; }
  uint32_t* host_word(uint64_t k) const { return reinterpret_cast<uint32_t*>(memory_.host() + word_offset(k)); }
  Flow& flow(uint64_t k) { return outgoing_ ? static_cast<Flow&>(out_[k % slots]) : in_[k % slots]; }
  bool start(uint64_t k);

  MappedMemory memory_;
  Link* link_;
  uint32_t lane_;
  bool outgoing_;
  std::array<Outflow, slots> out_;
  std::array<Inflow, slots> in_;
  std::deque<uint64_t> sizes_;  // of fragments finished_ .. announced_
  uint64_t announced_ = 0, started_ = 0, finished_ = 0;
};

}  // namespace tutti::core
