// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tutti::core {

// FNV-1a, 64 bits: for telling things apart that nobody has an interest in confusing.
inline uint64_t hash_bytes(const void* data, size_t bytes, uint64_t seed = 0xcbf29ce484222325u) {
  const auto* at = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < bytes; ++i) seed = (seed ^ at[i]) * 0x100000001b3u;
  return seed;
}
inline uint64_t hash_text(std::string_view text, uint64_t seed = 0xcbf29ce484222325u) {
  return hash_bytes(text.data(), text.size(), seed);
}

}  // namespace tutti::core
