// SPDX-License-Identifier: Apache-2.0
//
// One-time tokens: random bytes that a pair message carries, and that a connection from outside must present.
#pragma once

#include <sys/random.h>

#include <cerrno>
#include <cstdint>
#include <span>
#include <tutti/sdk/plugin.hpp>

namespace tutti::sdk {
inline namespace TUTTI_SDK_NAMESPACE {

// Fills with unpredictable bytes, at most 256. Throws Error.
inline void fill_random(std::span<uint8_t> bytes) {
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw system_error("getrandom", errno);
}

// Are they equal? Compares in constant time.
inline bool same_bytes(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  if (a.size() != b.size()) return false;
  volatile uint8_t different = 0;
  for (size_t i = 0; i < a.size(); ++i) different = different | (a[i] ^ b[i]);
  return different == 0;
}

}  // namespace TUTTI_SDK_NAMESPACE
}  // namespace tutti::sdk
