// SPDX-License-Identifier: Apache-2.0
//
// Copying into memory that another core has in its cache. An ordinary store must first fetch each line from that core,
// a non-temporal one need not: for messages of some size that is ten times faster.
#pragma once

#include <cstdint>
#include <cstring>
#include <tutti/sdk/plugin.hpp>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tutti::sdk {
inline namespace TUTTI_SDK_NAMESPACE {
namespace local {

// Orders all earlier stores, non-temporal ones included, before the stores that follow.
inline void order_stores() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

// Copies with non-temporal stores; `to` is aligned to 64 bytes. order_stores() must come before the message is
// published.
inline void stream_copy(uint8_t* to, const uint8_t* from, uint64_t bytes) {
  uint64_t done = 0;
#if defined(__SSE2__)
  for (; done + 64 <= bytes; done += 64) {
    const auto* source = reinterpret_cast<const __m128i*>(from + done);
    auto* target = reinterpret_cast<__m128i*>(to + done);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
#endif
  if (done < bytes) std::memcpy(to + done, from + done, bytes - done);
}

}  // namespace local
}  // namespace TUTTI_SDK_NAMESPACE
}  // namespace tutti::sdk
