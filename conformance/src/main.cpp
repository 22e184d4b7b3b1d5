// SPDX-License-Identifier: Apache-2.0
//
// tutti-conform: does a transport, an algorithm, a whole installation keep Tutti's contract?
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <iostream>
#include <stdexcept>

#include "command.hpp"
#include "contract/contract_process.hpp"
#include "worker.hpp"

namespace {

using namespace tutti::conformance;

// Standard descriptors that the caller has closed become ones that fail as closed ones do: else a file or a socket would have
// their numbers, and get what is printed.
void hold_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(fd, F_GETFD) < 0) (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

// A verdict counts only once it has arrived: a full disk is an error, not a success.
int exit_status(int status) {
  std::cout.flush();
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout) return status;
  fmt::print(stderr, "tutti-conform: standard output cannot be written: what was printed is lost or cut short\n");
  return status ? status : 1;
}

}  // namespace

int main(int argc, char** argv) {
  hold_standard_descriptors();
  try {
    if (argc > 1 && std::strcmp(argv[1], worker_argument) == 0) return run_worker();
    if (argc > 1 && std::strcmp(argv[1], contract::process_argument) == 0)
      return contract::run_process(argc - 2, argv + 2);
    return exit_status(run_command_line(argc, argv));
  } catch (const std::invalid_argument& e) {
    fmt::print(stderr, "tutti-conform: {}\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    fmt::print(stderr, "tutti-conform: {}\n", e.what());
    return 1;
  }
}
