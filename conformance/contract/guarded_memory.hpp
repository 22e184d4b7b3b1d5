// SPDX-License-Identifier: Apache-2.0
//
// Memory that tells on whoever leaves it: it ends at a page that may not be touched, what lies before it is checked,
// and it can be made untouchable itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tutti::conformance::contract {

class GuardedMemory {
 public:
  static constexpr uint8_t fresh = 0xEE;
  // `bytes` bytes of `fresh` that end `slack` bytes before an untouchable page; what touches that page breaks
  // `clause`.
  explicit GuardedMemory(size_t bytes, size_t slack = 0, const char* clause = "T-16");
  ~GuardedMemory();
  GuardedMemory(GuardedMemory&& other) noexcept;
  GuardedMemory& operator=(GuardedMemory&&) = delete;

  uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  // Throws Broken(T-16) when a byte of the pages outside of the memory has changed.
  void check_surroundings() const;
  // From now on any touch breaks `clause`; both texts are literals. Every second memory of a transfer stays writable:
  // page protection fails the late write of an adapter or of another process in silence. Such memory is kept beyond the
  // object's life and compared (require_untouched).
  void forbid(const char* clause, const char* text);
  // From now on writing breaks T-16.
  void forbid_writing();
  void allow();

 private:
  uint8_t* pages_ = nullptr;
  size_t page_bytes_ = 0;  // of the middle, without the guards
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
  int guards_[2] = {-1, -1};
  int watch_ = -1;
  const char* kept_clause_ = nullptr;  // forbidden, but writable
  const char* kept_text_ = nullptr;
};

// Throws Broken if forbidden memory that stayed writable has been written. Waits a moment first, since late writes come
// late. At the end of a case, when its objects are gone.
void require_untouched();
// Returns such memory to the system, for cases that count what is mapped.
void drop_kept_memory();

// "heap, 24 bytes from byte 7: expected 01 02, got ff ff": the first difference of two byte ranges; "" when equal.
std::string first_difference(const uint8_t* expected, const uint8_t* got, size_t bytes);

}  // namespace tutti::conformance::contract
