// SPDX-License-Identifier: Apache-2.0
//
// Text from files and names, made fit for a terminal or a picture.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

// The pieces between separators: empty pieces too, but none behind the last separator.
inline std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> pieces;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    pieces.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return pieces;
}

// The lines of a communicator's topology (tutti_comm_topology) that tell of refused transports.
inline std::vector<std::string> refusals(std::string_view topology) {
  std::vector<std::string> lines = split(topology, '\n');
  std::erase_if(lines, [](const std::string& line) { return line.find(" was refused: ") == std::string::npos; });
  return lines;
}

// Those of all ranks: a pair's two ends tell of it in words of their own, of which the first stay.
inline void add_refusals(std::vector<std::string>& all, const std::vector<std::string>& more) {
  const auto pair = [](const std::string& line) { return line.substr(0, line.find(" was refused: ")); };
  for (const std::string& line : more)
    if (std::none_of(all.begin(), all.end(), [&](const std::string& known) { return pair(known) == pair(line); }))
      all.push_back(line);
}

// Without spaces and line ends.
inline std::vector<std::string> words_of(std::string_view text) {
  constexpr std::string_view between = " \t\r\n";
  std::vector<std::string> words;
  for (size_t at = 0; (at = text.find_first_not_of(between, at)) != text.npos;) {
    const size_t end = std::min(text.find_first_of(between, at), text.size());
    words.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

// The content of a file. Nothing: errno has the reason.
inline std::optional<std::string> content_of(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string content;
  for (char c; file.get(c);) content += c;
  if (!file.is_open() || file.bad()) return std::nullopt;
  return content;
}

}  // namespace texts
