// SPDX-License-Identifier: Apache-2.0
//
// JSON by nlohmann::json's parser, with the line of each value, and with questions that name the place where the answer
// is not what was expected.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::plans {

class Json {
 public:
  enum class Kind : uint8_t { null, boolean, number, text, array, object };

  // Throws an Error for what is no JSON.
  static Json read(const std::string& file, std::string_view text);

  uint32_t line() const { return line_; }
  bool has(const char* key) const { return find(key) != nullptr; }
  // Members of an object. Each throws an Error with the place where the member is absent or something else.
  const Json& member(const char* key) const;
  std::string text(const char* key) const;
  bool flag(const char* key) const;
  uint64_t number(const char* key, uint64_t low, uint64_t high) const;
  // The items of an array; none where the member is absent and may be.
  const std::vector<Json>& items(const char* key) const;
  const std::vector<Json>& items_or_none(const char* key) const;
  // Numbers in an array.
  std::vector<uint32_t> numbers(const char* key, uint32_t high) const;
  // All members that nothing has asked for are errors.
  void no_others() const;
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  friend class JsonReader;
  const Json* find(const char* key) const;
  const Json& member(const char* key, Kind kind, const char* expected) const;

  const std::string* file_ = nullptr;
  uint32_t line_ = 0;
  Kind kind_ = Kind::null;
  bool whole_ = false;  // a number: it is `number_`
  bool truth_ = false;
  uint64_t number_ = 0;
  std::string text_;
  std::vector<Json> items_;
  std::vector<std::pair<std::string, Json>> members_;
  mutable bool used_ = false;
};

}  // namespace tutti::plans
