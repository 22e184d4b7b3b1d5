// SPDX-License-Identifier: Apache-2.0
#include "base/call_timeout.hpp"

#include <fmt/format.h>

namespace tutti::core {

std::string CallTimeout::text(uint64_t call_ns) const {
  return fmt::format("{:.1f} s ({})", static_cast<double>(call_ns) * 1e-9, source_of(call_ns));
}

}  // namespace tutti::core
