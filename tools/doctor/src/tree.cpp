// SPDX-License-Identifier: Apache-2.0
#include "tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <tutti/sdk/text.hpp>

#include "texts/texts.hpp"

namespace doctor {

std::optional<int64_t> number_of(std::string_view text) {
  int64_t value = 0;
  if (!tutti::take_number(text, value) || !text.empty()) return std::nullopt;
  return value;
}

bool Tree::has(const std::string& path) const {
  std::error_code ignored;
  return std::filesystem::exists(root_ / path, ignored);
}

std::string Tree::text(const std::string& path) const {
  std::ifstream file(root_ / path);
  std::string text;
  constexpr size_t most = 1 << 20;  // files of /proc and /sys are far smaller
  for (char c; text.size() < most && file.get(c);) text += c;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

std::vector<std::string> Tree::lines(const std::string& path) const { return texts::split(text(path), '\n'); }

std::vector<std::string> Tree::names(const std::string& folder) const {
  std::vector<std::string> names;
  std::error_code failed;
  for (std::filesystem::directory_iterator entry(root_ / folder, failed), end; !failed && entry != end;
       entry.increment(failed))
    names.push_back(entry->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<int64_t> Tree::number(const std::string& path) {
  const std::string content = text(path);
  if (content.empty()) return std::nullopt;
  if (content == "max") return no_limit;
  const auto value = number_of(content);
  if (!value) fault(path, content, "a whole number");
  return value;
}

std::vector<uint32_t> Tree::list(const std::string& path) {
  std::vector<uint32_t> numbers;
  constexpr int64_t most = 1 << 16;
  for (const std::string& part : texts::split(text(path), ',')) {
    const size_t dash = part.find('-');
    const auto first = number_of(std::string_view(part).substr(0, dash));
    const auto last = dash == part.npos ? first : number_of(std::string_view(part).substr(dash + 1));
    if (!first || !last || *first < 0 || *first > *last || *last >= most) {
      fault(path, text(path), "a list like 0-3,8");
      return {};
    }
    for (int64_t number = *first; number <= *last; ++number) numbers.push_back(static_cast<uint32_t>(number));
  }
  return numbers;
}

void Tree::fault(const std::string& path, const std::string& found, const std::string& expected) {
  constexpr size_t shown = 60;
  std::string excerpt = found.substr(0, shown);
  for (char& c : excerpt)
    if (static_cast<unsigned char>(c) < ' ' || static_cast<unsigned char>(c) > '~') c = '?';
  faults_.push_back(fmt::format("/{} says \"{}\", expected {}", path, excerpt, expected));
}

}  // namespace doctor
