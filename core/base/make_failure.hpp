// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <fmt/format.h>

#include "base/failure.hpp"

namespace tutti::core {

// A Failure whose text is formatted. All files that make texts include this header and get fmt with it.
template <typename... Args>
Failure make_failure(tutti_status status, fmt::format_string<Args...> text, Args&&... args) {
  return Failure(status, fmt::format(text, std::forward<Args>(args)...));
}

// The refusal of an argument or a variable that can never be right.
template <typename... Args>
Failure refusal(fmt::format_string<Args...> why, Args&&... args) {
  return Failure(TUTTI_INVALID_ARGUMENT, "bootstrap: " + fmt::format(why, std::forward<Args>(args)...));
}

}  // namespace tutti::core
