// SPDX-License-Identifier: Apache-2.0
//
// What the adapter does to a device's memory for the processor, which can neither write nor read it, over a queue pair
// that is connected to itself. It is waited for, as for a memcpy: microseconds.
#pragma once

#include "verbs.hpp"

namespace tutti::ib {

class Rail;
struct Region;

class Placer {
 public:
  // For at most `bytes` at once. Throws sdk::Error.
  Placer(const Rail& rail, uint64_t bytes);
  // Copies bytes into it. For small messages, which arrive in frames; large ones are written where they belong by the
  // sender. Throws sdk::Error, at the latest after two seconds; what is under way then ends with the placer.
  void place(const Region& region, char* to, const char* from, uint64_t bytes);
  // Reads a byte of it: on its way to the device a read does not pass the writes that this adapter did before, so these
  // have arrived when it comes back. Throws like place.
  void flush(const Region& region, const char* at);
  // It has thrown: its queue pair is of no more use.
  bool is_broken() const { return is_broken_; }

 private:
  void carry_out(ibv_wr_opcode opcode, const Region& region, const char* there, uint64_t bytes, const char* cannot);

  const Rail& rail_;
  Slab slab_;
  CompletionQueue cq_;
  QueuePair qp_;
  bool is_broken_ = false;
};

}  // namespace tutti::ib
