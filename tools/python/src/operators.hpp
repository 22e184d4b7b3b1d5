// SPDX-License-Identifier: Apache-2.0
//
// Operators of the application: a Python function of two memoryviews, or a factor of each rank.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>

#include "state.hpp"

namespace tutti::python {

class Operator {
 public:
  // `function(left, right)` sets left to left op right. `type`: "int64". Raises ValueError for a type whose elements
  // Python cannot show.
  static std::unique_ptr<Operator> of_function(std::shared_ptr<State> state, const std::string& name,
                                               pybind11::function function, const std::string& type, bool commutes);
  // `factor`: an array of one element.
  static std::unique_ptr<Operator> premul_sum(std::shared_ptr<State> state, pybind11::handle factor);
  Operator(const Operator&) = delete;
  Operator& operator=(const Operator&) = delete;
  ~Operator();

  // The number for calls of this communicator. Raises ValueError for those of another one.
  uint32_t number(const State& state, const std::string& call) const;
  const std::string& name() const { return name_; }

 private:
  struct Body;
  Operator(std::shared_ptr<State> state, std::string name) : state_(std::move(state)), name_(std::move(name)) {}

  std::shared_ptr<State> state_;
  std::string name_;
  uint32_t number_ = 0;
  Body* body_ = nullptr;
};

// Adds tutti.Operator to the module.
void add_operators(pybind11::module_& module);

}  // namespace tutti::python
