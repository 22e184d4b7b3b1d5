// SPDX-License-Identifier: Apache-2.0
//
// Gradient buckets: tutti.Gradients, which Communicator.gradients makes.
#pragma once

#include <pybind11/pybind11.h>
#include <tutti/gradients.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "operations.hpp"

namespace tutti::python {

struct GradientSettings {
  std::string op, wire;
  bool feedback = false, thread = false, declared_order = false;
  Number bucket_bytes, first_bucket_bytes;
  std::optional<std::string> order, algorithms;
  std::optional<double> timeout;
  uintptr_t stream = 0;
};

class Gradients {
 public:
  // Collective. `tensors`: a sequence of arrays or of (count, type), or a dict of names to them.
  Gradients(const Calls& communicator, const pybind11::object& tensors, const GradientSettings& settings);
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;
  ~Gradients();

  // `tensor`: its number or its name.
  void ready(const pybind11::object& tensor, pybind11::handle data);
  void unused(const pybind11::object& tensor);
  bool test();
  bool wait(std::optional<double> seconds);
  uint64_t bucket(const pybind11::object& tensor);
  pybind11::dict facts();
  std::string text() const;
  bool is_open() const { return handle_ != nullptr; }
  bool is_used() const { return used_; }
  // Any thread.
  void abort(const std::string& reason);
  // Collective. Nothing the second time.
  void close();
  // For the end of the process: the caller destroys the handle.
  tutti_gradients* give_up() { return std::exchange(handle_, nullptr); }

 private:
  class User;
  void declare(const pybind11::object& tensors);
  void declare_one(pybind11::handle tensor, const std::string& name);
  uint64_t number(const char* call, const pybind11::object& tensor) const;
  std::string label(uint64_t number) const;
  template <typename Call>
  tutti_status use(Call&& call);

  struct Tensor {
    std::string name;  // "": none
    uint64_t count;
    uint32_t dtype;
  };
  std::shared_ptr<State> state_;
  tutti_gradients* handle_ = nullptr;  // nullptr: closed
  std::vector<Tensor> tensors_;
  std::map<std::string, uint64_t> numbers_;
  bool on_device_ = false;
  const uintptr_t stream_;
  std::vector<Data> data_;  // of this step
  bool used_ = false;       // by a thread; the interpreter's lock guards it, and the next
  int aborting_ = 0;        // threads
};

// Adds tutti.Gradients to the module.
void add_gradients(pybind11::module_& module);

}  // namespace tutti::python
