// SPDX-License-Identifier: Apache-2.0
//
// Tensors as Tutti sees them: contiguous memory of one type.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::torch {

// While it lives, neither autograd nor the caller's dispatch modes (TorchDispatchMode, make_fx) see what this thread does with
// tensors: it is no operation of the caller's.
class Unseen {
  const at::AutoDispatchBelowADInplaceOrView no_gradients_;
  const c10::impl::ExcludeDispatchKeyGuard no_modes_{
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot})};
};

// The tensors' values: where they lie, if they do so one after another, else in a copy that has them one after another.
// Copies of a Buffer stand for the same memory. Throws where a tensor cannot be used, and where tensors that are
// written share elements; `name` is the call's, for the text.
class Buffer {
 public:
  enum class Use { read, write, change };
  // blocks: tensors of the processor that have no gaps each need not lie one after another: see displacements().
  enum class Form { whole, blocks };
  Buffer() = default;
  Buffer(const char* name, const std::vector<at::Tensor>& tensors, Use use, Form form = Form::whole);

  void* data() const;
  // Uses a copy from now on where a tensor lies over one of `others`, unless it is number `in_place` and lies exactly where the
  // first of them does: the calls for blocks refuse any other overlap.
  void keep_apart_from(const std::vector<at::Tensor>& others, size_t in_place = SIZE_MAX);
  // Where each tensor begins after data(), in elements of dtype(); nullptr: one after another.
  const uint64_t* displacements() const { return displacements_.empty() ? nullptr : displacements_.data(); }
  // Copies what has been written to where it belongs. Nothing, where the tensors are only read.
  void give_back() const;
  // Of all tensors.
  uint64_t elements() const { return elements_; }
  at::ScalarType type() const { return type_; }
  // Tutti's type. Where Tutti has none, the elements can still be moved as bytes: `moved` says so.
  uint32_t dtype(bool moved = true) const;
  // How many of dtype(moved) an element is.
  uint64_t scale() const;
  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  // CUDA's current stream on the tensors' device; NULL for the processor's.
  void* stream() const;

 private:
  bool find_displacements();
  void copy();

  const char* name_ = "";
  Use use_ = Use::read;
  std::vector<at::Tensor> tensors_;
  at::Tensor flat_;  // undefined: the tensors are used where they lie
  char* lowest_ = nullptr;  // with displacements
  std::vector<uint64_t> displacements_;
  uint64_t elements_ = 0;
  at::ScalarType type_ = at::kByte;
};

}  // namespace tutti::torch
