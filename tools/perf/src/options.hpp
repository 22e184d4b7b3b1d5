// SPDX-License-Identifier: Apache-2.0
//
// The command line: nccl-tests' flags where it has them, and what else Tutti can do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "buckets/options.hpp"
#include "collectives.hpp"
#include "growth/options.hpp"

namespace perf {

enum class Report { rank0 = 0, average = 1, minimum = 2, maximum = 3 };  // -a

struct Named {
  std::string name;  // as nccl-tests writes it: "float", "sum"
  uint32_t code = 0;
};

struct Options {
  std::vector<const Collective*> collectives;
  bool all = false;  // "all": those that need more ranks than there are are left out
  uint64_t least_bytes = 32u << 20, most_bytes = 32u << 20;
  uint64_t step_bytes = 1u << 20;
  uint64_t step_factor = 0;  // 0: steps are added
  uint32_t iterations = 20, warm_up = 5, checks = 1;
  std::vector<Named> ops, dtypes;
  std::optional<uint32_t> root = 0;  // nothing: all
  std::string json_path, plot_path;
  std::string tune_path;  // of the tuning file to write; "": rows are measured
  std::vector<std::string> peers;  // "NAME=FILE", to be drawn beside
  Report report = Report::average;
  uint32_t threads = 0;  // 0: one rank per process, from the launcher
  bool registered = false;
  bool skewed = false;  // the blocks of collectives with unequal ones
  std::string device;   // whose memory the buffers are; "": the host's
  bool latency = false;
  bool exact = false;  // reductions are exact sums, and are compared with those in the free order
  uint64_t seed = 1;
  // A model is replayed. Of the other options only checks, JSON, threads and seed count then.
  std::optional<BucketOptions> buckets;
  // Jobs of growing size are measured. Of the other options only JSON counts then.
  std::optional<GrowthOptions> growth;
  std::vector<std::string> command;

  // The sizes to measure, least to most.
  std::vector<uint64_t> sizes() const;
  // A call's first launches are not timed: those of the warm-up, and unless there is none so many as a plan needs to try
  // its ways of moving bytes.
  uint32_t untimed() const { return warm_up ? 66 + warm_up : 0; }
  bool measures_latency() const { return latency || !json_path.empty(); }
};

// Bytes of one element of a tutti data type.
uint64_t element_bytes(uint32_t dtype);
// "64K" and the like; K, M, G, T are binary. Nothing when it is no size.
std::optional<uint64_t> parse_size(const std::string& text);
const char* report_name(Report report);

// A launcher that has started several processes, as its variable of the environment tells.
struct Launcher {
  std::string variable, processes;
};
std::optional<Launcher> launched();

// Reads the command line. On failure, and after --help, prints what there is to say and returns nothing with the exit
// status in `status`.
std::optional<Options> parse_options(int argc, char** argv, int* status);

}  // namespace perf
