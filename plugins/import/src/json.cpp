// SPDX-License-Identifier: Apache-2.0
#include "json.hpp"

#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>

#include "plan.hpp"

namespace tutti::plans {
namespace {

constexpr size_t deepest = 16;
constexpr size_t most_values = 4u << 20;

// Characters whose reader counts lines.
class Counted {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Counted(const char* at, uint32_t* line) : at_(at), line_(line) {}
  reference operator*() const { return *at_; }
  Counted& operator++() {
    *line_ += *at_++ == '\n';
    return *this;
  }
  Counted operator++(int) {
    const Counted before = *this;
    ++*this;
    return before;
  }
  bool operator==(const Counted& other) const { return at_ == other.at_; }
  bool operator!=(const Counted& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  uint32_t* line_;
};

}  // namespace

// The callbacks of nlohmann::json's parser.
class JsonReader {
 public:
  explicit JsonReader(const std::string& file) : file_(file) {}

  Json read(std::string_view text) {
    nlohmann::json::sax_parse(Counted(text.data(), &line_), Counted(text.data() + text.size(), &line_), this);
    return std::move(root_);
  }

  bool null() { return add(Json::Kind::null) != nullptr; }
  bool boolean(bool truth) {
    add(Json::Kind::boolean)->truth_ = truth;
    return true;
  }
  bool number_integer(int64_t) { return add(Json::Kind::number) != nullptr; }  // negative, as all others are unsigned
  bool number_unsigned(uint64_t number) {
    Json* value = add(Json::Kind::number);
    value->whole_ = true;
    value->number_ = number;
    return true;
  }
  bool number_float(double, const std::string&) { return add(Json::Kind::number) != nullptr; }
  bool string(std::string& text) {
    add(Json::Kind::text)->text_ = std::move(text);
    return true;
  }
  bool binary(nlohmann::json::binary_t&) { return false; }  // not in text
  bool start_object(size_t) { return open(Json::Kind::object); }
  bool start_array(size_t) { return open(Json::Kind::array); }
  bool key(std::string& name) {
    for (const auto& [other, value] : open_.back()->members_)
      if (other == name) throw wrong(file_, line_, "\"{}\" comes twice, first in line {}", shown(name), value.line_);
    name_ = std::move(name);
    name_line_ = line_;
    return true;
  }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& error) {
    const std::string text = error.what();
    const size_t reason = text.find(": ");
    throw wrong(file_, line_, "is not JSON: {}", reason == text.npos ? text : text.substr(reason + 2));
  }

 private:
  Json* add(Json::Kind kind) {
    if (++values_ > most_values) throw wrong(file_, line_, "has more than {} values", most_values);
    Json* value = &root_;
    uint32_t line = line_;
    if (!open_.empty() && open_.back()->kind_ == Json::Kind::array) {
      value = &open_.back()->items_.emplace_back();
    } else if (!open_.empty()) {
      line = name_line_;
      value = &open_.back()->members_.emplace_back(std::move(name_), Json()).second;
    }
    value->file_ = &file_;
    value->line_ = line;
    value->kind_ = kind;
    return value;
  }
  bool open(Json::Kind kind) {
    if (open_.size() == deepest) throw wrong(file_, line_, "is nested deeper than {} levels", deepest);
    open_.push_back(add(kind));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& file_;
  uint32_t line_ = 1;
  Json root_;
  std::vector<Json*> open_;  // they stay where they are: only the last one grows
  std::string name_;
  uint32_t name_line_ = 1;
  size_t values_ = 0;
};

Json Json::read(const std::string& file, std::string_view text) { return JsonReader(file).read(text); }

void Json::refuse(const std::string& why) const { throw wrong(*file_, line_, "{}", why); }

const Json* Json::find(const char* key) const {
  for (const auto& [name, value] : members_)
    if (name == key) {
      value.used_ = true;
      return &value;
    }
  return nullptr;
}

const Json& Json::member(const char* key) const {
  if (const Json* value = find(key)) return *value;
  refuse(fmt::format("has no \"{}\"", key));
}

const Json& Json::member(const char* key, Kind kind, const char* expected) const {
  const Json& value = member(key);
  if (value.kind_ != kind) value.refuse(fmt::format("\"{}\" is not {}", key, expected));
  return value;
}

std::string Json::text(const char* key) const { return member(key, Kind::text, "a text").text_; }
bool Json::flag(const char* key) const { return member(key, Kind::boolean, "true or false").truth_; }
const std::vector<Json>& Json::items(const char* key) const { return member(key, Kind::array, "an array").items_; }
const std::vector<Json>& Json::items_or_none(const char* key) const {
  static const std::vector<Json> none;
  return has(key) ? items(key) : none;
}

uint64_t Json::number(const char* key, uint64_t low, uint64_t high) const {
  const Json& value = member(key);
  if (!value.whole_ || value.number_ < low || value.number_ > high)
    value.refuse(fmt::format("\"{}\" is not a whole number from {} to {}", key, low, high));
  return value.number_;
}

std::vector<uint32_t> Json::numbers(const char* key, uint32_t high) const {
  std::vector<uint32_t> numbers;
  for (const Json& item : items(key)) {
    if (!item.whole_ || item.number_ > high)
      item.refuse(fmt::format("an item of \"{}\" is not a whole number from 0 to {}", key, high));
    numbers.push_back(static_cast<uint32_t>(item.number_));
  }
  return numbers;
}

void Json::no_others() const {
  for (const auto& [name, value] : members_)
    if (!value.used_) value.refuse(fmt::format("\"{}\" is not known here", shown(name)));
}

}  // namespace tutti::plans
