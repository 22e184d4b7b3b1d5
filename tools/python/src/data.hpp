// SPDX-License-Identifier: Apache-2.0
//
// The elements that lie in a Python object: of the buffer protocol (numpy, bytearray, array), DLPack (torch and
// others),
// __array_interface__ or __cuda_array_interface__.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <string>

namespace tutti::python {

// Keeps the object's memory where it is while it lives. Made and destroyed with the interpreter's lock held.
class Data {
 public:
  Data() = default;
  // `call` and `argument` name them in errors: TypeError for an object without elements, ValueError for elements that
  // cannot be used: read-only ones that are to be written, of a type that Tutti does not have, not contiguous.
  // `stream`: of the device, for an object in device memory.
  Data(pybind11::handle object, const char* call, const char* argument, bool written, uintptr_t stream);

  void* address() const { return address_; }
  uint64_t count() const { return count_; }
  uint32_t dtype() const { return dtype_; }
  uint64_t bytes() const;
  bool on_device() const { return on_device_; }

 private:
  struct Subject;
  void take_buffer(const Subject& subject);
  void take_interface(const Subject& subject, const pybind11::dict& interface);
  void take_dlpack(const Subject& subject, uintptr_t stream);

  void* address_ = nullptr;
  uint64_t count_ = 0;
  uint32_t dtype_ = 0;
  bool on_device_ = false;
  std::shared_ptr<void> keeper_;
};

// "float32".
const char* dtype_text(uint32_t dtype);
// 0: no data type has this name.
uint32_t dtype_of_text(const std::string& text);

}  // namespace tutti::python
