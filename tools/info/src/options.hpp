// SPDX-License-Identifier: Apache-2.0
//
// The command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace info {

struct Explain {
  uint32_t collective = 0;  // TUTTI_ALL_REDUCE ...
  uint64_t bytes = 0;       // total, as tutti-perf counts
  uint32_t dtype = 0;
};

struct Options {
  bool topology = false;
  std::optional<Explain> explain;
  std::string file;       // the ranks are those of a topology file; "": of a job
  std::string save, svg;  // where the topology goes as a file and as a picture
  uint32_t nranks = 0;    // as threads of this process; 0: from the launcher
  bool json = false;
  bool net = false;
  bool settings = false;
  bool hang = false;
  std::vector<std::string> hang_targets;  // process ids and folders
  bool all = false;

  bool asks_ranks() const { return topology || explain; }
};

// On failure, and after --help, prints what there is to say and returns nothing with the exit status in `status`.
std::optional<Options> parse_options(int argc, char** argv, int* status);

}  // namespace info
