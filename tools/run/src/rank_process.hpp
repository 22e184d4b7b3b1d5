// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <sched.h>
#include <sys/types.h>

#include <string>
#include <vector>

namespace tuttirun {

// How one rank is to be started.
struct RankStart {
  std::vector<std::string> command;
  std::vector<std::string> environment;  // NAME=VALUE
  bool input = false;                    // standard input is tuttirun's; else /dev/null
  int network_namespace = -1;            // a descriptor to enter, or -1
  cpu_set_t cores = {};                  // that it may use; none: those of tuttirun
};

// A running rank: the leader of a process group of its own, killed by the kernel when tuttirun dies.
struct RankProcess {
  pid_t pid = -1;
  int out = -1, err = -1;  // read ends of its standard output and error, non-blocking
};

// Throws StartFailure when the program cannot be run.
struct StartFailure {
  int error;  // errno of `step`
  const char* step;
};
RankProcess start_rank(const RankStart& start);

}  // namespace tuttirun
