// SPDX-License-Identifier: Apache-2.0
#include "data.hpp"

#include <tutti/plugin/types.h>

#include <charconv>
#include <string>
#include <vector>

namespace tutti::python {
namespace {

namespace py = pybind11;

struct Type {
  uint32_t dtype;
  char kind;  // as in __array_interface__: i, u, f, c; b for bfloat16, t for truth values, x and y for
              // float8, p for pairs
  uint32_t bytes;
  const char* name;
};
constexpr Type types[] = {
    {TUTTI_INT8, 'i', 1, "int8"},
    {TUTTI_INT16, 'i', 2, "int16"},
    {TUTTI_INT32, 'i', 4, "int32"},
    {TUTTI_INT64, 'i', 8, "int64"},
    {TUTTI_UINT8, 'u', 1, "uint8"},
    {TUTTI_UINT16, 'u', 2, "uint16"},
    {TUTTI_UINT32, 'u', 4, "uint32"},
    {TUTTI_UINT64, 'u', 8, "uint64"},
    {TUTTI_FLOAT16, 'f', 2, "float16"},
    {TUTTI_BFLOAT16, 'b', 2, "bfloat16"},
    {TUTTI_FLOAT32, 'f', 4, "float32"},
    {TUTTI_FLOAT64, 'f', 8, "float64"},
    {TUTTI_FLOAT8_E4M3, 'x', 1, "float8_e4m3"},
    {TUTTI_FLOAT8_E5M2, 'y', 1, "float8_e5m2"},
    {TUTTI_BOOL, 't', 1, "bool"},
    {TUTTI_COMPLEX64, 'c', 8, "complex64"},
    {TUTTI_COMPLEX128, 'c', 16, "complex128"},
    {TUTTI_FLOAT32_INT32, 'p', 8, "float32_int32"},
    {TUTTI_FLOAT64_INT64, 'p', 16, "float64_int64"},
};

uint32_t find_dtype(char kind, uint64_t bytes) {
  for (const Type& type : types)
    if (type.kind == kind && type.bytes == bytes) return type.dtype;
  return 0;
}

// The letters of a struct's fields without their names: "T{f:value:i:index:}" has "fi".
std::string fields_of(const std::string& format) {
  std::string letters;
  bool in_name = false;
  for (size_t i = 2; i + 1 < format.size(); ++i)
    if (format[i] == ':')
      in_name = !in_name;
    else if (!in_name && std::string("@=<^").find(format[i]) == std::string::npos)
      letters += format[i];
  return letters;
}

// The kind of a format of the struct module; 0: none of a number in this machine's byte order.
char kind_of_format(std::string format) {
  if (!format.empty() && (format[0] == '@' || format[0] == '=' || format[0] == '<')) format.erase(0, 1);
  if (format.rfind("T{", 0) == 0) {
    const std::string fields = fields_of(format);
    return fields == "fi" || fields == "dq" || (fields == "dl" && sizeof(long) == 8) ? 'p' : '\0';
  }
  if (format == "Zf" || format == "Zd") return 'c';
  if (format.size() != 1) return 0;
  if (std::string("bhilqn").find(format[0]) != std::string::npos) return 'i';
  if (format[0] == '?') return 't';
  if (std::string("BHILQN").find(format[0]) != std::string::npos) return 'u';
  return std::string("efd").find(format[0]) != std::string::npos ? 'f' : '\0';
}

// The kind of a type of the array interface; `fields`: what structures have.
char kind_of_type(const std::string& type, const std::vector<std::string>& fields) {
  if (type.size() <= 2 || type[0] == '>') return '\0';
  if (type[1] == 'b') return 't';
  if (type[1] != 'V') return type[1];
  const bool pair =
      fields == std::vector<std::string>{"<f4", "<i4"} || fields == std::vector<std::string>{"<f8", "<i8"};
  return pair ? 'p' : '\0';
}

// DLPack's structs (https://dmlc.github.io/dlpack/latest/c_api.html), version 0.
struct DlTensor {
  void* data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;  // in elements; nullptr: contiguous
  uint64_t byte_offset;
};
struct DlManagedTensor {
  DlTensor tensor;
  void* context;
  void (*deleter)(DlManagedTensor*);
};
enum { dl_cpu = 1, dl_cuda = 2, dl_cuda_host = 3 };

// Whether the strides, in units of `unit`, are those of elements in C order one behind the other.
template <typename Shape, typename Strides>
bool is_contiguous(const Shape& shape, const Strides& strides, size_t n, int64_t unit) {
  for (size_t i = n; i-- > 0;) {
    if (shape(i) == 0) return true;
    if (shape(i) != 1 && strides(i) != unit) return false;
    unit *= shape(i);
  }
  return true;
}

}  // namespace

struct Data::Subject {
  py::handle object;
  const char *call, *argument;
  bool written;

  std::string text(const std::string& what) const {
    return std::string(call) + ": " + argument + " (" + Py_TYPE(object.ptr())->tp_name + ") " + what;
  }
  [[noreturn]] void not_contiguous() const {
    throw py::value_error(
        text("is not contiguous: pass a contiguous copy (numpy.ascontiguousarray, Tensor.contiguous)"));
  }
  [[noreturn]] void read_only() const { throw py::value_error(text("is read-only, and the call writes into it")); }
  [[noreturn]] void no_such_type(const std::string& type) const {
    throw py::value_error(
        text("has elements of type " + type +
             ": expected bool, 8 to 64-bit integers, float16, bfloat16, float32, float64, float8, complex64, "
             "complex128, or pairs of float32 and int32 or of float64 and int64"));
  }
};

Data::Data(py::handle object, const char* call, const char* argument, bool written, uintptr_t stream) {
  const Subject subject{object, call, argument, written};
  // An attribute that is there and raises (a tensor on the processor has no __cuda_array_interface__) is no interface.
  const auto interface = [&](const char* name) -> py::object { return py::getattr(object, name, py::none()); };
  if (PyObject_CheckBuffer(object.ptr())) {
    take_buffer(subject);
  } else if (const py::object cuda = interface("__cuda_array_interface__"); !cuda.is_none()) {
    take_interface(subject, cuda);
    on_device_ = true;
  } else if (py::hasattr(object, "__dlpack__")) {
    take_dlpack(subject, stream);
  } else if (const py::object array = interface("__array_interface__"); !array.is_none()) {
    take_interface(subject, array);
  } else {
    throw py::type_error(subject.text(
        "has no elements to work on: expected an object with the buffer protocol (numpy.ndarray, bytearray, "
        "array.array, memoryview), DLPack (torch.Tensor) or __array_interface__"));
  }
}

void Data::take_buffer(const Subject& subject) {
  auto* view = new Py_buffer{};
  if (PyObject_GetBuffer(subject.object.ptr(), view, PyBUF_FORMAT | PyBUF_STRIDES) != 0) {
    delete view;
    throw py::error_already_set();
  }
  keeper_ = std::shared_ptr<void>(view, [](void* kept) {
    PyBuffer_Release(static_cast<Py_buffer*>(kept));
    delete static_cast<Py_buffer*>(kept);
  });
  if (subject.written && view->readonly) subject.read_only();
  if (!PyBuffer_IsContiguous(view, 'C')) subject.not_contiguous();
  const std::string format = view->format ? view->format : "B";
  const char kind = kind_of_format(format);
  dtype_ = kind ? find_dtype(kind, static_cast<uint64_t>(view->itemsize)) : 0;
  if (!dtype_) subject.no_such_type("\"" + format + "\" of " + std::to_string(view->itemsize) + " bytes");
  address_ = view->buf;
  count_ = static_cast<uint64_t>(view->len / view->itemsize);
}

void Data::take_interface(const Subject& subject, const py::dict& interface) {
  const auto type = interface["typestr"].cast<std::string>();
  uint64_t bytes = 0;
  if (type.size() > 2) std::from_chars(type.data() + 2, type.data() + type.size(), bytes);
  std::vector<std::string> fields;
  if (interface.contains("descr"))
    for (const py::handle field : interface["descr"].cast<py::list>())
      fields.push_back(py::str(field.cast<py::tuple>()[1]));
  dtype_ = find_dtype(kind_of_type(type, fields), bytes);
  if (!dtype_) subject.no_such_type("\"" + type + "\"");
  const py::tuple data = interface["data"], shape = interface["shape"];
  if (subject.written && data[1].cast<bool>()) subject.read_only();
  count_ = 1;
  for (const py::handle length : shape) count_ *= length.cast<uint64_t>();
  if (interface.contains("strides") && !interface["strides"].is_none()) {
    const py::tuple strides = interface["strides"];
    if (!is_contiguous([&](size_t i) { return shape[i].cast<int64_t>(); },
                       [&](size_t i) { return strides[i].cast<int64_t>(); }, shape.size(), static_cast<int64_t>(bytes)))
      subject.not_contiguous();
  }
  address_ = reinterpret_cast<void*>(data[0].cast<uintptr_t>());
  keeper_ = std::make_shared<py::object>(py::reinterpret_borrow<py::object>(subject.object));
}

void Data::take_dlpack(const Subject& subject, uintptr_t stream) {
  const py::tuple device = subject.object.attr("__dlpack_device__")();
  on_device_ = device[0].cast<int>() == dl_cuda;
  // 1 is CUDA's default stream there.
  py::capsule capsule = on_device_ ? subject.object.attr("__dlpack__")(py::arg("stream") = stream ? stream : 1)
                                   : subject.object.attr("__dlpack__")();
  auto* managed = static_cast<DlManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  if (!managed) throw py::error_already_set();
  PyCapsule_SetName(capsule.ptr(), "used_dltensor");
  keeper_ = std::shared_ptr<void>(managed, [](void* kept) {
    auto* tensor = static_cast<DlManagedTensor*>(kept);
    if (tensor->deleter) tensor->deleter(tensor);
  });
  const DlTensor& tensor = managed->tensor;
  if (!on_device_ && tensor.device_type != dl_cpu && tensor.device_type != dl_cuda_host)
    throw py::value_error(subject.text("is on a device of DLPack's type " + std::to_string(tensor.device_type) +
                                       ": expected the processor's memory or CUDA's"));
  constexpr char kinds[] = {'i', 'u', 'f', '\0', 'b', 'c', 't', '\0', '\0', '\0', 'x', '\0', 'y'};
  dtype_ = tensor.code < sizeof kinds && tensor.lanes == 1 && tensor.bits % 8 == 0
               ? find_dtype(kinds[tensor.code], tensor.bits / 8)
               : 0;
  if (!dtype_)
    subject.no_such_type("of DLPack's code " + std::to_string(tensor.code) + ", " + std::to_string(tensor.bits) +
                         " bits");
  count_ = 1;
  for (int32_t i = 0; i < tensor.ndim; ++i) count_ *= static_cast<uint64_t>(tensor.shape[i]);
  if (tensor.strides &&
      !is_contiguous([&](size_t i) { return tensor.shape[i]; }, [&](size_t i) { return tensor.strides[i]; },
                     static_cast<size_t>(tensor.ndim), 1))
    subject.not_contiguous();
  address_ = static_cast<char*>(tensor.data) + tensor.byte_offset;
}

uint64_t Data::bytes() const {
  for (const Type& type : types)
    if (type.dtype == dtype_) return count_ * type.bytes;
  return 0;
}

const char* dtype_text(uint32_t dtype) {
  for (const Type& type : types)
    if (type.dtype == dtype) return type.name;
  return "nothing";
}

uint32_t dtype_of_text(const std::string& text) {
  for (const Type& type : types)
    if (text == type.name) return type.dtype;
  return 0;
}

}  // namespace tutti::python
