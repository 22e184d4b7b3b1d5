// SPDX-License-Identifier: Apache-2.0
//
// The record that the ranks of a job write while they run, in memory that all processes of the job share.
#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>

#include "growth/cost.hpp"
#include "growth/job.hpp"

namespace perf {

enum class Phase { create, first_call, next_call, split, next_splits, part_first_calls, part_destroys, destroy };
constexpr size_t phases = static_cast<size_t>(Phase::destroy) + 1;
const char* phase_name(Phase phase);

enum class Moment { before, used, family, parts };  // at which a rank looks at its process
constexpr size_t moments = static_cast<size_t>(Moment::parts) + 1;

struct Resources {
  double memory_kib = 0, descriptors = 0, threads = 0;
};
// Those of this process. Pages that processes share are divided among them; memory is 0 where the system does not tell.
Resources resources_now();
// The number behind a word of a file like /proc/meminfo. 0: there is none.
double number_behind(const char* word, const char* path);

struct RankRecord {
  std::chrono::nanoseconds begin[phases], end[phases];  // of a clock that all processes share
  Resources at[moments];                                // zero on ranks that share the process of rank 0
};

// Lives in a mapping of zeros.
class JobRecord {
 public:
  // A shared mapping for so many ranks. Throws std::runtime_error.
  static JobRecord* make(uint32_t nranks);
  static void release(JobRecord* record);

  std::span<RankRecord> ranks() { return {reinterpret_cast<RankRecord*>(this + 1), nranks_}; }
  void wait_for_all() { pthread_barrier_wait(&barrier_); }
  // Only the first call counts: later failures are consequences.
  void fail(const std::string& error);
  std::string error() const { return error_; }

  std::atomic<int> phase = 0;  // the last that a rank began
  char rendezvous[512];

 private:
  uint32_t nranks_;
  pthread_barrier_t barrier_;
  std::atomic<bool> failed_ = false;
  char error_[2048];
};

// The cost of a complete job, by its records.
GrowthCost cost_of(std::span<const RankRecord> ranks, uint32_t splits);

}  // namespace perf
