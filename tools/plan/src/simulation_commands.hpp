// SPDX-License-Identifier: Apache-2.0
//
// The commands simulate and tune: their options, and what they do.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "request.hpp"
#include "simulate.hpp"

namespace tutti::plan {

struct TuneRequest {
  std::string collective = "all", ranks = "64", sizes = "8,1K,32K,1M,32M", plot;
  uint64_t most_steps = 20'000'000;
};

void add_simulate_options(CLI::App* command, Request* request, SimulationOptions* options);
void add_tune_options(CLI::App* command, Request* request, SimulationOptions* options, TuneRequest* tune);

// Text for standard output or -o, and a picture, empty if none was asked for.
struct Answer {
  std::string text, picture, picture_path;
};
// Throw WrongRequest and std::runtime_error.
Answer answer_simulate(const Request& request, const SimulationOptions& options, const tutti_algorithm& algorithm);
Answer answer_tune(const Request& request, const SimulationOptions& options, const TuneRequest& tune);

}  // namespace tutti::plan
