// SPDX-License-Identifier: Apache-2.0
//
// The function that one of a test program replaces.
#pragma once

#include <dlfcn.h>

#include <atomic>

namespace tutti::test {

// Threads that come at once all look it up: the guard of a static would wait by syscall(), which may be one of them.
template <typename Function>
class Real {
 public:
  constexpr explicit Real(const char* name) : name_(name) {}
  Function* operator*() {
    Function* known = function_.load(std::memory_order_relaxed);
    if (!known)
      function_.store(known = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name_)), std::memory_order_relaxed);
    return known;
  }

 private:
  const char* const name_;
  std::atomic<Function*> function_{nullptr};
};

}  // namespace tutti::test
