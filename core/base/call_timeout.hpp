// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace tutti::core {

// How long a communicator's calls may stand still, and what has set that time.
struct CallTimeout {
  static constexpr const char* of_the_call = "the call's timeout";

  uint64_t ns = 0;
  const char* source = "";

  // The source of a call's timeout. A call that sets the same time as its communicator counts as one that sets none.
  const char* source_of(uint64_t call_ns) const { return call_ns == ns ? source : of_the_call; }
  // "3.0 s (the call's timeout)": the time that was too long, and what has set it.
  std::string text(uint64_t call_ns) const;
};

}  // namespace tutti::core
