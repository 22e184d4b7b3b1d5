// SPDX-License-Identifier: Apache-2.0
//
// The words that ranks tell each other when they introduce themselves, as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tutti::core {

using Json = nlohmann::json;

std::string encode_json(const Json& value);
// The value that another rank has encoded. Values nested deeper than a few levels are dropped: users of a Json recurse.
// Throws Json::exception.
Json decode_json(const std::string& text);

}  // namespace tutti::core
