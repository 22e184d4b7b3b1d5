// SPDX-License-Identifier: Apache-2.0
//
// Threads that run out of memory. It replaces the program's operator new: one source of a program includes it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace tutti::test {

// Allocations of this thread until one fails; negative: none does.
inline thread_local int64_t allocations_left = -1;
inline thread_local bool lasts = false;  // all that follow fail, too
inline thread_local bool failed = false;

// While set, threads that the test has not started itself get no memory.
inline std::atomic<bool> library_starves{false};
inline thread_local bool mine = false;

inline void* allocate(size_t bytes, size_t alignment) {
  if (library_starves && !mine) throw std::bad_alloc();
  if (allocations_left == 0) {
    if (!lasts) allocations_left = -1;
    failed = true;
    throw std::bad_alloc();
  }
  if (allocations_left > 0) --allocations_left;
  void* memory = nullptr;
  if (posix_memalign(&memory, std::max(alignment, sizeof(void*)), std::max<size_t>(bytes, 1)) != 0)
    throw std::bad_alloc();
  return memory;
}

}  // namespace tutti::test

// Not inlined: the compiler would miss that these allocate and free alike.
#define REPLACED [[gnu::noinline]]
REPLACED void* operator new(size_t bytes) { return tutti::test::allocate(bytes, alignof(std::max_align_t)); }
REPLACED void* operator new[](size_t bytes) { return tutti::test::allocate(bytes, alignof(std::max_align_t)); }
REPLACED void* operator new(size_t bytes, std::align_val_t to) {
  return tutti::test::allocate(bytes, static_cast<size_t>(to));
}
REPLACED void* operator new[](size_t bytes, std::align_val_t to) {
  return tutti::test::allocate(bytes, static_cast<size_t>(to));
}
REPLACED void* operator new(size_t bytes, const std::nothrow_t&) noexcept try {
  return tutti::test::allocate(bytes, alignof(std::max_align_t));
} catch (const std::bad_alloc&) {
  return nullptr;
}
REPLACED void* operator new[](size_t bytes, const std::nothrow_t& none) noexcept { return operator new(bytes, none); }
REPLACED void operator delete(void* memory) noexcept { std::free(memory); }
REPLACED void operator delete[](void* memory) noexcept { std::free(memory); }
REPLACED void operator delete(void* memory, size_t) noexcept { std::free(memory); }
REPLACED void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
REPLACED void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
REPLACED void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
REPLACED void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
REPLACED void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
#undef REPLACED
