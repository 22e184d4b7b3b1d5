// SPDX-License-Identifier: Apache-2.0
#include "gradients.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <thread>

namespace tutti::python {
namespace {

namespace py = pybind11;
using namespace py::literals;

constexpr Name ops[] = {{"avg", TUTTI_AVG}, {"sum", TUTTI_SUM}};

// Lets other threads of the interpreter go on for a moment.
void let_others_go_on() {
  const py::gil_scoped_release unlocked;
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

constexpr const char* set_help =
    "The tensors of a training step, summed over the ranks in buckets while the backward pass goes on\n"
    "(Communicator.gradients). In each step every tensor is marked once, in any order: ready or unused. A bucket "
    "starts\n"
    "with its last mark. One thread at a time uses it. As a context manager it is closed at the end of the block: for\n"
    "all ranks at once where an exception leaves the block.";

}  // namespace

// One thread at a time.
class Gradients::User {
 public:
  explicit User(Gradients& gradients) : gradients_(gradients) {
    stay_if_ending();
    if (!gradients.handle_)
      raise(TUTTI_INVALID_USAGE,
            "the gradients of the communicator \"" + gradients.state_->name() + "\" are closed: make new ones");
    if (gradients.used_)
      raise(TUTTI_INVALID_USAGE, "the gradients of the communicator \"" + gradients.state_->name() +
                                     "\" are in use by another thread: one thread at a time");
    gradients.used_ = true;
  }
  User(const User&) = delete;
  User& operator=(const User&) = delete;
  ~User() {
    gradients_.used_ = false;
    stay_if_ending();
  }

 private:
  Gradients& gradients_;
};

Gradients::Gradients(const Calls& communicator, const py::object& tensors, const GradientSettings& settings)
    : state_(communicator.state), stream_(settings.stream) {
  declare(tensors);
  std::vector<tutti_tensor> rows;
  for (const Tensor& one : tensors_)
    rows.push_back({one.count, one.dtype, 0, one.name.empty() ? nullptr : one.name.c_str(), {}});
  std::string error(2048, '\0');
  tutti_gradients_config config{};
  config.struct_size = sizeof config;
  config.flags = (settings.feedback ? uint32_t{TUTTI_GRADIENTS_FEEDBACK} : 0) |
                 (settings.thread ? uint32_t{TUTTI_GRADIENTS_THREAD} : 0) |
                 (settings.declared_order ? uint32_t{TUTTI_GRADIENTS_DECLARED_ORDER} : 0) |
                 (on_device_ ? uint32_t{TUTTI_GRADIENTS_DEVICE} : 0);
  config.bucket_bytes = settings.bucket_bytes.value("gradients", "bucket_bytes");
  config.first_bucket_bytes = settings.first_bucket_bytes.value("gradients", "first_bucket_bytes");
  config.op = value_of("gradients", "op", settings.op, ops);
  config.wire = value_of("gradients", "wire", settings.wire, wires);
  if (settings.order) config.order = value_of("gradients", "order", *settings.order, orders);
  config.algorithms = settings.algorithms ? settings.algorithms->c_str() : nullptr;
  config.timeout_ns = nanoseconds("gradients: timeout", settings.timeout);
  config.stream = reinterpret_cast<void*>(stream_);
  config.error = error.data();
  config.error_bytes = error.size();
  tutti_comm* const comm = state_->handle();
  const Signals signals;
  const tutti_status status =
      state_->use_request([&] { return tutti_gradients_create(comm, &config, rows.data(), rows.size(), &handle_); });
  if (PyErr_Occurred()) {  // a signal's handler has raised
    const py::error_already_set raised;
    if (handle_) {
      abort("a signal interrupted the call that made it");
      close();
    }
    throw raised;
  }
  if (status < 0) {
    state_->note_failure();
    raise(status, error.c_str());
  }
  state_->gradients.push_back(this);
}

Gradients::~Gradients() {
  while (is_used() && !state_->is_forked()) let_others_go_on();  // its communicator is being closed by another thread
  try {
    close();
  } catch (py::error_already_set& problem) {  // Python says it as that of any destructor
    problem.discard_as_unraisable("the end of a Gradients");
  }
}

void Gradients::declare(const py::object& tensors) {
  if (py::isinstance<py::dict>(tensors)) {
    for (const auto& [name, tensor] : tensors.cast<py::dict>()) declare_one(tensor, py::str(name));
    for (uint64_t i = 0; i < tensors_.size(); ++i) numbers_[tensors_[i].name] = i;
    return;
  }
  for (const py::handle tensor : py::iter(tensors)) declare_one(tensor, "");
}

void Gradients::declare_one(py::handle tensor, const std::string& name) {
  const std::string argument = "tensors[" + (name.empty() ? std::to_string(tensors_.size()) : "\"" + name + "\"") + "]";
  if (py::isinstance<py::tuple>(tensor)) {
    const auto pair = tensor.cast<py::tuple>();
    if (pair.size() != 2 || !py::isinstance<py::str>(pair[1]))
      throw py::value_error("gradients: " + argument + " is " + std::string(py::repr(tensor)) +
                            ": expected an array, or a pair of count and type, (1000, \"float32\")");
    const auto type = pair[1].cast<std::string>();
    const uint32_t dtype = dtype_of_text(type);
    if (!dtype) throw py::value_error("gradients: " + argument + ": there is no data type \"" + type + "\"");
    tensors_.push_back({name, Number{pair[0]}.value("gradients", argument.c_str()), dtype});
    return;
  }
  const Data data(tensor, "gradients", argument.c_str(), false, stream_, Elements::numbers);
  if (!tensors_.empty() && data.on_device() != on_device_)
    throw py::value_error("gradients: " + argument + " is in " + (on_device_ ? "host" : "device") +
                          " memory, unlike those before it: make a set for each");
  on_device_ = data.on_device();
  tensors_.push_back({name, data.count(), data.dtype()});
}

uint64_t Gradients::number(const char* call, const py::object& tensor) const {
  if (!py::isinstance<py::str>(tensor)) return Number{tensor}.value(call, "tensor");
  const auto name = tensor.cast<std::string>();
  const auto at = numbers_.find(name);
  if (at == numbers_.end()) throw py::key_error(std::string(call) + ": no tensor has the name \"" + name + "\"");
  return at->second;
}

std::string Gradients::label(uint64_t number) const {
  return "tensor " + std::to_string(number) +
         (tensors_[number].name.empty() ? "" : " (\"" + tensors_[number].name + "\")");
}

// Calls call(handle) without the interpreter's lock, and raises what it returns below 0.
template <typename Call>
tutti_status Gradients::use(Call&& call) {
  const User user(*this);
  const tutti_status status = [&] {
    const py::gil_scoped_release unlocked;
    return call(handle_);
  }();
  if (status < 0) raise(status, tutti_gradients_error(handle_));
  return status;
}

void Gradients::ready(const py::object& tensor, py::handle object) {
  const uint64_t n = number("ready", tensor);
  Data data(object, "ready", "data", true, stream_, Elements::numbers);
  if (n < tensors_.size()) {  // else the call says so
    if (data.dtype() != tensors_[n].dtype)
      throw py::value_error("ready: " + label(n) + " is " + dtype_text(tensors_[n].dtype) + ", and data is " +
                            data.type());
    if (data.on_device() != on_device_)
      throw py::value_error("ready: " + label(n) + " was declared in " + (on_device_ ? "device" : "host") +
                            " memory, and data is in the other one");
  }
  use([&](tutti_gradients* g) { return tutti_gradients_ready(g, n, data.address(), data.count()); });
  data_.push_back(std::move(data));
}

void Gradients::unused(const py::object& tensor) {
  const uint64_t n = number("unused", tensor);
  use([&](tutti_gradients* g) { return tutti_gradients_unused(g, n); });
}

bool Gradients::test() { return use(tutti_gradients_test) == TUTTI_OK; }

bool Gradients::wait(std::optional<double> seconds) {
  if (seconds && std::isnan(*seconds))
    throw py::value_error("Gradients.wait: seconds is nan, expected a number of seconds");
  uint64_t left = seconds ? static_cast<uint64_t>(std::clamp(*seconds, 0.0, 1e9) * 1e9) : UINT64_MAX;
  for (CallSite site;;) {
    site.tell();
    const uint64_t turn = std::min(left, turn_ns);
    if (use([&](tutti_gradients* g) { return tutti_gradients_wait_for(g, turn); }) == TUTTI_OK) break;
    if (seconds && (left -= turn) == 0) return false;
    if (PyErr_CheckSignals() == 0) continue;
    const py::error_already_set signal;
    if (!seconds) abort("a signal interrupted a wait for gradients");
    throw signal;
  }
  data_.clear();
  return true;
}

uint64_t Gradients::bucket(const py::object& tensor) {
  const uint64_t n = number("bucket", tensor);
  uint64_t bucket = 0;
  use([&](tutti_gradients* g) { return tutti_gradients_bucket(g, n, &bucket); });
  return bucket;
}

py::dict Gradients::facts() {
  tutti_gradients_facts facts{};
  facts.struct_size = sizeof facts;
  use([&](tutti_gradients* g) { return tutti_gradients_report(g, &facts); });
  return py::dict("buckets"_a = facts.buckets, "steps"_a = facts.steps, "started"_a = facts.started,
                  "early"_a = facts.early, "exposed_seconds"_a = static_cast<double>(facts.exposed_ns) * 1e-9,
                  "sent_bytes"_a = facts.sent_bytes);
}

std::string Gradients::text() const {
  return "<tutti.Gradients of " + std::to_string(tensors_.size()) + " tensors, " + state_->text() +
         (is_open() ? ">" : ", closed>");
}

void Gradients::abort(const std::string& reason) {
  if (!handle_ || state_->is_forked()) return;
  ++aborting_;
  {
    const py::gil_scoped_release unlocked;
    tutti_gradients_abort(handle_, reason.c_str());
  }
  --aborting_;
}

void Gradients::close() {
  if (!handle_) return;
  if (state_->is_forked()) {  // they are the parent's
    handle_ = nullptr;
    return;
  }
  {
    const User user(*this);
    while (aborting_ > 0) let_others_go_on();
    std::erase(state_->gradients, this);
    tutti_gradients* const handle = std::exchange(handle_, nullptr);
    const Signals signals;
    const py::gil_scoped_release unlocked;
    tutti_gradients_destroy(handle);
  }
  data_.clear();
  Signals::raise_if_any();
}

void add_gradients(py::module_& module) {
  py::class_<Gradients>(module, "Gradients", set_help)
      .def("ready", &Gradients::ready, "tensor"_a, "data"_a,
           "States that a tensor, by its number or name, is complete in `data`, which is neither read nor written "
           "until\n"
           "wait() has returned. `data` is an array as for Communicator.all_reduce(). Raises ValueError for another "
           "type\n"
           "than declared, InvalidArgument for another size, and InvalidUsage for a tensor that is marked already.")
      .def("unused", &Gradients::unused, "tensor"_a,
           "States that this rank does not use a tensor in this step: it contributes zeros, and gets no result.")
      .def("test", &Gradients::test,
           "Advances; True if all buckets that have started are complete. Raises their errors.")
      .def("wait", &Gradients::wait, "seconds"_a = py::none(),
           "Waits for the end of the step, at most `seconds`; None: without a limit of its own. Then the arrays hold "
           "the\n"
           "results. False: the step goes on. Raises InvalidUsage and names a tensor that is not marked, which can "
           "still be\n"
           "done; and Timeout, PeerFailed or Aborted.")
      .def("bucket", &Gradients::bucket, "tensor"_a,
           "The number of the bucket of a tensor. The end of the first step may change it.")
      .def_property_readonly(
          "facts", &Gradients::facts,
          "A dict: buckets of a step, steps, buckets started so far, those of them that were complete when wait() was\n"
          "called (early), exposed_seconds spent in wait(), sent_bytes.")
      .def_property_readonly(
          "closed", [](const Gradients& g) { return !g.is_open(); }, "True after close().")
      .def("close", &Gradients::close,
           "Ends the set when all ranks have come to it; collective. A step under way ends with Aborted.")
      .def("__repr__", &Gradients::text)
      .def("__enter__", [](const py::object& self) { return self; })
      .def("__exit__", [](Gradients& g, const py::object& kind, const py::object& value, const py::object&) {
        if (!kind.is_none())
          g.abort("the rank left by " + py::str(kind.attr("__name__")).cast<std::string>() + ": " +
                  py::str(value).cast<std::string>());
        g.close();
      });
}

}  // namespace tutti::python
