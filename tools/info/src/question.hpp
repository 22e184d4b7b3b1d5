// SPDX-License-Identifier: Apache-2.0
//
// Questions that need ranks: makes a communicator, asks, and closes it.
#pragma once

#include <string>

#include "options.hpp"

namespace info {

struct Answer {
  bool speaks = false;  // this process has rank 0
  uint32_t nranks = 0;
  std::string topology, explanation;  // "" when not asked
  std::string file;                   // the topology as a file; "" when nobody saves or draws it
  bool assumed = false;               // nobody said how many ranks
};

// With options.nranks ranks as threads of this process, or as one rank of the launcher's job. Without either an
// explanation is for one rank for each processor of this host. With options.file no rank is made. Throws tutti::Error,
// or std::runtime_error for a file that is wrong.
Answer ask_ranks(const Options& options);

}  // namespace info
