// SPDX-License-Identifier: Apache-2.0
//
// The faults that the suite puts in: scripts for the plugin chaos (plugins/chaos/README.md) and what must come of them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti::conformance {

// Within the contract. An empty script means: by the case's seed.
struct AllowedFault {
  const char* name;
  const char* script;
};
std::span<const AllowedFault> allowed_faults();

// Against the contract: once, at rank 1. `keys` go behind "name:rank=1,after=N".
struct ForbiddenFault {
  const char* name;
  const char* fault;
  const char* keys;
  bool checksum;  // TUTTI_CHECKSUM=1: bytes alone do not tell
  // A rank's error must contain one of these: the cause in words.
  std::vector<std::string> causes;
};
std::span<const ForbiddenFault> forbidden_faults();

// While it lives, this process's standard error goes to a file: the plugin's log names the faults that it injected.
class CapturedErrors {
 public:
  explicit CapturedErrors(const std::string& file);
  CapturedErrors(const CapturedErrors&) = delete;
  CapturedErrors& operator=(const CapturedErrors&) = delete;
  ~CapturedErrors();
  // All that came so far.
  std::string text() const;

 private:
  std::string file_;
  int before_ = -1;
};

}  // namespace tutti::conformance
