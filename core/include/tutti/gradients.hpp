// SPDX-License-Identifier: Apache-2.0
//
// Gradient buckets in C++ (gradients.h has the rules):
//
//   tutti::Gradients gradients(world, {{.count = 10, .dtype = TUTTI_FLOAT32}, ...}, {.wire = tutti::Wire::float16});
//   ... gradients.ready(0, last_layer); gradients.ready(1, layer_before); ...
//   gradients.wait();
#pragma once

#include <tutti/gradients.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <span>
#include <string>
#include <tutti/tutti.hpp>
#include <utility>
#include <vector>

namespace tutti {

enum class Wire : uint32_t {
  plain = TUTTI_WIRE_PLAIN,
  float16 = TUTTI_WIRE_FLOAT16,
  bfloat16 = TUTTI_WIRE_BFLOAT16,
  float8 = TUTTI_WIRE_FLOAT8
};

struct GradientSettings {
  Op op = Op::avg;  // or sum
  Wire wire = Wire::plain;
  bool feedback = false;                              // the rounding error of a step is added in the next one
  bool thread = false;                                // a thread of its own advances the buckets
  uint64_t bucket_bytes = 0, first_bucket_bytes = 0;  // 0: 25 MiB, 1 MiB
  std::chrono::nanoseconds timeout{0};                // of each operation; 0: the communicator's
  bool device = false;                                // tensors are memory of the communicator's device
  void* stream = nullptr;                             // with device: where buckets are summed
  bool declared_order = false;                        // buckets follow the declared order in all steps
  Order order = Order::communicator;                  // in which the contributions to a bucket are summed
  const char* algorithms = nullptr;                   // that may carry out a bucket's all_reduce; the communicator's
};

// Movable, not copyable. Destroying it is collective, except where an exception leaves its scope: that aborts it.
class Gradients {
 public:
  Gradients(const Communicator& comm, std::span<const tutti_tensor> tensors, const GradientSettings& settings = {}) {
    std::string error(2048, '\0');
    tutti_gradients_config config{};
    config.struct_size = sizeof config;
    config.flags = (settings.feedback ? uint32_t{TUTTI_GRADIENTS_FEEDBACK} : 0) |
                   (settings.thread ? uint32_t{TUTTI_GRADIENTS_THREAD} : 0) |
                   (settings.device ? uint32_t{TUTTI_GRADIENTS_DEVICE} : 0) |
                   (settings.declared_order ? uint32_t{TUTTI_GRADIENTS_DECLARED_ORDER} : 0);
    config.bucket_bytes = settings.bucket_bytes;
    config.first_bucket_bytes = settings.first_bucket_bytes;
    config.wire = static_cast<uint32_t>(settings.wire);
    config.op = static_cast<uint32_t>(settings.op);
    config.timeout_ns = detail::nanoseconds("tutti::Gradients", "GradientSettings::timeout", settings.timeout);
    config.stream = settings.stream;
    config.error = error.data();
    config.error_bytes = error.size();
    config.order = static_cast<uint32_t>(settings.order);
    config.algorithms = settings.algorithms;
    const tutti_status status =
        tutti_gradients_create(comm.handle(), &config, tensors.data(), tensors.size(), &gradients_);
    if (status < 0) throw Error(status, error.c_str());
  }
  Gradients(Gradients&& other) noexcept
      : gradients_(std::exchange(other.gradients_, nullptr)), exceptions_(other.exceptions_) {}
  Gradients& operator=(Gradients&& other) noexcept {
    std::swap(gradients_, other.gradients_);
    return *this;
  }
  ~Gradients() {
    if (!gradients_) return;
    if (std::uncaught_exceptions() > exceptions_) tutti_gradients_abort(gradients_, "the rank left by an exception");
    tutti_gradients_destroy(gradients_);
  }

  template <Elements Tensor>
  void ready(uint64_t tensor, Tensor&& data) {
    detail::require_output<Tensor>();
    const auto span = detail::span_of(data);
    check(tutti_gradients_ready(gradients_, tensor, span.data(), span.size()));
  }
  // This rank contributes zeros to the tensor, and gets no result.
  void unused(uint64_t tensor) { check(tutti_gradients_unused(gradients_, tensor)); }
  // True once all buckets that have started are complete.
  bool test() { return check(tutti_gradients_test(gradients_)); }
  void wait() { check(tutti_gradients_wait(gradients_)); }
  // False: the time has passed, and the step goes on.
  bool wait_for(std::chrono::nanoseconds time) {
    const auto limit = static_cast<uint64_t>(std::max<std::chrono::nanoseconds::rep>(time.count(), 0));
    return check(tutti_gradients_wait_for(gradients_, limit));
  }
  uint64_t bucket(uint64_t tensor) const {
    uint64_t bucket = 0;
    check(tutti_gradients_bucket(gradients_, tensor, &bucket));
    return bucket;
  }
  tutti_gradients_facts facts() const {
    tutti_gradients_facts facts{};
    facts.struct_size = sizeof facts;
    check(tutti_gradients_report(gradients_, &facts));
    return facts;
  }
  // For the C API; it stays this object's.
  tutti_gradients* handle() const { return gradients_; }

 private:
  bool check(tutti_status status) const {
    if (status < 0) throw Error(status, tutti_gradients_error(gradients_));
    return status == TUTTI_OK;
  }
  tutti_gradients* gradients_ = nullptr;
  int exceptions_ = std::uncaught_exceptions();
};

// A tensor of float32, or of another element type.
template <typename T = float>
constexpr tutti_tensor tensor(uint64_t count, const char* name = nullptr) {
  return {count, dtype_of<T>(), 0, name, {}};
}

}  // namespace tutti
