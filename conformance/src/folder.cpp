// SPDX-License-Identifier: Apache-2.0
#include "folder.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace tutti::conformance {

Folder::Folder() : path_((std::filesystem::temp_directory_path() / "tutti-conform-XXXXXX").string()) {
  if (!mkdtemp(path_.data()))
    throw std::runtime_error("no folder can be made like " + path_ + ": " + std::strerror(errno));
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace tutti::conformance
