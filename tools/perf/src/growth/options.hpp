// SPDX-License-Identifier: Apache-2.0
//
// The command line of `tutti-perf growth`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace perf {

struct Options;

struct GrowthOptions {
  std::vector<uint32_t> sizes;  // numbers of ranks, ascending, each once
  std::vector<bool> threads;    // how ranks are started, in turn: threads of one process, or processes
  uint32_t rounds = 3;          // jobs of each size; medians are reported
  uint32_t splits = 4;          // of the communicator, per job
  double limit_s = 60;          // for all rounds of a size
};

// The subcommand: made before the command line is parsed, interpreted after it.
class GrowthCommand {
 public:
  // `options` get what the subcommand shares with the measurement of collectives.
  GrowthCommand(CLI::App& app, Options& options);
  ~GrowthCommand();
  bool is_given() const;
  // Throws std::invalid_argument, also under a launcher that has started ranks.
  GrowthOptions options() const;

 private:
  struct Texts;
  CLI::App* command_;
  std::unique_ptr<Texts> texts_;
};

}  // namespace perf
