// SPDX-License-Identifier: Apache-2.0
//
// Text from files and names, made fit for a terminal or a picture.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

namespace texts {

// The text of a field that need not end in NUL. A file can hold anything: what is not printable ASCII becomes '?'.
template <size_t capacity>
std::string text_of(const char (&field)[capacity]) {
  std::string text(field, strnlen(field, capacity));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

// As the text of an XML element.
inline std::string xml_escaped(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return result;
}

}  // namespace texts
