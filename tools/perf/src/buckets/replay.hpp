// SPDX-License-Identifier: Apache-2.0
//
// One rank's part in `tutti-perf buckets`: it marks the gradients of a model ready at the times of its backward pass,
// and measures what of the communication it still waits for.
#pragma once

#include <cstdint>
#include <string>
#include <tutti/gradients.hpp>

namespace perf {

struct Options;
struct BucketOptions;

// One way to exchange the gradients. Times are those of the slowest rank, medians over steps, in microseconds. All
// numbers but sent_bytes, which is rank 0's, are equal on all ranks.
struct ReplayRow {
  tutti::Wire wire = tutti::Wire::plain;
  bool thread = false;  // the library's thread advances the buckets; else only the calls do
  uint32_t buckets = 0;
  double sent_bytes = 0;  // of a step
  double alone_us = 0;    // of a step whose gradients are all ready at its beginning: communication alone
  double compute_us = 0;  // the backward pass
  double step_us = 0;     // of a step whose gradients become ready within the backward pass
  double wait_us = 0;     // of it, the time in gradients_wait: the slowest rank's mean
  double best_us = 0;     // a step's if all that can be hidden were: see best_step_us
  double speed = 0;       // plain's time alone over this one; 0: plain was not measured
  bool checked = false;
  uint64_t wrong = 0;  // elements, of all ranks
  double exposed_us() const { return step_us - compute_us; }
  double hideable_us() const { return compute_us + alone_us - best_us; }
  bool can_hide() const { return hideable_us() >= 1; }
  // Of what can be hidden; below 0 where overlap costs more than it saves. Requires can_hide().
  double hidden() const { return (compute_us + alone_us - step_us) / hideable_us(); }
};

// Options that do not fit the number of ranks; "" when all is well.
std::string misfit(const BucketOptions& options, uint32_t nranks);

// Measures every row of `options.buckets` and reports it. Returns the exit status: 1 for wrong results on any rank.
// Throws tutti::Error for failed calls.
int replay(const tutti::Communicator& world, const Options& options);

}  // namespace perf
