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
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 127; };
  std::ranges::replace_if(words, is_control, '?');
  // Those of U+0080 to U+009F, of which one begins escape sequences.
  for (size_t at = 0; (at = words.find('\xc2', at)) != std::string::npos; ++at)
    if (at + 1 < words.size() && (words[at + 1] & 0xe0) == 0x80) words.replace(at, 2, "??");
  return words;
}

}  // namespace tutti::core
