// SPDX-License-Identifier: Apache-2.0
//
// The rule that a network plugin breaks on purpose: conformance/mutants/faults.cpp has the list.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

namespace tutti::nccl::sample {

// Does the environment variable TUTTI_MUTANT name the fault? Then it strikes now, of which the file
// TUTTI_MUTANT_REACHED tells.
inline bool fault(std::string_view name) {
  const char* chosen = std::getenv("TUTTI_MUTANT");
  if (!chosen || chosen != "nccl-" + std::string(name)) return false;
  if (const char* mark = std::getenv("TUTTI_MUTANT_REACHED"))
    if (const int fd = ::open(mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0600); fd >= 0) ::close(fd);
  return true;
}

}  // namespace tutti::nccl::sample
