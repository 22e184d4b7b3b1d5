// SPDX-License-Identifier: Apache-2.0
//
// Operators of the application in C++ (tutti.hpp): functions of two elements.
#pragma once

#include <tutti/tutti.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <tutti/calls.hpp>
#include <tutti/elements.hpp>
#include <utility>

namespace tutti {

// An operator of a communicator, for host memory (tutti.h: tutti_op_create). It is passed to calls as an Op:
//
//   auto gcd = tutti::Operator::of<int64_t>(world, "gcd", [](int64_t a, int64_t b) { return std::gcd(a, b); });
//   world.all_reduce(numbers, numbers, gcd);
//
// The function gives `left op right`. tutti.h says by which thread it is called. If it throws, the operation ends with
// a tutti::Error on all ranks, which has the exception's text, and the communicator is broken. It must not outlive the
// communicator, and should outlive the operations that use it: if it is destroyed earlier, its function is not freed.
class Operator {
 public:
  Operator() = default;
  // `commutes`: may operands be swapped? Else they stay in the order of ranks.
  template <typename T, typename Comm, typename Function>
  static Operator of(const Comm& comm, const std::string& name, Function function, bool commutes = true);
  // The sum of all ranks' elements, each multiplied by its rank's factor (tutti_op_create_premul_sum).
  template <typename T, typename Comm>
  static Operator premul_sum(const Comm& comm, T factor) {
    uint32_t number = 0;
    const tutti_status status = tutti_op_create_premul_sum(comm.handle(), dtype_of<T>(), &factor, &number);
    if (status < 0) throw Error(status, tutti_comm_error(comm.handle()));
    return Operator(comm.handle(), number);
  }
  // Takes ownership of a number of the C API.
  Operator(tutti_comm* comm, uint32_t number) : comm_(comm), number_(number) {}
  Operator(Operator&& other) noexcept
      : comm_(other.comm_), number_(std::exchange(other.number_, 0)), function_(std::move(other.function_)) {}
  Operator& operator=(Operator&& other) noexcept {
    std::swap(comm_, other.comm_);
    std::swap(number_, other.number_);
    std::swap(function_, other.function_);
    return *this;
  }
  ~Operator() {
    if (number_ && tutti_op_free(comm_, number_) < 0) function_.release();  // it may still be called
  }
  operator Op() const { return static_cast<Op>(number_); }

 private:
  using Fold = std::function<void(void* inout, const void* in, uint64_t count)>;
  static tutti_status call(void* inout, const void* in, uint64_t count, uint32_t, void* context) {
    try {
      (*static_cast<const Fold*>(context))(inout, in, count);
      return TUTTI_OK;
    } catch (const std::exception& thrown) {
      tutti_op_set_error(thrown.what());
    } catch (...) {
      tutti_op_set_error("an exception of an unknown type");
    }
    return TUTTI_ABORTED;
  }
  tutti_comm* comm_ = nullptr;
  uint32_t number_ = 0;
  std::unique_ptr<Fold> function_;
};

template <typename T, typename Comm, typename Function>
Operator Operator::of(const Comm& comm, const std::string& name, Function function, bool commutes) {
  auto fold = std::make_unique<Fold>([f = std::move(function)](void* inout, const void* in, uint64_t count) {
    T* const left = static_cast<T*>(inout);
    const T* const right = static_cast<const T*>(in);
    for (uint64_t i = 0; i < count; ++i) left[i] = f(left[i], right[i]);
  });
  tutti_op_config config{};
  config.struct_size = sizeof config;
  config.flags = commutes ? 0 : uint32_t{TUTTI_OP_NOT_COMMUTATIVE};
  config.name = name.c_str();
  config.function = call;
  config.context = fold.get();
  config.dtypes = uint64_t{1} << dtype_of<T>();
  uint32_t number = 0;
  const tutti_status status = tutti_op_create(comm.handle(), &config, &number);
  if (status < 0) throw Error(status, tutti_comm_error(comm.handle()));
  Operator made(comm.handle(), number);
  made.function_ = std::move(fold);
  return made;
}

}  // namespace tutti
