// SPDX-License-Identifier: Apache-2.0
//
// Plans in the JSON of MSCCL++, as its language writes them and its executor reads them.
#pragma once

#include <string_view>

#include "plan.hpp"

namespace tutti::plans {

// `text` is the content of `file`. Throws an Error with the place of what is wrong.
Plan read_mscclpp(const std::string& file, std::string_view text);

}  // namespace tutti::plans
