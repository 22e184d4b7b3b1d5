// SPDX-License-Identifier: Apache-2.0
#include "buckets/options.hpp"

#include <fmt/format.h>
#include <tutti/tutti.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "options.hpp"
#include "texts/texts.hpp"

namespace perf {
namespace {

constexpr std::array<std::pair<const char*, tutti::Wire>, 4> formats{{{"plain", tutti::Wire::plain},
                                                                      {"float16", tutti::Wire::float16},
                                                                      {"bfloat16", tutti::Wire::bfloat16},
                                                                      {"float8", tutti::Wire::float8}}};

// The first parameter that only plain can carry; NULL: there is none.
const Parameter* plain_only(const Model& model) {
  const auto found =
      std::ranges::find_if(model.parameters, [](const Parameter& one) { return one.dtype != TUTTI_FLOAT32; });
  return found == model.parameters.end() ? nullptr : &*found;
}

// Of "all" the formats that the model's types do not have are left out; what was named has to fit.
std::vector<tutti::Wire> wires_of(const std::string& text, const Model& model) {
  const Parameter* const other = plain_only(model);
  std::vector<tutti::Wire> wires;
  for (const std::string& word : texts::split(text, ',')) {
    const size_t before = wires.size();
    bool known = false;
    for (const auto& [name, wire] : formats) {
      if (word != name && word != "all") continue;
      known = true;
      if (std::ranges::find(wires, wire) != wires.end()) continue;
      if (!other || wire == tutti::Wire::plain) wires.push_back(wire);
    }
    if (!known)
      throw std::invalid_argument("--wire " + text + ": known are plain, float16, bfloat16, float8, all, or several " +
                                  "with commas between them");
    if (wires.size() == before && word != "plain" && word != "all" && other)
      throw std::invalid_argument("--wire " + word + ": wire formats are for float32, but " + model.name +
                                  " has other gradients, " + other->name + " for instance");
  }
  if (wires.empty()) throw std::invalid_argument("--wire: expected a format, got nothing");
  return wires;
}

std::vector<bool> threads_of(const std::string& text) {
  if (text == "both") return {false, true};
  if (text == "caller") return {false};
  if (text == "thread") return {true};
  throw std::invalid_argument("--advance " + text + ": known are caller, thread, both");
}

uint64_t bucket_size(const std::string& text, const char* flag) {
  if (text.empty()) return 0;
  const auto size = parse_size(text);
  if (!size || *size == 0)
    throw std::invalid_argument(std::string(flag) + " " + text +
                                ": expected bytes, a whole number of at least 1 with K, M, G or T if need be");
  return *size;
}

}  // namespace

const char* wire_name(tutti::Wire wire) {
  for (const auto& [name, known] : formats)
    if (known == wire) return name;
  return "unknown";
}

struct BucketsCommand::Texts {
  std::string model, wire = "all", advance = "both", bucket, first_bucket;
  double compute_ms = -1;
  BucketOptions given;
};

BucketsCommand::BucketsCommand(CLI::App& app, Options& options) : texts_(std::make_unique<Texts>()) {
  command_ =
      app.add_subcommand("buckets",
                         "replays the backward pass of a model, averages its gradients in buckets, and reports the "
                         "communication time that a program still waits for");
  BucketOptions& given = texts_->given;
  command_->add_option("MODEL", texts_->model, "resnet50, gpt2, or the path of a file: name,shape,dtype,ready_us")
      ->required();
  command_->add_option("--wire", texts_->wire, "plain, float16, bfloat16, float8, or all; several with commas (all)");
  command_->add_option(
      "--advance", texts_->advance,
      "who advances buckets: caller, thread or both; a thread of the library, or only the calls (both)");
  command_->add_option("--compute", texts_->compute_ms, "milliseconds of the backward pass; 0: none (the model's)")
      ->check(CLI::Range(0.0, 3.6e6));
  command_->add_option("--bucket-bytes", texts_->bucket, "largest bucket, K/M/G binary (25M)");
  command_->add_option("--first-bucket-bytes", texts_->first_bucket, "largest first bucket (1M)");
  command_->add_flag("--feedback", given.feedback, "the rounding error of a step is added in the next one");
  command_->add_flag("--views", given.views, "gradients lie one after another in memory: nothing is copied");
  command_->add_flag("--declared-order", given.declared_order,
                     "buckets follow the model's order; without it, the order in which gradients become ready");
  command_->add_option("-n,--iters", given.steps, "timed steps (5)")->check(CLI::Range(1u, 1u << 20));
  command_->add_option("-w,--warmup_iters", given.warm_up, "steps before the timed ones (2)")
      ->check(CLI::Range(0u, 1u << 20));
  command_->add_option("-c,--check", options.checks, "checked steps before and after the timed ones; 0: none (1)")
      ->check(CLI::Range(0u, 1u << 20));
  command_->add_option("-J,--output_file", options.json_path, "write everything as JSON too");
  command_->add_option("--threads", options.threads, "run so many ranks as threads of this process")
      ->check(CLI::Range(1, 4096));
  command_->add_option("--seed", options.seed, "of the gradients");
}

BucketsCommand::~BucketsCommand() = default;

bool BucketsCommand::is_given() const { return command_->parsed(); }

BucketOptions BucketsCommand::options() const {
  BucketOptions made = texts_->given;
  made.model = read_model(texts_->model);
  made.wires = wires_of(texts_->wire, made.model);
  made.threads = threads_of(texts_->advance);
  if (std::isnan(texts_->compute_ms)) throw std::invalid_argument("--compute nan: expected milliseconds");
  made.compute_us = texts_->compute_ms < 0 ? static_cast<double>(made.model.compute_us()) : texts_->compute_ms * 1000;
  made.bucket_bytes = bucket_size(texts_->bucket, "--bucket-bytes");
  made.first_bucket_bytes = bucket_size(texts_->first_bucket, "--first-bucket-bytes");
  if (made.feedback && std::ranges::all_of(made.wires, [](tutti::Wire wire) { return wire == tutti::Wire::plain; }))
    throw std::invalid_argument("--feedback: plain loses nothing; name a --wire that rounds");
  return made;
}

}  // namespace perf
