// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace perf {

// Writes a whole file. False: it cannot be written; standard error has the reason.
bool write_file(const std::string& path, const std::string& text);

}  // namespace perf
