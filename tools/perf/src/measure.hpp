// SPDX-License-Identifier: Apache-2.0
//
// One rank's part in measuring: checks a call's result, times it, checks it again, and exchanges what was found.
#pragma once

#include <cstdint>
#include <tutti/tutti.hpp>
#include <vector>

#include "blocks.hpp"
#include "data.hpp"
#include "device.hpp"
#include "memory.hpp"
#include "options.hpp"
#include "result.hpp"

namespace perf {

// The time that -a shows of the ranks' times.
double combined(Report report, const std::vector<double>& of_ranks);

// One row to measure.
struct Case {
  const Collective* collective = nullptr;
  uint64_t bytes = 0;  // as asked for
  Named dtype, op;     // op.code 0: none
  uint32_t root = 0;
};

// Belongs to one thread. Every rank must ask for the same rows in the same order. Failed calls throw tutti::Error;
// wrong results do not: they are printed to standard error and counted in the row.
class Measurer {
 public:
  // `device`: where the buffers lie; NULL: on the host.
  Measurer(const tutti::Communicator& comm, const Options& options, const Device* device);
  Row measure(const Case& what);
  // Wrong elements that this rank itself has seen so far.
  uint64_t wrong_here() const { return wrong_here_; }

 private:
  BlockLayout layout_of(const Collective& collective, const Call& call) const {
    return {collective, call.nranks, call.count, options_.skewed};
  }
  Side measure_side(const Case& what, Call call, bool in_place);
  // Runs once on fresh data and returns how many elements are wrong.
  uint64_t check_once(const Case& what, const Call& call, bool in_place, const char* when);
  void report(const Case& what, const Call& call, bool in_place, const char* when, const char* place,
              const Mistakes& found, uint64_t of) const;
  double time_iterations(const Collective& collective, const Call& call);
  Latency time_singly(const Collective& collective, const Call& call);
  void run(const Collective& collective, const Call& call);
  // Until what was called is done.
  void finish() const {
    if (device_) device_->finish(comm_.handle());
  }
  // The host's bytes of a call's buffer.
  char* host_of(const void* address) const {
    return out_.holds(address) ? out_.host_of(address) : in_.host_of(address);
  }
  // One number of every rank.
  void exchange(Side* side, double time_us, double free_us, const Latency& latency, uint64_t wrong) const;

  const tutti::Communicator& comm_;
  const Options& options_;
  const Device* device_;
  tutti_options call_options_{}, free_options_{};  // of calls, and of those with which exact sums are compared
  Memory in_, out_;
  tutti::Window in_window_, out_window_;  // of registered device memory
  uint64_t seed_;
  uint64_t wrong_here_ = 0;
};

}  // namespace perf
