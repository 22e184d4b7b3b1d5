// SPDX-License-Identifier: Apache-2.0
//
// How all that ranks tell each other travels: integers and strings as bytes, little-endian, and back with every length
// checked. Only messages of a fixed size that are sent for every call are structs as they lie in memory.
#pragma once
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/failure.hpp"

namespace tutti::core {

// A type that travels says its fields once, in a static function template `fields(wire, value)` that hands them to
// `wire`, a writer or a reader.
template <typename T, typename Wire>
concept TravelsBy = requires(Wire& wire, T& value) {
  T::fields(wire, value);
};

inline constexpr size_t longest_text = 256, longest_message = 4096;
// The text with '?' for control characters, which a terminal would obey, cut to `most` bytes between two characters.
std::string printable(std::string_view text, size_t most = longest_text);

// A string that travels is a text for people, and ends in errors and logs: readers replace its control characters and
// cut it to longest_message. This one is no text: readers take it as it is.
template <typename T>
struct RawBytes {
  explicit RawBytes(T& of) : value(of) {}
  T& value;
};

// A field that has a name and limits; readers refuse other values. A number is from `least` to `most`. A text has at
// most `most` bytes and no control characters. A list has at most `most` elements; texts in it have the usual limits.
template <typename T>
struct Field {
  using Unqualified = std::remove_const_t<T>;
  static constexpr bool is_number = std::is_integral_v<Unqualified>, is_text = std::is_same_v<Unqualified, std::string>;
  using Limit = std::conditional_t<is_number, Unqualified, size_t>;

  Field(const char* field, T& of) : name(field), value(of) {}
  Field(const char* field, T& of, Limit low, Limit high) : name(field), value(of), least(low), most(high) {}

  bool fits(const Unqualified& read) const {
    if constexpr (is_number)
      return read >= least && read <= most;
    else
      return read == printable(read, most);
  }
  std::string expected() const {
    if constexpr (is_number) return fmt::format("a whole number from {} to {}", least, most);
    if constexpr (is_text) return fmt::format("a text of at most {} bytes without control characters", most);
    return fmt::format("a list of at most {}", most);
  }

  const char* name;
  T& value;
  Limit least = 0;
  Limit most = is_number ? std::numeric_limits<Limit>::max() : is_text ? longest_text : 64;
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
  WireWriter& text(std::string_view value) { return u32(static_cast<uint32_t>(value.size())).raw(value); }
  // Each in the form of its type: a number, an enumeration or truth in four or eight bytes, a string as text, a view
  // raw, a vector as its size and its elements, any other type as its fields. A Field as its value.
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
  template <typename Value>
  void put(const Field<Value>& field) {
    put(field.value);
  }
  template <typename Value>
  void put(const RawBytes<Value>& bytes) {
    text(bytes.value);
  }
  WireWriter& integer(uint64_t value, int n) {
    for (int i = 0; i < n; ++i) bytes_.push_back(static_cast<char>(value >> (8 * i)));
    return *this;
  }
  std::string bytes_;
};

// Reads what a WireWriter wrote; throws Failure{TUTTI_MISMATCH} naming `what` when the bytes are too few or too many,
// or a Field is beyond its limits. The bytes must outlive the reader.
class WireReader {
 public:
  WireReader(std::string_view bytes, const char* what) : bytes_(bytes), what_(what) {}
  uint32_t u32() { return static_cast<uint32_t>(integer(4)); }
  uint64_t u64() { return integer(8); }
  std::string_view raw(uint64_t n) {
    if (n > bytes_.size()) throw ill(fmt::format("{} bytes announced, {} left", n, bytes_.size()));
    const std::string_view value = bytes_.substr(0, n);
    bytes_.remove_prefix(n);
    return value;
  }
  std::string text() { return printable(counted(), longest_message); }
  std::string_view counted() { return raw(u32()); }
  std::string_view rest() { return raw(bytes_.size()); }
  // The converse of the writer's: a view is all that is left.
  template <typename... Values>
  WireReader& operator()(Values&&... values) {
    (get(values), ...);
    return *this;
  }
  void end() const {
    if (!bytes_.empty()) throw ill(fmt::format("{} bytes too many", bytes_.size()));
  }
  // For fields that do not go together. Throws Failure{TUTTI_MISMATCH}.
  [[noreturn]] void refuse(const char* name, const std::string& expected, const std::string& got) const {
    impossible(name, expected, '"' + printable(got, 80) + '"');
  }

 private:
  [[noreturn]] void impossible(const char* name, const std::string& expected, const std::string& got) const {
    throw Failure(TUTTI_MISMATCH,
                  fmt::format("{} has an impossible \"{}\": expected {}, got {}", what_, name, expected, got));
  }
  Failure ill(const std::string& why) const {
    return {TUTTI_MISMATCH, fmt::format("{}: {}: do all ranks run the same version of Tutti?", what_, why)};
  }
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
  void get(RawBytes<std::string>& bytes) { bytes.value = counted(); }
  template <typename Value>
  void get(Field<Value>& field) {
    if constexpr (Field<Value>::is_text) {
      field.value = counted();
      if (!field.fits(field.value)) refuse(field.name, field.expected(), field.value);
    } else {
      get(field.value);
      if constexpr (Field<Value>::is_number)
        if (!field.fits(field.value)) impossible(field.name, field.expected(), fmt::format("{}", field.value));
    }
  }
  template <typename Element>
  void get(Field<std::vector<Element>>& list) {
    const uint32_t size = u32();
    if (size > list.most) impossible(list.name, list.expected(), fmt::format("{}", size));
    for (uint32_t i = 0; i < size; ++i) {
      Field element(list.name, list.value.emplace_back());
      get(element);
    }
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
using Gather = std::function<std::vector<std::string>(const std::string& mine)>;  // returns all ranks' words
// The values of all ranks, by rank. A Failure names "rank 3's `what`".
template <TravelsBy<WireReader> T>
std::vector<T> decode_all(const std::vector<std::string>& words, const std::string& what) {
  std::vector<T> all;
  for (const std::string& word : words)
    all.push_back(decode<T>(word, fmt::format("rank {}'s {}", all.size(), what).c_str()));
  return all;
}

}  // namespace tutti::core
