// SPDX-License-Identifier: Apache-2.0
//
// Plans in the XML of MSCCL, as msccl-tools writes it and MSCCL's executors read it.
#pragma once

#include <string_view>

#include "plan.hpp"

namespace tutti::plans {

// `text` is the content of `file`. Throws an Error with the place of what is wrong.
Plan read_msccl(const std::string& file, std::string_view text);

}  // namespace tutti::plans
