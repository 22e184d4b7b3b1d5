// SPDX-License-Identifier: Apache-2.0
#include "topology/rank_json.hpp"

namespace tutti::core {

std::string encode_json(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json decode_json(const std::string& text) {
  constexpr int most_levels = 8;
  return Json::parse(text, [](int level, Json::parse_event_t, const Json&) { return level <= most_levels; });
}

}  // namespace tutti::core
