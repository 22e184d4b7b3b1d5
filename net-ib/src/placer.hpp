// SPDX-License-Identifier: Apache-2.0
//
// Access to a device's memory that the processor can neither write nor read: by the adapter, over a queue pair that is
// connected to itself. Each call waits until it is done, which takes microseconds.
#pragma once

#include "verbs.hpp"

namespace tutti::ib {

class Rail;
struct Region;

class Placer {
 public:
  // For at most `bytes` at once. Throws sdk::Error.
  Placer(const Rail& rail, uint64_t bytes);
  // Copies bytes into it: those of messages that arrive in frames. Throws sdk::Error, at the latest after two seconds;
  // the request then ends with the placer.
  void place(const Region& region, char* to, const char* from, uint64_t bytes);
  // Reads a byte of it. A read does not pass the earlier writes of this adapter, so they have arrived when it returns.
  // Throws like place.
  void flush(const Region& region, const char* at);
  // It has thrown, so its queue pair can no longer be used.
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
