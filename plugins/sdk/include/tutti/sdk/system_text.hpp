// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <string>
#include <system_error>

namespace tutti {

// The words of an errno, in English whatever the application's locale is, and the limit that is to be raised where the process
// has used up its descriptors.
inline std::string system_text(int error) {
  return std::generic_category().message(error) + (error == EMFILE ? " (ulimit -n)" : "");
}

}  // namespace tutti
