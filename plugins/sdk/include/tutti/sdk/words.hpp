// SPDX-License-Identifier: Apache-2.0
//
// Errors with formatted texts. A plugin that includes this links fmt::fmt-header-only: plugins export no symbols of
// fmt.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <tutti/sdk/plugin.hpp>

namespace tutti::sdk {
inline namespace TUTTI_SDK_NAMESPACE {

template <typename... Args>
Error error(tutti_status status, fmt::format_string<const Args&...> format, const Args&... args) {
  return Error(status, fmt::format(format, args...));
}

// TUTTI_SYSTEM with the words of `code` behind the text.
template <typename... Args>
Error system_error(int code, fmt::format_string<const Args&...> format, const Args&... args) {
  return system_error(fmt::format(format, args...), code);
}

}  // namespace TUTTI_SDK_NAMESPACE
}  // namespace tutti::sdk
