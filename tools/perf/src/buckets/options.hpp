// SPDX-License-Identifier: Apache-2.0
//
// The command line of `tutti-perf buckets`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <tutti/gradients.hpp>
#include <vector>

#include "buckets/model.hpp"

namespace CLI {
class App;
}

namespace perf {

struct Options;

struct BucketOptions {
  Model model;
  std::vector<tutti::Wire> wires;
  std::vector<bool> threads;  // whether a thread advances the buckets
  double compute_us = 0;      // the backward pass; 0: all gradients are complete at once
  uint32_t steps = 5, warm_up = 2;
  uint64_t bucket_bytes = 0, first_bucket_bytes = 0;  // 0: the library's
  bool feedback = false;
  bool views = false;           // gradients lie one after another in memory
  bool declared_order = false;  // buckets follow the model's order, not that of readiness
};

const char* wire_name(tutti::Wire wire);

// The subcommand: made before the command line is parsed, interpreted after it.
class BucketsCommand {
 public:
  // `options` get what the subcommand shares with the measurement of collectives.
  BucketsCommand(CLI::App& app, Options& options);
  ~BucketsCommand();
  bool is_given() const;
  // Reads the model. Throws std::invalid_argument.
  BucketOptions options() const;

 private:
  struct Texts;
  CLI::App* command_;
  std::unique_ptr<Texts> texts_;
};

}  // namespace perf
