// SPDX-License-Identifier: Apache-2.0
#include "base/graveyard.hpp"

#include <atomic>
#include <new>

namespace tutti::core {
namespace {

struct Kept {
  const void* object;
  const char* reason;
  Kept* before;
};
std::atomic<Kept*> newest{nullptr};

}  // namespace

void keep_for_ever(const void* object, const char* reason) noexcept {
  if (!object) return;
  Kept* const kept = new (std::nothrow) Kept{object, reason, newest.load(std::memory_order_relaxed)};
  while (kept && !newest.compare_exchange_weak(kept->before, kept, std::memory_order_release)) {
  }
}

}  // namespace tutti::core
