// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tutti::core {

// The value that another rank has encoded. Its bytes are not trusted: the reader recurses, so what is nested deeper
// than a few levels is refused before it is read. Throws nlohmann::json::exception.
nlohmann::json read_cbor(const std::string& bytes);

}  // namespace tutti::core
