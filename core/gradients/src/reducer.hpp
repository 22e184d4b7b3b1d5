// SPDX-License-Identifier: Apache-2.0
//
// The buckets of a set of tensors, step after step (gradients.h).
//
// One thread advances the buckets: the caller's, in ready, test and wait, or a thread of the reducer. It alone touches
// buckets from the moment they are full until they are complete. The members below `mutex_` join the two.
//
// The first step has the buckets of the declared order. Unless that is kept, the step's end cuts them anew, by the
// order in which rank 0 marked the tensors: a broadcast follows the buckets (is_agreed_by), then new buckets are made
// (settle).
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

#include "bucket.hpp"
#include "layout.hpp"

namespace tutti::gradients {

// The checked arguments of a reducer.
struct Declaration {
  std::vector<Tensor> tensors;
  uint64_t first_bucket_bytes, bucket_bytes;
  uint32_t wire, op, flags;  // TUTTI_WIRE_*, TUTTI_SUM or TUTTI_AVG, TUTTI_GRADIENTS_*
  uint64_t timeout_ns;
  void* stream;
  uint32_t order;                         // TUTTI_ORDER_*
  std::optional<std::string> algorithms;  // nullopt: the communicator's
};

class TimeLimit;

class Reducer {
 public:
  // Both are duplicates of the caller's; `gather` is empty where nothing is encoded.
  Reducer(Communicator exchange, std::optional<Communicator> gather, Declaration declaration);
  // Collective, but for a step that is under way: that is aborted.
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // These throw tutti::Error.
  void ready(uint64_t tensor, void* data, uint64_t count);
  void unused(uint64_t tensor);
  bool test();
  // Waits at most so long for the end of the step; true once it has ended.
  bool wait_for(uint64_t nanoseconds);
  uint64_t bucket(uint64_t tensor) const;
  const tutti_gradients_facts& facts();
  // Any thread.
  void abort(const char* reason) noexcept;

 private:
  const Tensor& known(const char* call, uint64_t tensor) const;
  [[noreturn]] void refuse(const char* call, tutti_status status, const std::string& text) const;
  void mark(const char* call, uint64_t number, void* data);
  void require_all_marked() const;
  void build(std::span<const uint64_t> order);
  void rebuild(std::span<const uint64_t> order);
  bool is_agreed_by(const TimeLimit& limit);
  void settle();
  void end_step();
  size_t turn(size_t full);
  void advance_here(uint64_t rest_ns);
  bool is_complete_by(const TimeLimit& limit);
  void run();
  void rethrow() const;
  [[noreturn]] void fail();

  Communicator exchange_;
  std::optional<Communicator> gather_;
  const std::optional<std::string> algorithms_;
  Wiring wiring_;
  const BucketLimits limits_;
  std::vector<Tensor> tensors_;
  std::vector<Bucket> buckets_;
  bool settled_;                 // the buckets stay as they are
  std::vector<uint64_t> order_;  // of the marks of the first step; empty once the buckets are settled
  std::optional<Request> agreement_;
  size_t marks_ = 0;
  bool waiting_ = false;  // for the end of this step
  tutti_gradients_facts facts_{};
  size_t started_ = 0;  // of the thread that advances: buckets below this number have started

  mutable std::mutex mutex_;
  std::condition_variable work_, changed_;
  size_t full_ = 0;      // all buckets below this number may start
  size_t complete_ = 0;  // all buckets below this number are complete
  std::exception_ptr failure_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tutti::gradients
