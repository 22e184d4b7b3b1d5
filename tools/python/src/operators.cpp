// SPDX-License-Identifier: Apache-2.0
#include "operators.hpp"

#include <tutti/schedule.h>

#include <utility>

#include "lock.hpp"

namespace tutti::python {
namespace {

namespace py = pybind11;

// The types whose elements a memoryview can show, and their letters.
struct Letter {
  uint32_t dtype;
  const char* format;
};
constexpr Letter letters[] = {
    {TUTTI_BOOL, "?"},    {TUTTI_INT8, "b"},    {TUTTI_UINT8, "B"},      {TUTTI_INT16, "h"},      {TUTTI_UINT16, "H"},
    {TUTTI_INT32, "i"},   {TUTTI_UINT32, "I"},  {TUTTI_INT64, "q"},      {TUTTI_UINT64, "Q"},     {TUTTI_FLOAT16, "e"},
    {TUTTI_FLOAT32, "f"}, {TUTTI_FLOAT64, "d"}, {TUTTI_COMPLEX64, "Zf"}, {TUTTI_COMPLEX128, "Zd"}};

}  // namespace

struct Operator::Body {
  py::function function;
  const char* format;

  void combine(void* left, const void* right, uint64_t count, uint32_t dtype) const {
    const auto item = static_cast<py::ssize_t>(dtype_bytes(dtype));
    const auto view = [&](const void* data, bool read_only) {
      return py::memoryview::from_buffer(const_cast<void*>(data), item, format, {static_cast<py::ssize_t>(count)},
                                         {item}, read_only);
    };
    py::memoryview to = view(left, false), from = view(right, true);
    function(to, from);
    // Nobody may use the memory later.
    to.attr("release")();
    from.attr("release")();
  }
  static tutti_status call(void* inout, const void* in, uint64_t count, uint32_t dtype, void* context) {
    const Locked locked;
    try {
      static_cast<const Body*>(context)->combine(inout, in, count, dtype);
      return TUTTI_OK;
    } catch (const std::exception& thrown) {
      tutti_op_set_error(thrown.what());
      return TUTTI_ABORTED;
    }
  }
};

std::unique_ptr<Operator> Operator::of_function(std::shared_ptr<State> state, const std::string& name,
                                                py::function function, const std::string& type, bool commutes) {
  const uint32_t dtype = dtype_of_text(type);
  if (!dtype) throw py::value_error("operator: the type is \"" + type + "\": expected a name such as \"float32\"");
  const char* format = nullptr;
  for (const Letter& letter : letters)
    if (letter.dtype == dtype) format = letter.format;
  if (!format) throw py::value_error("operator: Python has no view of elements of " + type + ": expected another type");
  std::unique_ptr<Operator> made(new Operator(std::move(state), name));
  auto body = std::make_unique<Body>(Body{std::move(function), format});
  tutti_op_config config{};
  config.struct_size = sizeof config;
  config.flags = commutes ? 0 : uint32_t{TUTTI_OP_NOT_COMMUTATIVE};
  config.name = made->name_.c_str();
  config.function = &Body::call;
  config.context = body.get();
  config.dtypes = uint64_t{1} << dtype;
  made->state_->use([&](tutti_comm* comm) { return tutti_op_create(comm, &config, &made->number_); });
  made->body_ = body.release();
  return made;
}

std::unique_ptr<Operator> Operator::premul_sum(std::shared_ptr<State> state, py::handle factor) {
  const Data element(factor, "premul_sum", "factor", false, 0, Elements::numbers);
  if (element.count() != 1)
    throw py::value_error("premul_sum: factor has " + std::to_string(element.count()) +
                          " elements: expected one, of the data's type: numpy.float32(0.5)");
  std::unique_ptr<Operator> made(new Operator(std::move(state), "premul_sum"));
  made->state_->use([&](tutti_comm* comm) {
    return tutti_op_create_premul_sum(comm, element.dtype(), element.address(), &made->number_);
  });
  return made;
}

// What an operation under way still uses is kept for ever, and what is dropped while the communicator is in a call: in
// the middle of an operator's function, perhaps.
Operator::~Operator() {
  try {
    if (number_ && state_->is_open()) state_->use([this](tutti_comm* comm) { return tutti_op_free(comm, number_); });
    delete body_;
  } catch (const py::error_already_set&) {
  }
}

uint32_t Operator::number(const State& state, const std::string& call) const {
  if (&state == state_.get()) return number_;
  throw py::value_error(call + ": the operator \"" + name_ + "\" is of the communicator \"" + state_->name() +
                        "\", and the call of \"" + state.name() + "\": make an operator for each communicator");
}

void add_operators(py::module_& module) {
  py::class_<Operator>(
      module, "Operator",
      "An operator of a communicator, for `op` of its calls on host memory: Communicator.operator() and\n"
      "premul_sum().")
      .def_property_readonly("name", &Operator::name, "For messages; the ranks compare it.")
      .def("__repr__", [](const Operator& op) { return "<tutti.Operator \"" + op.name() + "\">"; });
}

}  // namespace tutti::python
