// SPDX-License-Identifier: Apache-2.0
//
// operator new of a test program that counts allocations. For one source file of the program, which defines
// note_allocation(): it is called before each.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace tutti::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool countable = false;  // the sanitizer has put its own functions in their place
#else
constexpr bool countable = true;
#endif

void note_allocation();

inline void* allocate(size_t bytes, size_t alignment) {
  note_allocation();
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment < sizeof(void*) ? sizeof(void*) : alignment, bytes ? bytes : 1) != 0)
    throw std::bad_alloc();
  return memory;
}

}  // namespace tutti::test

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Not inlined: the compiler would miss that these allocate and free alike.
#define TUTTI_TEST_REPLACED [[gnu::noinline]]
TUTTI_TEST_REPLACED void* operator new(size_t bytes) {
  return tutti::test::allocate(bytes, alignof(std::max_align_t));
}
TUTTI_TEST_REPLACED void* operator new[](size_t bytes) { return operator new(bytes); }
TUTTI_TEST_REPLACED void* operator new(size_t bytes, std::align_val_t to) {
  return tutti::test::allocate(bytes, static_cast<size_t>(to));
}
TUTTI_TEST_REPLACED void* operator new[](size_t bytes, std::align_val_t to) { return operator new(bytes, to); }
TUTTI_TEST_REPLACED void operator delete(void* memory) noexcept { std::free(memory); }
TUTTI_TEST_REPLACED void operator delete[](void* memory) noexcept { std::free(memory); }
TUTTI_TEST_REPLACED void operator delete(void* memory, size_t) noexcept { std::free(memory); }
TUTTI_TEST_REPLACED void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
TUTTI_TEST_REPLACED void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
TUTTI_TEST_REPLACED void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
TUTTI_TEST_REPLACED void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
TUTTI_TEST_REPLACED void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
#undef TUTTI_TEST_REPLACED
#endif
