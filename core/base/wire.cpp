// SPDX-License-Identifier: Apache-2.0
#include "base/wire.hpp"

#include <algorithm>

namespace tutti::core {

std::string printable(std::string_view text, size_t most) {
  const auto inside_a_character = [](char c) { return (c & 0xc0) == 0x80; };  // of UTF-8
  if (text.size() > most) {
    while (most > 0 && inside_a_character(text[most])) --most;
    text = text.substr(0, most);
  }
  std::string words(text);
  std::ranges::replace_if(
      words, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 127; }, '?');
  return words;
}

}  // namespace tutti::core
