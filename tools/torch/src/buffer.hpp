// SPDX-License-Identifier: Apache-2.0
//
// Tensors as Tutti sees them: contiguous memory of one type.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>

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

// A tensor's elements in memory, from the first byte to behind the last one.
struct Place {
  uintptr_t begin = 0, end = 0;  // equal: no elements
};

// The place of a tensor without gaps whose bytes are its values; no elements: it is none.
Place place_without_gaps(const at::Tensor& tensor);

// Tensors of one list: all of one type on one device that is served; those that are written share no elements. Throws.
void check_list(const char* name, at::TensorList tensors, bool written);

class Written;

// The tensors' values: where they lie, if they do so one after another, else in a copy that has them one after another.
// Copies of a Buffer stand for the same memory. Throws where a tensor cannot be used, and where tensors that are
// written share elements; `name` is the call's, for the text.
class Buffer {
 public:
  enum class Use { read, write, change };
  // blocks: tensors of the processor that have no gaps each need not lie one after another: see displacements().
  enum class Form { whole, blocks };
  Buffer() = default;
  Buffer(const char* name, at::TensorList tensors, Use use, Form form = Form::whole);

  void* data() const;
  Form form() const { return form_; }
  // For tensors that are read: uses a copy from now on where one of them lies over what a call writes where it lies,
  // which Tutti refuses. Tensor `number` may hold `own`, the place of its own result: then the call is in place.
  void keep_apart_from(const Written& written, size_t number = SIZE_MAX, Place own = {});
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
  at::TensorList tensors() const { return tensors_; }
  // CUDA's current stream on the tensors' device; NULL for the processor's.
  void* stream() const;

 private:
  friend class Written;
  bool find_displacements();
  void copy();
  void copy_parts(bool back) const;

  const char* name_ = "";
  Use use_ = Use::read;
  Form form_ = Form::whole;
  c10::SmallVector<at::Tensor, 1> tensors_;
  at::Tensor flat_;  // undefined: the tensors are used where they lie
  char* lowest_ = nullptr;  // with displacements
  std::vector<uint64_t> displacements_;
  uint64_t elements_ = 0;
  at::ScalarType type_ = at::kByte;
};

// Is a list with such a tensor for each rank used where its tensors lie, by the call for unequal blocks? Small ones are
// copied: the call for equal blocks has more algorithms, and small calls of a group travel as one. All ranks come to
// the same answer: the blocks of a call have the same size everywhere, and all of them lie on processors or none.
// `calls`: of the group that the call is in.
bool in_blocks(const at::Tensor& block, size_t calls = 1);

// The memory that calls which go on together write.
class Written {
 public:
  explicit Written(const std::vector<const Buffer*>& outs);
  // Any byte from begin up to end.
  bool meets(uintptr_t begin, uintptr_t end) const;

 private:
  std::vector<Place> places_;  // in order of their beginnings; each end is the furthest one so far
};

}  // namespace tutti::torch
