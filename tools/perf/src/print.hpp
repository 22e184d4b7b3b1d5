// SPDX-License-Identifier: Apache-2.0
//
// Standard output, the same in every locale.
#pragma once

#include <fmt/format.h>

#include <iostream>
#include <utility>

namespace perf {

// As fmt::print, but what cannot be written is no exception: the program tells it at its end.
template <typename... Arguments>
void print(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  std::cout << fmt::format(format, std::forward<Arguments>(arguments)...);
}

}  // namespace perf
