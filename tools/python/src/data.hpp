// SPDX-License-Identifier: Apache-2.0
//
// The elements that lie in a Python object: of the buffer protocol (numpy, bytearray, array), DLPack (torch and
// others),
// __array_interface__ or __cuda_array_interface__.
#pragma once

#include <pybind11/pybind11.h>
#include <tutti/plugin/types.h>

#include <cstdint>
#include <memory>
#include <string>

namespace tutti::python {

// The elements that a call takes: numbers of a type of Tutti's; or any values, which only move.
enum class Elements { numbers, any };

struct Form;

// Keeps the object's memory where it is while it lives. Made and destroyed with the interpreter's lock held.
class Data {
 public:
  Data() = default;
  // `call` and `argument` name them in errors: TypeError for an object without elements, or with a mask; ValueError for
  // elements that cannot be used: read-only ones that are to be written, references, not C-contiguous, or of a type
  // that no operator takes where the call takes `numbers`. `stream`: of the device, for an object in device memory.
  Data(pybind11::handle object, const char* call, const char* argument, bool written, uintptr_t stream,
       Elements elements);

  bool is_absent() const { return item_ == 0; }
  void* address() const { return address_; }
  uint64_t count() const { return count_; }
  uint64_t bytes() const { return count_ * item_; }
  // For errors: "float32"; "\">f4\"" for a type that Tutti does not have.
  std::string type() const;
  bool has_type_of(const Data& other) const {
    return dtype_ == other.dtype_ && item_ == other.item_ && type_ == other.type_;
  }
  // How elements go through the C API: those of a type that Tutti does not have as bytes, `units(n)` of them for n.
  uint32_t dtype() const { return dtype_ || is_absent() ? dtype_ : uint32_t{TUTTI_UINT8}; }
  uint64_t units(uint64_t elements) const { return dtype_ ? elements : elements * item_; }
  bool on_device() const { return on_device_; }

 private:
  struct Subject;
  void take_type(const Subject& subject, const std::string& type, const Form& form, bool values);
  bool take_buffer(const Subject& subject);
  void take_interface(const Subject& subject, const pybind11::dict& interface);
  void take_dlpack(const Subject& subject, uintptr_t stream);

  void* address_ = nullptr;
  uint64_t count_ = 0, item_ = 0;  // elements; bytes of one
  uint32_t dtype_ = 0;             // 0: `type_` is numpy's name for it
  std::string type_;
  bool on_device_ = false;
  std::shared_ptr<void> keeper_;
};

// "float32".
const char* dtype_text(uint32_t dtype);
// 0: no data type has this name.
uint32_t dtype_of_text(const std::string& text);

}  // namespace tutti::python
