// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "plan/plan.hpp"

namespace tutti::core {

// A call, up to where the work is in the stream.
struct StreamCall {
  Shape shape;
  const void* in = nullptr;
  void* out = nullptr;
  void* stream = nullptr;
  uint64_t timeout_ns = 0;
  uint64_t sequence = 0;   // among the communicator's collectives
  bool capturing = false;  // the stream records what it is given
};

}  // namespace tutti::core
