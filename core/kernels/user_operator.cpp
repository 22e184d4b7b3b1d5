// SPDX-License-Identifier: Apache-2.0
#include "kernels/user_operator.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <cstring>

#include "base/failure.hpp"

namespace tutti::core {

// The function gets aligned memory that overlaps nothing: the left operand and the result are a block of this stack.
void reduce_by_user(const Reduction& r) {
  constexpr uint64_t block = 8192;
  alignas(64) std::byte left[block], right[block];
  const UserOperator& op = *r.user;
  take_plugin_error();  // an older one
  const uint64_t element = dtype_bytes(r.dtype), bytes = r.count * element;
  for (uint64_t at = 0; at < bytes; at += block) {
    const uint64_t n = std::min(block, bytes - at);
    const auto source = [&](uint32_t i) { return static_cast<const std::byte*>(r.srcs[i]) + at; };
    std::memcpy(left, source(0), n);
    for (uint32_t i = 1; i < r.nsrcs; ++i) {
      const void* in = source(i);
      if (reinterpret_cast<uintptr_t>(in) % element) in = std::memcpy(right, in, n);
      const tutti_status status = op.function(left, in, n / element, r.dtype, op.context);
      if (status == TUTTI_OK) continue;
      const std::string why = take_plugin_error();
      throw Failure(status < 0 ? status : TUTTI_INTERNAL,
                    fmt::format("operator \"{}\" failed on {} x {}: {}", op.name, n / element, dtype_name(r.dtype),
                                !why.empty() ? why
                                : status < 0 ? tutti_status_text(status)
                                             : "its function returned a status that is not an error"));
    }
    for (uint32_t i = 0; i < r.ndsts; ++i) copy(static_cast<std::byte*>(r.dsts[i]) + at, left, n, r.streaming[i]);
  }
}

void multiply(void* dst, const void* src, uint64_t count, uint32_t dtype, const Factor& factor) {
  const ReduceFunction kernel = find_reduction(dtype, TUTTI_PROD);
  const uint64_t element = dtype_bytes(dtype), block = 4096 / element;
  alignas(64) std::byte factors[4096];
  for (uint64_t i = 0; i < std::min(block, count); ++i) std::memcpy(factors + i * element, factor.data(), element);
  for (uint64_t at = 0; at < count; at += block) {
    const void* sources[2] = {static_cast<const std::byte*>(src) + at * element, factors};
    kernel({{static_cast<std::byte*>(dst) + at * element, nullptr},
            1,
            sources,
            2,
            std::min(block, count - at),
            0,
            {false, false}});
  }
}

}  // namespace tutti::core
