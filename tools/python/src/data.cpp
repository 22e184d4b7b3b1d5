// SPDX-License-Identifier: Apache-2.0
#include "data.hpp"

#include <tutti/plugin/types.h>

#include <charconv>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::python {

namespace py = pybind11;

// The kind of elements: as in Type; or one that numpy can turn into one of Tutti's: M and m for datetime64 and
// timedelta64, V for bytes without a meaning, R for records; '\0' for all else.
struct Form {
  char kind = '\0';
  bool swapped = false;  // in the byte order that this machine does not have
};

namespace {

struct Type {
  uint32_t dtype;
  char kind;  // of __array_interface__: i, u, f, c; or b: bfloat16, t: truth values, x, y: float8, p: pairs
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

bool is_one_of(char letter, std::string_view letters) { return letters.find(letter) != std::string_view::npos; }

uint32_t find_dtype(char kind, uint64_t bytes) {
  for (const Type& type : types)
    if (type.kind == kind && type.bytes == bytes) return type.dtype;
  return 0;
}

// A format of the struct module (PEP 3118) without names of fields and marks of this machine's byte order:
// "T{=f:value:>i:index:}" is "T{f>i}".
std::string bare(const std::string& format) {
  std::string letters;
  bool in_name = false;
  for (const char letter : format)
    if (letter == ':')
      in_name = !in_name;
    else if (!in_name && !is_one_of(letter, "@=<^ "))
      letters += letter;
  return letters;
}

// Whether elements of a bare format are values: no references to Python objects, no addresses.
bool has_values(const std::string& letters) {
  for (size_t i = 0; i < letters.size(); ++i) {
    const bool complex = letters[i] == 'Z' && i + 1 < letters.size() && is_one_of(letters[i + 1], "fdg");
    if (!complex && !is_one_of(letters[i], "xcbB?hHiIlLqQnNefdgspwu>!T{}(),0123456789")) return false;
  }
  return true;
}

Form form_of_format(const std::string& letters) {
  if (letters.empty()) return {};
  if (is_one_of(letters[0], ">!")) return {form_of_format(letters.substr(1)).kind, true};
  if (letters == "T{fi}" || letters == "T{dq}" || (letters == "T{dl}" && sizeof(long) == 8)) return {'p'};
  if (letters[0] == 'T') return {'R'};
  if (letters == "Zf" || letters == "Zd" || letters == "Zg") return {'c'};
  if (letters.back() == 'x') return {'V'};
  if (letters.size() != 1) return {};
  if (letters[0] == '?') return {'t'};
  if (is_one_of(letters[0], "bhilqn")) return {'i'};
  if (is_one_of(letters[0], "BHILQN")) return {'u'};
  return {is_one_of(letters[0], "efdg") ? 'f' : '\0'};
}

// Whether a type of the array interface, "<f4", or a list of fields with such types, is of values.
bool has_values(const py::handle& type) {
  if (py::isinstance<py::str>(type)) {
    const auto text = type.cast<std::string>();
    return text.size() > 2 && is_one_of(text[0], "<>|=") && is_one_of(text[1], "biufcmMSUV");
  }
  for (const py::handle field : type.cast<py::list>()) {
    const py::object of_field = field.cast<py::tuple>()[1];
    if (!has_values(of_field)) return false;
  }
  return true;
}

// `fields`: the types of its fields. `name`: numpy's, by which the types of ml_dtypes are known.
Form form_of_type(const std::string& type, const std::vector<std::string>& fields, const std::string& name) {
  const bool swapped = type[0] == '>';
  if (name == "bfloat16") return {'b'};
  if (name == "float8_e4m3fn") return {'x'};
  if (name == "float8_e5m2") return {'y'};
  if (type[1] == 'b') return {'t'};
  if (is_one_of(type[1], "SU")) return {};
  if (type[1] != 'V') return {type[1], swapped};
  if (fields == std::vector<std::string>{"<f4", "<i4"} || fields == std::vector<std::string>{"<f8", "<i8"})
    return {'p'};
  return {fields.size() > 1 ? 'R' : 'V'};
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
enum { dl_cpu = 1, dl_cuda = 2, dl_cuda_host = 3 };  // devices
constexpr uint8_t dl_handle = 3;                     // of the codes of types

// Where elements lie.
struct Layout {
  std::vector<int64_t> shape, strides;
  int64_t unit;  // the size of an element, in the strides' unit

  // In C order, one behind the other; `transposed`: in F order.
  bool is_contiguous(bool transposed = false) const {
    int64_t next = unit;
    for (size_t k = 0; k < shape.size(); ++k) {
      const size_t i = transposed ? k : shape.size() - 1 - k;
      if (shape[i] != 1 && strides[i] != next) return false;
      next *= shape[i];
    }
    return true;
  }
};

std::string tuple_text(const std::vector<int64_t>& numbers) {
  std::string text;
  for (const int64_t number : numbers) text += (text.empty() ? "(" : ", ") + std::to_string(number);
  return text + (numbers.size() == 1 ? ",)" : ")");
}

// numpy.ma.MaskedArray, or a class derived from it.
bool is_masked(const py::handle& object) {
  const PyTypeObject* const type = Py_TYPE(object.ptr());
  if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return false;
  for (const py::handle base : py::reinterpret_borrow<py::tuple>(type->tp_mro))
    if (std::string_view(reinterpret_cast<const PyTypeObject*>(base.ptr())->tp_name) == "MaskedArray") return true;
  return false;
}

}  // namespace

// An object in the errors that are about it.
struct Data::Subject {
  py::handle object;
  const char *call, *argument;
  bool written;
  Elements elements;

  std::string text(const std::string& what) const {
    return std::string(call) + ": " + argument + " (" + Py_TYPE(object.ptr())->tp_name + ") " + what;
  }
  // numpy's name of its type, ">f4"; or else `other`.
  std::string type(const std::string& other) const {
    const py::object dtype = py::getattr(object, "dtype", py::none());
    return "\"" + (dtype.is_none() ? other : std::string(py::str(dtype))) + "\"";
  }
  [[noreturn]] void no_elements() const {
    const bool is_list = PyList_Check(object.ptr()) || PyTuple_Check(object.ptr());
    const std::string made = py::hasattr(object, "__array__") ? "asarray" : is_list ? "array" : "";
    throw py::type_error(
        text("has no elements to work on: expected an object with the buffer protocol (numpy.ndarray, bytearray, "
             "array.array, memoryview), DLPack (torch.Tensor) or __array_interface__" +
             (made.empty() ? "" : "; numpy." + made + "(" + argument + ") makes one")));
  }
  [[noreturn]] void masked() const {
    const std::string name = argument;
    throw py::type_error(text("has a mask, which the call would not look at: pass " + name + ".filled(VALUE), or " +
                              name + ".data and numpy.ma.getmaskarray(" + name + ") in two calls"));
  }
  // F order is refused too: a rank does not see the other ranks' order, and elements of two orders would be combined
  // without a word.
  [[noreturn]] void not_contiguous(const Layout& layout) const {
    const std::string name = argument, copy = "numpy.ascontiguousarray(" + name + "), a copy";
    std::string what = "is not C-contiguous (shape " + tuple_text(layout.shape) + ", strides " +
                       tuple_text(layout.strides) + "): pass ";
    if (layout.is_contiguous(true))
      what += name + ".T on every rank, a C-contiguous view of these elements in F order, or " + copy;
    else
      what += copy;
    if (written) what += ", and put the result back with " + name + "[...] = copy";
    throw py::value_error(text(what));
  }
  // "is a negated view: pass data.resolve_neg(), a copy".
  [[noreturn]] void refuse(const std::string& what, const std::string& before, const std::string& after) const {
    throw py::value_error(text(what + ": pass " + before + argument + after + ", a copy"));
  }
  [[noreturn]] void read_only() const { refuse("is read-only, and the call writes into it", "numpy.array(", ")"); }
  [[noreturn]] void references(const std::string& of) const {
    const std::string name = argument;
    throw py::value_error(text("has elements of type " + of +
                               ", which are references to objects, or addresses: they mean nothing in another process. "
                               "Pass their values, " +
                               name + ".astype(TYPE), or the bytes of pickle.dumps(" + name + ")"));
  }
  [[noreturn]] void no_operators(const std::string& of, Form form, uint64_t bytes) const {
    throw py::value_error(
        text("has elements of type " + of +
             ", which no operator takes: expected bool, 8 to 64-bit integers, float16, bfloat16, float32, float64, "
             "float8, complex64, complex128, or pairs of float32 and int32 or of float64 and int64" +
             advice(form, bytes) + ". Calls that only move elements take it"));
  }

 private:
  std::string advice(Form form, uint64_t bytes) const {
    const std::string name = argument, native = "\"" + std::string(1, form.kind) + std::to_string(bytes) + "\"";
    if (form.kind == 'f' && bytes > 8) return "; pass " + name + ".astype(\"f8\")";
    if (form.kind == 'c' && bytes > 16) return "; pass " + name + ".astype(\"c16\")";
    if (is_one_of(form.kind, "Mm")) return "; pass " + name + ".view(\"i8\"), its ticks";
    if (form.kind == 'V') return "; pass " + name + ".view(TYPE), with the type of its bytes";
    if (form.kind == 'R') return "; pass a field, numpy.ascontiguousarray(" + name + "[FIELD])";
    if (!form.swapped || !is_one_of(form.kind, "iufc")) return "";
    return "; pass " + name + ".astype(" + native + "), a copy in this machine's byte order, or " + name +
           ".byteswap(inplace=True).view(" + native + ")";
  }
};

Data::Data(py::handle object, const char* call, const char* argument, bool written, uintptr_t stream,
           Elements elements) {
  const Subject subject{object, call, argument, written, elements};
  // An attribute that is there and raises (a tensor on the processor has no __cuda_array_interface__) is no interface.
  const auto interface = [&](const char* name) -> py::object { return py::getattr(object, name, py::none()); };
  if (is_masked(object)) subject.masked();
  if (PyObject_CheckBuffer(object.ptr())) {
    if (take_buffer(subject)) return;
    // numpy and JAX have types that the buffer protocol has no format for: datetime64, bfloat16.
    const py::error_already_set refused;
    if (const py::object array = interface("__array_interface__"); !array.is_none())
      take_interface(subject, array);
    else if (!py::hasattr(object, "__dlpack__"))
      throw refused;
    else if (written)  // DLPack does not tell, and JAX's arrays are constant
      subject.read_only();
    else
      take_dlpack(subject, stream);
  } else if (const py::object cuda = interface("__cuda_array_interface__"); !cuda.is_none()) {
    take_interface(subject, cuda);
    on_device_ = true;
  } else if (py::hasattr(object, "__dlpack__")) {
    take_dlpack(subject, stream);
  } else if (const py::object array = interface("__array_interface__"); !array.is_none()) {
    take_interface(subject, array);
  } else {
    subject.no_elements();
  }
}

// False, with Python's error: the buffer protocol cannot describe the elements.
bool Data::take_buffer(const Subject& subject) {
  auto* view = new Py_buffer{};
  if (PyObject_GetBuffer(subject.object.ptr(), view, PyBUF_FORMAT | PyBUF_STRIDES) != 0) {
    delete view;
    if (PyErr_ExceptionMatches(PyExc_ValueError) || PyErr_ExceptionMatches(PyExc_BufferError)) return false;
    throw py::error_already_set();
  }
  keeper_ = std::shared_ptr<void>(view, [](void* kept) {
    PyBuffer_Release(static_cast<Py_buffer*>(kept));
    delete static_cast<Py_buffer*>(kept);
  });
  if (subject.written && view->readonly) subject.read_only();
  if (!PyBuffer_IsContiguous(view, 'C'))
    subject.not_contiguous(
        {{view->shape, view->shape + view->ndim}, {view->strides, view->strides + view->ndim}, view->itemsize});
  item_ = static_cast<uint64_t>(view->itemsize);
  const std::string letters = bare(view->format ? view->format : "B");
  take_type(subject, letters, form_of_format(letters), has_values(letters));
  address_ = view->buf;
  count_ = static_cast<uint64_t>(view->len) / item_;
  return true;
}

// `type`: its name where numpy has none. `values`: no references. With item_ set.
void Data::take_type(const Subject& subject, const std::string& type, const Form& form, bool values) {
  if (!form.swapped) dtype_ = find_dtype(form.kind, item_);
  if (dtype_) return;
  type_ = subject.type(type);
  if (!values) subject.references(type_);
  if (item_ == 0) throw py::value_error(subject.text("has elements of type " + type_ + ", which are no whole bytes"));
  if (subject.elements == Elements::numbers) subject.no_operators(type_, form, item_);
}

void Data::take_interface(const Subject& subject, const py::dict& interface) {
  const auto type = interface["typestr"].cast<std::string>();
  if (type.size() > 2) std::from_chars(type.data() + 2, type.data() + type.size(), item_);
  if (type.size() > 2 && type[1] == 'U') item_ *= 4;  // characters of UCS-4
  std::vector<std::string> fields;
  if (interface.contains("descr"))
    for (const py::handle field : interface["descr"].cast<py::list>())
      fields.push_back(py::str(field.cast<py::tuple>()[1]));
  const py::object description = interface[interface.contains("descr") ? "descr" : "typestr"];
  const py::object dtype = py::getattr(subject.object, "dtype", py::none());
  const py::object name = py::getattr(dtype, "name", py::none()),
                   references = py::getattr(dtype, "hasobject", py::none());
  const bool values = references.is_none() ? has_values(py::str(type)) && has_values(description)
                                           : type.size() > 2 && !references.cast<bool>();
  take_type(subject, type, values ? form_of_type(type, fields, py::str(name)) : Form{}, values);
  const py::tuple data = interface["data"];
  if (subject.written && data[1].cast<bool>()) subject.read_only();
  Layout layout{interface["shape"].cast<std::vector<int64_t>>(), {}, static_cast<int64_t>(item_)};
  count_ = 1;
  for (const int64_t length : layout.shape) count_ *= static_cast<uint64_t>(length);
  if (interface.contains("strides") && !interface["strides"].is_none()) {
    layout.strides = interface["strides"].cast<std::vector<int64_t>>();
    if (count_ != 0 && !layout.is_contiguous()) subject.not_contiguous(layout);
  }
  address_ = reinterpret_cast<void*>(data[0].cast<uintptr_t>());
  keeper_ = std::make_shared<py::object>(py::reinterpret_borrow<py::object>(subject.object));
}

void Data::take_dlpack(const Subject& subject, uintptr_t stream) {
  // torch exports the bytes of a negated view all the same; those of a conjugated one it refuses.
  if (const py::object is_negated = py::getattr(subject.object, "is_neg", py::none());
      !is_negated.is_none() && is_negated().cast<bool>())
    subject.refuse("is a negated view, whose bytes are not its values", "", ".resolve_neg()");
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
  const char kind = tensor.code < sizeof kinds && tensor.lanes == 1 ? kinds[tensor.code] : '\0';
  const uint64_t bits = uint64_t{tensor.bits} * tensor.lanes;
  item_ = bits % 8 == 0 ? bits / 8 : 0;
  take_type(subject, "DLPack's code " + std::to_string(tensor.code) + ", " + std::to_string(bits) + " bits", {kind},
            tensor.code != dl_handle);
  count_ = 1;
  for (int32_t i = 0; i < tensor.ndim; ++i) count_ *= static_cast<uint64_t>(tensor.shape[i]);
  if (tensor.strides && count_ != 0 &&
      !Layout{{tensor.shape, tensor.shape + tensor.ndim}, {tensor.strides, tensor.strides + tensor.ndim}, 1}
           .is_contiguous())
    subject.refuse("is not C-contiguous", "", ".contiguous()");
  address_ = static_cast<char*>(tensor.data) + tensor.byte_offset;
}

std::string Data::type() const { return dtype_ ? dtype_text(dtype_) : type_; }

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
