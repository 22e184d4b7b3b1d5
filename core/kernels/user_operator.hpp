// SPDX-License-Identifier: Apache-2.0
//
// Operators of the application: functions that combine elements in host memory.
#pragma once

#include <tutti/tutti.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "kernels/kernels.hpp"

namespace tutti::core {

// The factor of a premul_sum: an element.
using Factor = std::array<std::byte, 16>;

struct UserOperator {
  std::string name;
  bool commutative = true;
  uint64_t dtypes = 0;  // mask of those that it takes
  tutti_op_function function = nullptr;
  void* context = nullptr;
  std::optional<Factor> factor;  // it is a premul_sum: there is no function
};

inline Factor factor_of(const UserOperator* op) { return op && op->factor ? *op->factor : Factor{}; }

// The operators of a communicator, by their numbers from TUTTI_FIRST_USER_OP on. A number is never used again.
class UserOperators {
 public:
  uint32_t add(UserOperator op) {
    const uint32_t number = next_++;
    operators_.emplace(number, std::make_unique<UserOperator>(std::move(op)));
    return number;
  }
  // nullptr: no operator has the number, or it was removed. The result lives until it is removed.
  const UserOperator* find(uint32_t number) const {
    const auto found = operators_.find(number);
    return found == operators_.end() ? nullptr : found->second.get();
  }
  void remove(uint32_t number) { operators_.erase(number); }
  // Had an operator ever the number?
  bool was_there(uint32_t number) const { return number >= TUTTI_FIRST_USER_OP && number < next_; }

 private:
  uint32_t next_ = TUTTI_FIRST_USER_OP;
  std::unordered_map<uint32_t, std::unique_ptr<UserOperator>> operators_;
};

// A kernel: folds the sources by reduction.user, in their order. Throws Failure when the function returns an error.
void reduce_by_user(const Reduction& reduction);

// dst = src times the factor, as TUTTI_PROD has it. dst is src, or nothing overlaps.
void multiply(void* dst, const void* src, uint64_t count, uint32_t dtype, const Factor& factor);

}  // namespace tutti::core
