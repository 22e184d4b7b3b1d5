// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstring>
#include <string>

namespace tutti {

// The words of an errno, in English whatever the application's locale is, and the limit that is to be raised where the
// process has used up its descriptors.
inline std::string system_text(int error) {
  const char* const words = ::strerrordesc_np(error);
  return (words ? words : "error " + std::to_string(error)) + (error == EMFILE ? " (ulimit -n)" : "");
}

}  // namespace tutti
