// SPDX-License-Identifier: Apache-2.0
//
// Has this process been forked since? A number that a child finds raised; reading it costs a load, unlike getpid.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace tutti::core {

inline uint64_t fork_generation() {
  static std::atomic<uint64_t> generation{0};
  [[maybe_unused]] static const int registered =
      pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });
  return generation.load(std::memory_order_relaxed);
}

}  // namespace tutti::core
