// SPDX-License-Identifier: Apache-2.0
#include "growth/options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <tutti/sdk/text.hpp>

#include "options.hpp"
#include "texts/texts.hpp"

namespace perf {
namespace {

constexpr uint32_t most_ranks = 4096, most_splits = 100000;

std::vector<uint32_t> sizes_of(const std::string& text) {
  std::vector<uint32_t> sizes;
  for (const std::string& word : texts::split(text, ',')) {
    const auto size = tutti::whole_number(word, 2, most_ranks);
    if (!size)
      throw std::invalid_argument("--ranks " + text + ": expected whole numbers from 2 to " +
                                  std::to_string(most_ranks) + " with commas between them, got \"" + word + "\"");
    sizes.push_back(static_cast<uint32_t>(*size));
  }
  if (sizes.empty()) throw std::invalid_argument("--ranks: expected numbers of ranks, got nothing");
  std::ranges::sort(sizes);
  sizes.erase(std::ranges::unique(sizes).begin(), sizes.end());
  return sizes;
}

std::vector<bool> starts_of(const std::string& text) {
  if (text == "both") return {true, false};
  if (text == "threads") return {true};
  if (text == "processes") return {false};
  throw std::invalid_argument("--as " + text + ": known are threads, processes, both");
}

}  // namespace

struct GrowthCommand::Texts {
  std::string ranks = "2,4,8,16,32,64,128,256,512", as = "both";
  GrowthOptions given;
};

GrowthCommand::GrowthCommand(CLI::App& app, Options& options) : texts_(std::make_unique<Texts>()) {
  command_ = app.add_subcommand("growth",
                                "starts jobs of more and more ranks on this host, and reports what a communicator "
                                "costs: time, memory, descriptors, and the exponent with which each grows");
  GrowthOptions& given = texts_->given;
  command_->add_option("--ranks", texts_->ranks, "numbers of ranks, with commas (2,4,8,16,32,64,128,256,512)");
  command_->add_option("--as", texts_->as, "threads, processes, both; ranks of one process, or one per process (both)");
  command_->add_option("-n,--rounds", given.rounds, "jobs of each size, whose median counts (3)")
      ->check(CLI::Range(1u, 1000u));
  command_->add_option("--splits", given.splits, "splits into halves, in each job (4)")
      ->check(CLI::Range(2u, most_splits));
  command_->add_option("--limit", given.limit_s, "seconds for each size; larger sizes are left out after one that "
                                                 "needs more (60)")
      ->check(CLI::Range(0.1, 86400.0));
  command_->add_option("-J,--output_file", options.json_path, "write everything as JSON too");
}

GrowthCommand::~GrowthCommand() = default;

bool GrowthCommand::is_given() const { return command_->parsed(); }

GrowthOptions GrowthCommand::options() const {
  GrowthOptions made = texts_->given;
  made.sizes = sizes_of(texts_->ranks);
  made.threads = starts_of(texts_->as);
  if (std::isnan(made.limit_s)) throw std::invalid_argument("--limit nan: expected seconds");
  if (const auto launcher = launched())
    throw std::invalid_argument("growth starts its ranks itself, but " + launcher->variable + " tells of " +
                                launcher->processes + " processes: start it once, without a launcher");
  return made;
}

}  // namespace perf
