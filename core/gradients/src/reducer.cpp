// SPDX-License-Identifier: Apache-2.0
#include "reducer.hpp"

#include <fmt/format.h>

#include <chrono>
#include <utility>

namespace tutti::gradients {
namespace {

// How long the reducer's thread waits for the network before it looks for new buckets.
constexpr uint64_t glance_ns = 300'000;
// How long a caller that only waits for the network does so at a time.
constexpr uint64_t rest_ns = 20'000'000;

}  // namespace

Reducer::Reducer(Communicator exchange, std::optional<Communicator> gather, Declaration declaration)
    : exchange_(std::move(exchange)),
      gather_(std::move(gather)),
      wiring_{exchange_.handle(),
              gather_ ? gather_->handle() : nullptr,
              exchange_.rank(),
              exchange_.nranks(),
              declaration.op,
              gather_ ? std::optional(core::Codec(declaration.wire)) : std::nullopt,
              (declaration.flags & TUTTI_GRADIENTS_FEEDBACK) != 0,
              (declaration.flags & TUTTI_GRADIENTS_DEVICE) != 0,
              {}},
      tensors_(std::move(declaration.tensors)) {
  wiring_.options.struct_size = sizeof wiring_.options;
  wiring_.options.timeout_ns = declaration.timeout_ns;
  wiring_.options.stream = declaration.stream;
  const std::vector<Extent> extents = cut(tensors_, declaration.first_bucket_bytes, declaration.bucket_bytes);
  buckets_.reserve(extents.size());
  for (const Extent& extent : extents) buckets_.emplace_back(wiring_, tensors_, extent);
  facts_.buckets = static_cast<uint32_t>(buckets_.size());
  if (declaration.flags & TUTTI_GRADIENTS_THREAD) thread_ = std::thread([this] { run(); });
}

Reducer::~Reducer() {
  // A step under way has buffers in use: its end is not waited for.
  if (marks_ > 0) abort("the gradients were destroyed within a step");
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    work_.notify_all();
    thread_.join();
  }
}

void Reducer::abort(const std::string& reason) {
  exchange_.abort(reason);
  if (gather_) gather_->abort(reason);
}

void Reducer::refuse(const char* call, tutti_status status, const std::string& text) const {
  throw Error(status, fmt::format("rank {}: {}: gradients_{}: {}", wiring_.rank, exchange_.name(), call, text));
}

const Tensor& Reducer::known(const char* call, uint64_t tensor) const {
  if (tensor >= tensors_.size())
    refuse(call, TUTTI_INVALID_ARGUMENT,
           fmt::format("tensor {} does not exist: {} were declared, numbers begin at 0", tensor, tensors_.size()));
  return tensors_[tensor];
}

void Reducer::ready(uint64_t number, void* data, uint64_t count) {
  rethrow();
  const Tensor& tensor = known("ready", number);
  if (count != tensor.count)
    refuse("ready", TUTTI_INVALID_ARGUMENT,
           fmt::format("tensor {} has {} elements, but was declared with {}", tensor.name, count, tensor.count));
  if (!data && count > 0) refuse("ready", TUTTI_INVALID_ARGUMENT, fmt::format("tensor {}: data is NULL", tensor.name));
  Bucket& bucket = buckets_[tensor.bucket];
  if (bucket.is_assigned(tensor.place))
    refuse("ready", TUTTI_INVALID_USAGE,
           fmt::format("tensor {} was marked ready already in this step: call gradients_wait between two steps",
                       tensor.name));
  ++marks_;
  bucket.assign(tensor.place, data);
  {
    const std::lock_guard lock(mutex_);
    while (full_ < buckets_.size() && buckets_[full_].is_full()) ++full_;
  }
  if (thread_.joinable())
    work_.notify_one();
  else
    advance_here(0);
}

// Starts what is full and takes every step that is possible; how many buckets from the first on are complete.
size_t Reducer::turn(size_t full) {
  while (started_ < full) buckets_[started_++].start();
  bool may_gather = true;
  size_t complete = 0;
  for (size_t i = 0; i < started_; ++i) {
    if (!buckets_[i].is_complete()) buckets_[i].advance(may_gather);
    may_gather = may_gather && buckets_[i].has_gathered();
    if (complete == i && buckets_[i].is_complete()) ++complete;
  }
  return complete;
}

// The turn of a reducer without a thread; waits at most so long for the first bucket that is not complete.
void Reducer::advance_here(uint64_t rest_ns) {
  try {
    complete_ = turn(full_);
    if (rest_ns > 0 && complete_ < started_) buckets_[complete_].rest(rest_ns);
  } catch (...) {
    failure_ = std::current_exception();
    throw;
  }
}

void Reducer::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return stop_ || (!failure_ && full_ > complete_); });
    if (stop_) return;
    const size_t full = full_;
    size_t complete = complete_;
    std::exception_ptr failure;
    lock.unlock();
    try {
      complete = turn(full);
      if (complete < full) buckets_[complete].rest(glance_ns);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    complete_ = complete;
    failure_ = failure;
    if (failure || complete == buckets_.size()) changed_.notify_all();
  }
}

void Reducer::rethrow() const {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

bool Reducer::test() {
  rethrow();
  if (!thread_.joinable()) advance_here(0);
  const std::lock_guard lock(mutex_);
  return complete_ == full_;
}

void Reducer::require_all_marked() const {
  if (marks_ == 0)
    refuse("wait", TUTTI_INVALID_USAGE, "no tensor was marked ready since the last wait, so nothing has started");
  if (marks_ == tensors_.size()) return;
  for (const Tensor& tensor : tensors_)
    if (!buckets_[tensor.bucket].is_assigned(tensor.place))
      refuse("wait", TUTTI_INVALID_USAGE,
             fmt::format("tensor {} was not marked ready in this step; {} of {} are missing: mark them and wait again",
                         tensor.name, tensors_.size() - marks_, tensors_.size()));
}

void Reducer::wait_for_all() {
  if (!thread_.joinable()) {
    while (complete_ < buckets_.size()) advance_here(rest_ns);
    return;
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return failure_ || complete_ == buckets_.size(); });
}

void Reducer::wait() {
  rethrow();
  require_all_marked();
  const auto begin = std::chrono::steady_clock::now();
  test();
  {
    const std::lock_guard lock(mutex_);
    facts_.early += complete_;
  }
  wait_for_all();
  rethrow();
  for (Bucket& bucket : buckets_) bucket.unpack();
  const std::lock_guard lock(mutex_);
  full_ = complete_ = started_ = 0;
  marks_ = 0;
  ++facts_.steps;
  facts_.started += buckets_.size();
  facts_.sent_bytes = 0;
  for (const Communicator* comm : {&exchange_, gather_ ? &*gather_ : nullptr})
    for (const tutti_link_traffic& link : comm ? comm->traffic() : std::vector<tutti_link_traffic>())
      facts_.sent_bytes += link.sent_bytes;
  facts_.exposed_ns +=
      static_cast<uint64_t>(std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count());
}

uint64_t Reducer::bucket(uint64_t tensor) const { return known("bucket", tensor).bucket; }

}  // namespace tutti::gradients
