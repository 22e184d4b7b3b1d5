// SPDX-License-Identifier: Apache-2.0
//
// Integers and strings as bytes, little-endian, and back with every length checked.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "bootstrap/failure.hpp"

namespace tutti::core {

class WireWriter {
 public:
  WireWriter& u32(uint32_t value) { return integer(value, 4); }
  WireWriter& u64(uint64_t value) { return integer(value, 8); }
  WireWriter& raw(std::string_view value) {
    bytes_.append(value);
    return *this;
  }
  // A length and the bytes.
  WireWriter& text(std::string_view value) { return u64(value.size()).raw(value); }
  std::string take() { return std::move(bytes_); }

 private:
  WireWriter& integer(uint64_t value, int n) {
    for (int i = 0; i < n; ++i) bytes_.push_back(static_cast<char>(value >> (8 * i)));
    return *this;
  }
  std::string bytes_;
};

// Reads what a WireWriter wrote; throws Failure{TUTTI_MISMATCH} naming `what` when the bytes are too few or too many.
// The bytes must outlive the reader.
class WireReader {
 public:
  WireReader(std::string_view bytes, const char* what) : bytes_(bytes), what_(what) {}
  uint32_t u32() { return static_cast<uint32_t>(integer(4)); }
  uint64_t u64() { return integer(8); }
  std::string_view raw(uint64_t n) {
    if (n > bytes_.size())
      throw Failure(TUTTI_MISMATCH, std::string(what_) + ": " + std::to_string(n) + " bytes announced, " +
                                        std::to_string(bytes_.size()) + " left");
    const std::string_view value = bytes_.substr(0, n);
    bytes_.remove_prefix(n);
    return value;
  }
  std::string text() { return std::string(raw(u64())); }
  std::string_view rest() { return raw(bytes_.size()); }
  void end() const {
    if (!bytes_.empty())
      throw Failure(TUTTI_MISMATCH, std::string(what_) + ": " + std::to_string(bytes_.size()) + " bytes too many");
  }

 private:
  uint64_t integer(int n) {
    const std::string_view in = raw(n);
    uint64_t value = 0;
    for (int i = 0; i < n; ++i) value |= static_cast<uint64_t>(static_cast<unsigned char>(in[i])) << (8 * i);
    return value;
  }
  std::string_view bytes_;
  const char* what_;
};

}  // namespace tutti::core
