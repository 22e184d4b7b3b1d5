// SPDX-License-Identifier: Apache-2.0
//
// Numbers and letters in texts, alike in every locale: what a setting, a file or another rank says must not depend on
// the application's setlocale() or std::locale::global(). Streams, strtod, std::stoi, isalnum and their like do.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace tutti {

// Removes a number from the front of `text`. False, with both unchanged: there is none, or it does not fit.
template <typename Number>
bool take_number(std::string_view& text, Number& value, int base = 10) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (code != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

// Removes `word` from the front of `text`. False: something else is there.
inline bool take_word(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

// The whole number in [low, high] that `text` is; nothing when it is anything else.
inline std::optional<uint64_t> whole_number(std::string_view text, uint64_t low, uint64_t high) {
  uint64_t value = 0;
  if (!take_number(text, value) || !text.empty() || value < low || value > high) return std::nullopt;
  return value;
}

// The number that `text` is, as in 2, 0.5 and 1e-3; nothing when it is anything else.
inline std::optional<double> decimal_number(std::string_view text) {
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Letters are those of ASCII.
constexpr char to_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
constexpr char to_upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_letter_or_digit(char c) { return is_digit(c) || (to_lower(c) >= 'a' && to_lower(c) <= 'z'); }

}  // namespace tutti
