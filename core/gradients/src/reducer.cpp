// SPDX-License-Identifier: Apache-2.0
#include "reducer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

namespace tutti::gradients {
namespace {

// How long the reducer's thread waits for the network before it looks for new buckets.
constexpr uint64_t glance_ns = 300'000;
// How long a caller that only waits for the network does so at a time.
constexpr uint64_t rest_ns = 20'000'000;
// How long a caller waits for the reducer's thread at a time, which wakes it.
constexpr uint64_t longest_wait_ns = 1'000'000'000;

}  // namespace

class TimeLimit {
 public:
  explicit TimeLimit(uint64_t nanoseconds) : limit_(nanoseconds) {}
  uint64_t left() const {
    if (limit_ == UINT64_MAX) return limit_;
    const auto passed = std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin_).count();
    return limit_ - std::min(limit_, static_cast<uint64_t>(passed));
  }

 private:
  const uint64_t limit_;  // UINT64_MAX: none
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

Reducer::Reducer(Communicator exchange, std::optional<Communicator> gather, Declaration declaration)
    : exchange_(std::move(exchange)),
      gather_(std::move(gather)),
      algorithms_(std::move(declaration.algorithms)),
      wiring_{exchange_.handle(),
              gather_ ? gather_->handle() : nullptr,
              exchange_.rank(),
              exchange_.nranks(),
              declaration.op,
              gather_.has_value(),
              (declaration.flags & TUTTI_GRADIENTS_DEVICE) != 0,
              {}},
      limits_{declaration.first_bucket_bytes, declaration.bucket_bytes, wiring_.device},
      tensors_(std::move(declaration.tensors)),
      settled_(wiring_.device || (declaration.flags & TUTTI_GRADIENTS_DECLARED_ORDER)) {
  wiring_.options.struct_size = sizeof wiring_.options;
  wiring_.options.timeout_ns = declaration.timeout_ns;
  wiring_.options.stream = declaration.stream;
  wiring_.options.order = declaration.order;
  wiring_.options.algorithms = algorithms_ ? algorithms_->c_str() : nullptr;
  wiring_.options.wire = declaration.wire;
  std::vector<uint64_t> declared(tensors_.size());
  std::iota(declared.begin(), declared.end(), 0);
  build(declared);
  if (!settled_) order_.reserve(tensors_.size());
  if (declaration.flags & TUTTI_GRADIENTS_THREAD) thread_ = std::thread([this] { run(); });
}

void Reducer::build(std::span<const uint64_t> order) {
  const std::vector<Extent> extents = cut(tensors_, order, limits_);
  buckets_.reserve(extents.size());
  for (const Extent& extent : extents) buckets_.emplace_back(wiring_, tensors_, extent, buckets_.size() + 1);
  facts_.buckets = static_cast<uint32_t>(buckets_.size());
}

// Cuts other buckets, to which what tensors have lost by rounding moves.
void Reducer::rebuild(std::span<const uint64_t> order) {
  const std::vector<Tensor> before = tensors_;
  std::vector<Bucket> old = std::exchange(buckets_, {});
  build(order);
  for (Bucket& bucket : old) bucket.shift_losses();
  for (size_t i = 0; i < tensors_.size(); ++i)
    std::ranges::copy(old[before[i].bucket].lost(before[i].place),
                      buckets_[tensors_[i].bucket].lost(tensors_[i].place).begin());
}

// Collective in the first step, where buckets are not settled yet: rank 0's order becomes that of all ranks.
bool Reducer::is_agreed_by(const TimeLimit& limit) try {
  if (settled_) return true;
  if (!agreement_) {
    tutti_options options{};
    options.struct_size = sizeof options;
    options.timeout_ns = wiring_.options.timeout_ns;
    tutti_request* request = nullptr;
    const tutti_status status = tutti_broadcast(wiring_.exchange, order_.data(), order_.data(), order_.size(),
                                                TUTTI_UINT64, 0, &options, &request);
    if (status < 0) throw Error(status, tutti_comm_error(wiring_.exchange));
    agreement_ = Request(request);
  }
  do {
    if (agreement_->wait_for(std::chrono::nanoseconds(std::min(rest_ns, limit.left())))) return true;
  } while (limit.left() > 0);
  return false;
} catch (...) {
  fail();
}

void Reducer::settle() try {
  agreement_.reset();
  std::vector<bool> seen(tensors_.size());
  for (const uint64_t number : order_) {
    if (number >= seen.size() || seen[number])
      refuse("wait", TUTTI_MISMATCH,
             fmt::format("rank 0 sent the order of its {} tensors, in which number {} comes {}", seen.size(), number,
                         number < seen.size() ? "twice" : "up, which does not exist"));
    seen[number] = true;
  }
  rebuild(order_);
  order_ = {};
  settled_ = true;
} catch (...) {
  fail();
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

void Reducer::abort(const char* reason) noexcept {
  tutti_comm_abort(wiring_.exchange, reason);
  if (wiring_.gather) tutti_comm_abort(wiring_.gather, reason);
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
  mark("ready", number, data);
}

void Reducer::unused(uint64_t number) {
  rethrow();
  const Tensor& tensor = known("unused", number);
  if (wiring_.device)
    refuse(
        "unused", TUTTI_NOT_SUPPORTED,
        fmt::format("tensor {}: with TUTTI_GRADIENTS_DEVICE each tensor needs memory: fill it with zeros and mark it "
                    "ready",
                    tensor.name));
  mark("unused", number, nullptr);
}

void Reducer::mark(const char* call, uint64_t number, void* data) {
  const Tensor& tensor = tensors_[number];
  Bucket& bucket = buckets_[tensor.bucket];
  if (bucket.is_assigned(tensor.place))
    refuse(call, TUTTI_INVALID_USAGE,
           fmt::format("tensor {} was marked {} already in this step: call gradients_wait between two steps",
                       tensor.name, bucket.is_unused(tensor.place) ? "unused" : "ready"));
  ++marks_;
  if (!settled_) order_.push_back(number);
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
    fail();
  }
}

// Within a handler: what is thrown stays the result of all later calls.
void Reducer::fail() {
  const std::lock_guard lock(mutex_);
  failure_ = std::current_exception();
  throw;
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
             fmt::format("tensor {} was not marked ready in this step; {} of {} are missing: mark them ready or "
                         "unused, and wait again",
                         tensor.name, tensors_.size() - marks_, tensors_.size()));
}

bool Reducer::is_complete_by(const TimeLimit& limit) {
  if (!thread_.joinable()) {
    while (complete_ < buckets_.size()) {
      const uint64_t left = limit.left();
      advance_here(std::min(rest_ns, left));
      if (left == 0) break;
    }
    return complete_ == buckets_.size();
  }
  std::unique_lock lock(mutex_);
  const auto is_over = [this] { return failure_ || complete_ == buckets_.size(); };
  while (!is_over() && limit.left() > 0)
    changed_.wait_for(lock, std::chrono::nanoseconds(std::min(longest_wait_ns, limit.left())), is_over);
  return is_over();
}

bool Reducer::wait_for(uint64_t nanoseconds) {
  rethrow();
  require_all_marked();
  const auto begin = std::chrono::steady_clock::now();
  const TimeLimit limit(nanoseconds);
  if (!std::exchange(waiting_, true)) {
    test();
    const std::lock_guard lock(mutex_);
    facts_.early += complete_;
  }
  const bool complete = is_complete_by(limit);
  rethrow();
  const bool over = complete && is_agreed_by(limit);
  if (over) end_step();
  facts_.exposed_ns +=
      static_cast<uint64_t>(std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count());
  return over;
}

void Reducer::end_step() {
  for (Bucket& bucket : buckets_) bucket.unpack();
  {
    const std::lock_guard lock(mutex_);
    full_ = complete_ = started_ = 0;
  }
  marks_ = 0;
  waiting_ = false;
  ++facts_.steps;
  facts_.started += buckets_.size();
  if (!settled_) settle();
}

const tutti_gradients_facts& Reducer::facts() {
  // During a step the thread uses the communicators.
  if (thread_.joinable() && marks_ > 0) return facts_;
  facts_.sent_bytes = 0;
  for (const Communicator* comm : {&exchange_, gather_ ? &*gather_ : nullptr})
    for (const tutti_link_traffic& link : comm ? comm->traffic() : std::vector<tutti_link_traffic>())
      facts_.sent_bytes += link.sent_bytes;
  return facts_;
}

uint64_t Reducer::bucket(uint64_t tensor) const { return known("bucket", tensor).bucket; }

}  // namespace tutti::gradients
