// SPDX-License-Identifier: Apache-2.0
//
// A new empty folder in the system's place for temporary files. It goes with its owner.
#pragma once

#include <string>

namespace tutti::conformance {

class Folder {
 public:
  // Throws std::runtime_error.
  Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace tutti::conformance
