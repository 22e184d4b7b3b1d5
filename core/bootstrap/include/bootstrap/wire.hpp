// SPDX-License-Identifier: Apache-2.0
//
// Integers and strings as bytes, little-endian, and back with every length checked.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/failure.hpp"

namespace tutti::core {

// A type that travels says its fields once, in a static function template `fields(wire, value)` that hands them to
// `wire`, a writer or a reader.
template <typename T, typename Wire>
concept TravelsBy = requires(Wire& wire, T& value) {
  T::fields(wire, value);
};

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
  // Each in the form of its type: a number, an enumeration or truth in four or eight bytes, a string as text, a view
  // raw, a vector as its size and its elements, any other type as its fields.
  template <typename... Values>
  WireWriter& operator()(const Values&... values) {
    (put(values), ...);
    return *this;
  }
  std::string take() { return std::move(bytes_); }

 private:
  template <typename Value>
  void put(const Value& value) {
    if constexpr (std::is_same_v<Value, std::string>)
      text(value);
    else if constexpr (std::is_same_v<Value, std::string_view>)
      raw(value);
    else if constexpr (TravelsBy<Value, WireWriter>)
      Value::fields(*this, value);
    else
      integer(static_cast<uint64_t>(value), sizeof value == 8 ? 8 : 4);
  }
  template <typename Element>
  void put(const std::vector<Element>& values) {
    u32(static_cast<uint32_t>(values.size()));
    for (const Element& value : values) put(value);
  }
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
      throw Failure(TUTTI_MISMATCH, fmt::format("{}: {} bytes announced, {} left", what_, n, bytes_.size()));
    const std::string_view value = bytes_.substr(0, n);
    bytes_.remove_prefix(n);
    return value;
  }
  std::string text() { return std::string(raw(u64())); }
  std::string_view rest() { return raw(bytes_.size()); }
  // The converse of the writer's: a view is all that is left.
  template <typename... Values>
  WireReader& operator()(Values&... values) {
    (get(values), ...);
    return *this;
  }
  void end() const {
    if (!bytes_.empty()) throw Failure(TUTTI_MISMATCH, fmt::format("{}: {} bytes too many", what_, bytes_.size()));
  }

 private:
  template <typename Value>
  void get(Value& value) {
    if constexpr (std::is_same_v<Value, std::string>)
      value = text();
    else if constexpr (std::is_same_v<Value, std::string_view>)
      value = rest();
    else if constexpr (std::is_same_v<Value, bool>)
      value = u32() != 0;
    else if constexpr (TravelsBy<Value, WireReader>)
      Value::fields(*this, value);
    else
      value = static_cast<Value>(integer(sizeof value == 8 ? 8 : 4));
  }
  template <typename Element>
  void get(std::vector<Element>& values) {
    // An announced element that has not come ends this: every element takes some bytes.
    for (uint32_t left = u32(); left > 0; --left) get(values.emplace_back());
  }
  uint64_t integer(int n) {
    const std::string_view in = raw(n);
    uint64_t value = 0;
    for (int i = 0; i < n; ++i) value |= static_cast<uint64_t>(static_cast<unsigned char>(in[i])) << (8 * i);
    return value;
  }
  std::string_view bytes_;
  const char* what_;
};

template <TravelsBy<WireWriter> T>
std::string encode(const T& value) {
  return WireWriter()(value).take();
}
// Throws Failure{TUTTI_MISMATCH} naming `what` for bytes that encode never makes; the values themselves are for the
// caller to check. Views lie in `bytes`.
template <TravelsBy<WireReader> T>
T decode(std::string_view bytes, const char* what) {
  WireReader wire(bytes, what);
  T value;
  wire(value);
  wire.end();
  return value;
}

}  // namespace tutti::core
