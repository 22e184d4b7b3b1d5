// SPDX-License-Identifier: Apache-2.0
#include "topology/json_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>

namespace tutti::core {
namespace {

Json parse(const std::string& text) {
  static constexpr int most_levels = 16;
  try {
    return Json::parse(text, [](int level, Json::parse_event_t, const Json&) {
      if (level > most_levels)
        throw std::runtime_error(
            fmt::format("the file: expected at most {} levels of lists and objects, got more", most_levels));
      return true;
    });
  } catch (const Json::exception& e) {
    throw std::runtime_error(fmt::format("not JSON: {}", e.what()));
  }
}

}  // namespace

void wrong_json(const std::string& where, const std::string& expected, const Json& got) {
  throw std::runtime_error(fmt::format("{}: expected {}, got {}", where.empty() ? "the file" : where, expected,
                                       got.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 80)));
}

Json parse_json(const std::string& text, const char* mark, int format) {
  Json file = parse(text);
  if (!file.is_object() || !file.contains(mark))
    wrong_json("", fmt::format("an object with \"{}\": {}", mark, format), file);
  if (file.at(mark) != format)
    wrong_json(mark, fmt::format("{}, the format that this version reads", format), file.at(mark));
  return file;
}

const Json& json_list(const Json& object, const std::string& where, const char* key) {
  const std::string place = where.empty() ? key : where + "." + key;
  if (!object.contains(key)) throw std::runtime_error(fmt::format("{} is missing: expected a list", place));
  if (!object.at(key).is_array() || object.at(key).empty())
    wrong_json(place, "a list that is not empty", object.at(key));
  return object.at(key);
}

void complete_json(Json& object, const std::string& where, const Json& defaults, std::set<std::string> required) {
  if (!object.is_object()) wrong_json(where, "an object, {...}", object);
  const std::string prefix = where.empty() ? "" : where + ".";
  for (const std::string& key : required)
    if (!object.contains(key)) throw std::runtime_error(fmt::format("{}{} is missing", prefix, key));
  for (const auto& [key, value] : defaults.items()) {
    required.insert(key);
    if (!object.contains(key)) object[key] = value;
  }
  for (const auto& [key, value] : object.items())
    if (!required.contains(key))
      throw std::runtime_error(fmt::format("{}: unknown key {}; known are {}", where.empty() ? "the file" : where, key,
                                           fmt::join(required, ", ")));
}

}  // namespace tutti::core
