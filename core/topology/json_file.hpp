// SPDX-License-Identifier: Apache-2.0
//
// Reading JSON files that people may have written. The functions throw std::runtime_error, which names the key:
// "hosts[0].count: expected a whole number from 1 to 65536, got -1".
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace tutti::core {

using Json = nlohmann::json;

// `where` "": the whole file.
[[noreturn]] void wrong_json(const std::string& where, const std::string& expected, const Json& got);
// An object that states `mark`: `format`, of at most 16 levels: users of a Json recurse.
Json parse_json(const std::string& text, const char* mark, int format);
// A list that is not empty.
const Json& json_list(const Json& object, const std::string& where, const char* key);
// Refuses keys that nothing reads, and fills in those that may be left out.
void complete_json(Json& object, const std::string& where, const Json& defaults, std::set<std::string> required);

}  // namespace tutti::core
