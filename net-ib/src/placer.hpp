// SPDX-License-Identifier: Apache-2.0
//
// Copies bytes into a device's memory, which no processor can write: the adapter does it, by a write over a queue pair
// that is connected to itself. It is waited for, as for a memcpy: microseconds. For small messages, which arrive in
// frames; large ones are written where they belong by the sender.
#pragma once

#include "verbs.hpp"

namespace tutti::ib {

class Rail;
struct Region;

class Placer {
 public:
  // For at most `bytes` at once. Throws sdk::Error.
  Placer(const Rail& rail, uint64_t bytes);
  // Throws sdk::Error, at the latest after two seconds; what is under way then ends with the placer.
  void place(const Region& region, char* to, const char* from, uint64_t bytes);

 private:
  const Rail& rail_;
  Slab slab_;
  CompletionQueue cq_;
  QueuePair qp_;
};

}  // namespace tutti::ib
