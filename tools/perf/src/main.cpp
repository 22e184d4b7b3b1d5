// SPDX-License-Identifier: Apache-2.0
//
// tutti-perf: one process per rank under a launcher, or --threads N ranks in this process.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "growth/growth.hpp"
#include "options.hpp"
#include "rank.hpp"
#include "standard_output/standard_output.hpp"

namespace {

tutti_comm_config default_config() {
  tutti_comm_config config{};
  config.struct_size = sizeof config;
  config.name = "tutti-perf";
  return config;
}

int run_threads(const perf::Options& options) {
  const std::string rendezvous = "local:tutti-perf-" + std::to_string(getpid());
  std::vector<int> status(options.threads, 0);
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < options.threads; ++rank)
    ranks.emplace_back([&, rank] {
      tutti_comm_config config = default_config();
      config.rendezvous = rendezvous.c_str();
      config.rank = rank;
      config.nranks = options.threads;
      status[rank] = perf::run_rank(options, config);
    });
  for (std::thread& rank : ranks) rank.join();
  return *std::max_element(status.begin(), status.end());
}

int run(int argc, char** argv) {
  int status = 0;
  const auto options = perf::parse_options(argc, argv, &status);
  if (!options) return status;
  // A path that cannot be written is better known before a long run than after it.
  for (const auto& [flag, path] :
       {std::pair{"-J", &options->json_path}, {"--plot", &options->plot_path}, {"--tune", &options->tune_path}}) {
    if (path->empty()) continue;
    const bool there = std::filesystem::exists(*path);
    if (!std::ofstream(*path, std::ios::app)) {
      std::fprintf(stderr, "tutti-perf: %s %s: cannot be written\n", flag, path->c_str());
      return 2;
    }
    std::error_code gone;  // another rank may have been faster
    if (!there) std::filesystem::remove(*path, gone);
  }
  if (options->growth) return perf::measure_growth(*options);
  return options->threads ? run_threads(*options) : perf::run_rank(*options, default_config());
}

}  // namespace

int main(int argc, char** argv) {
  tools::hold_standard_descriptors();
  return tools::exit_status("tutti-perf", run(argc, argv));
}
