// SPDX-License-Identifier: Apache-2.0
//
// Output counts only once it has been written: a full disk is an error, not a success. And nothing else is written where it goes.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

namespace tools {

// To be called first. Descriptors 0 to 2 that the caller of the program has closed become ones that fail as closed ones do: else
// a file or a socket that the program opens would have their numbers, and get what is printed.
inline void hold_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0) (void)::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

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
