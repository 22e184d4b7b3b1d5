// SPDX-License-Identifier: Apache-2.0
//
// The module tutti._core: Tutti's C API for Python.
#include <dlfcn.h>

#include <string>
#include <string_view>

#include "error.hpp"
#include "gradients.hpp"
#include "operations.hpp"
#include "operators.hpp"
#include "schedules.hpp"
#include "windows.hpp"

namespace {

namespace py = pybind11;

// Memory that transports address directly.
class Memory {
 public:
  explicit Memory(const tutti::python::Number& bytes) : bytes_(bytes.value("Memory", "bytes")) {
    tutti::python::check(tutti_mem_alloc(bytes_, &address_),
                         ("Memory: the host does not have " + std::to_string(bytes_) + " bytes").c_str());
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { tutti_mem_free(address_); }
  py::buffer_info view() const { return {static_cast<uint8_t*>(address_), static_cast<py::ssize_t>(bytes_)}; }
  uint64_t bytes() const { return bytes_; }

 private:
  void* address_ = nullptr;
  uint64_t bytes_;
};

// Another libtutti may be in the process already, or be named by LD_LIBRARY_PATH or LD_PRELOAD.
void check_library() {
  if (std::string_view(tutti_version()) == TUTTI_PYTHON_VERSION) return;
  Dl_info library{}, module{};
  dladdr(reinterpret_cast<const void*>(&tutti_version), &library);
  dladdr(reinterpret_cast<const void*>(&check_library), &module);
  throw py::import_error(std::string("tutti: ") + module.dli_fname +
                         " is of version " TUTTI_PYTHON_VERSION ", and the library of this process, " +
                         library.dli_fname + ", is " + tutti_version() +
                         ": see LD_LIBRARY_PATH and LD_PRELOAD, and what loads that library before; or install "
                         "one version of both");
}

}  // namespace

PYBIND11_MODULE(_core, module) {
  check_library();
  module.doc() = "Tutti's C API.";
  tutti::python::add_errors(module);
  tutti::python::add_operators(module);
  tutti::python::add_operations(module);
  tutti::python::add_windows(module);
  tutti::python::add_gradients(module);
  tutti::python::add_communicator(module);
  tutti::python::add_algorithms(module);
  tutti::python::add_schedules(module);
  py::class_<Memory>(
      module, "Memory", py::buffer_protocol(),
      "Zeroed bytes that transports address directly (shared memory between processes of a host), for buffers of\n"
      "large collectives: numpy.frombuffer(tutti.Memory(bytes), dtype=...). An array made of it keeps it. Raises\n"
      "NoResources if the host does not have that many bytes.")
      .def(py::init<const tutti::python::Number&>(), py::arg("bytes"))
      .def_buffer(&Memory::view)
      .def("__len__", &Memory::bytes, "Its bytes.")
      .def("__repr__", [](const Memory& m) { return "<tutti.Memory of " + std::to_string(m.bytes()) + " bytes>"; });
  module.attr("__version__") = tutti_version();
}
