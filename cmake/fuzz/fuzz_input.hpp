// SPDX-License-Identifier: Apache-2.0
//
// A fuzz target's input, taken apart. What has run out reads as zero, so every input means something.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t bytes) : data_(data), left_(bytes) {}

  bool empty() const { return left_ == 0; }
  template <typename T>
  T take() {
    T value{};
    const size_t n = std::min(sizeof value, left_);
    if (n) std::memcpy(&value, data_, n);
    skip(n);
    return value;
  }
  uint8_t byte() { return take<uint8_t>(); }
  bool flag() { return byte() & 1; }
  // At most `most` bytes.
  std::string bytes(size_t most) {
    const size_t n = std::min(most, left_);
    std::string text(reinterpret_cast<const char*>(data_), n);
    skip(n);
    return text;
  }
  // A length byte and so many bytes.
  std::string text() { return bytes(byte()); }
  std::string rest() { return bytes(left_); }

 private:
  void skip(size_t n) {
    data_ += n;
    left_ -= n;
  }
  const uint8_t* data_;
  size_t left_;
};

// A broken promise is a finding.
#define FUZZ_CHECK(condition) ((condition) ? (void)0 : __builtin_trap())
