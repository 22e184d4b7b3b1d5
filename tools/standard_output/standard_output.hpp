// SPDX-License-Identifier: Apache-2.0
//
// Output counts only once it has been written: a full disk is an error, not a success.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

namespace tools {

// To be called last, when no other thread prints. Flushes standard output; gives `status`, or 1 with a message on
// standard error when anything printed since the start was lost and `status` is 0.
inline int exit_status(const char* program, int status) {
  errno = 0;
  std::cout.flush();
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0 && std::cout) return status;
  std::fprintf(stderr, "%s: standard output cannot be written%s%s: what was printed is lost or cut short\n", program,
               errno ? ": " : "", errno ? std::strerror(errno) : "");
  return status ? status : 1;
}

}  // namespace tools
