// SPDX-License-Identifier: Apache-2.0
#include "operations.hpp"

#include <pybind11/stl.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace tutti::python {
namespace {

namespace py = pybind11;

// The arguments of one call.
class Arguments {
 public:
  Arguments(const State& state, const char* call, uintptr_t stream)
      : call_(call), nranks_(tutti_comm_nranks(state.handle())) {
    options_.struct_size = sizeof options_;
    options_.stream = reinterpret_cast<void*>(stream);
    rank_ = tutti_comm_rank(state.handle());
  }
  const tutti_options* options() const { return &options_; }
  uint32_t nranks() const { return nranks_; }
  bool is(uint32_t root) const { return rank_ == root; }

  uint32_t op(const std::string& name) const {
    if (const uint32_t op = op_from_name(name)) return op;
    std::string known;
    for (const uint32_t op : all_ops()) known += std::string(known.empty() ? "\"" : ", \"") + op_name(op) + "\"";
    throw py::value_error(text() + "op is \"" + name + "\": expected " + known);
  }
  // The elements of an argument; none for None where it `may_be_absent`.
  Data take(py::handle object, const char* argument, bool written, bool may_be_absent = false) const {
    if (object.is_none() && may_be_absent) return {};
    return Data(object, call_, argument, written, reinterpret_cast<uintptr_t>(options_.stream));
  }
  // One block of `data` for each of `blocks` in `out`.
  void fit(const char* smaller, const Data& data, const char* larger, const Data& out, uint32_t blocks) const {
    if (data.dtype() != out.dtype())
      throw py::value_error(text() + smaller + " is " + dtype_text(data.dtype()) + " and " + larger + " is " +
                            dtype_text(out.dtype()));
    if (data.count() * blocks != out.count())
      throw py::value_error(
          text() + smaller + " has " + std::to_string(data.count()) + " elements: expected " + larger + " to have " +
          (blocks == 1 ? "as many" : std::to_string(blocks) + " times as many, a block for each rank") + ", got " +
          std::to_string(out.count()));
  }
  // The elements of one rank's block.
  uint64_t block(const char* argument, const Data& data) const {
    if (data.count() % nranks_ == 0) return data.count() / nranks_;
    throw py::value_error(text() + argument + " has " + std::to_string(data.count()) +
                          " elements: expected a multiple of the " + std::to_string(nranks_) + " ranks");
  }

 private:
  std::string text() const { return std::string(call_) + ": "; }

  const char* call_;
  uint32_t nranks_, rank_ = 0;
  tutti_options options_{};
};

constexpr const char* broadcast_help = "Gives every rank the elements of `data` at `root`.";
constexpr const char* reduce_help =
    "Reduces `data` of all ranks by `op` (\"sum\", \"prod\", \"min\", \"max\", \"avg\") into `out` of `root`; None: "
    "into the\n"
    "root's `data`.";
constexpr const char* all_reduce_help =
    "Reduces `data` of all ranks by `op` (\"sum\", \"prod\", \"min\", \"max\", \"avg\") into `out` of every rank; "
    "None: into `data`.";
constexpr const char* gather_help =
    "Puts `data` of all ranks, in order of rank, into `out` of `root`, which has nranks times as many elements. Other "
    "ranks\n"
    "need no `out`.";
constexpr const char* all_gather_help =
    "Puts `data` of all ranks, in order of rank, into `out` of every rank, which has nranks times as many elements.";
constexpr const char* scatter_help =
    "Gives each rank its block of `data` of `root`, in `out`: `data` has nranks times as many elements. Other ranks "
    "pass None.";
constexpr const char* reduce_scatter_help =
    "Reduces `data` of all ranks, nranks blocks, by `op`, and gives each rank its block of the result in `out`.";
constexpr const char* all_to_all_help =
    "Sends block r of `data` to rank r, and puts the block that comes from rank r into block r of `out`.";
constexpr const char* barrier_help = "Returns when all ranks have called it.";
constexpr const char* send_help = "Sends `data` to rank `peer`, for a receive with the same tag.";
constexpr const char* receive_help = "Receives into `data` what rank `peer` sends with the same tag: as many bytes.";
constexpr const char* exchange_help =
    "Carries out a list of Send and Receive together, so that none waits for another.";

// A message of a group.
struct Message {
  py::object data;
  uint32_t peer, tag, direction;
};

// Calls a collective from `in` to `out`, of which either may be absent, with `count` elements of one block.
template <typename Face, typename Function, typename... More>
auto collective(const Face& face, const Arguments& arguments, Data in, Data out, uint64_t count, Function* function,
                More... more) {
  const uint32_t dtype = in.dtype() ? in.dtype() : out.dtype();
  const auto run = [=, from = in.address(), to = out.address()](tutti_comm* comm, tutti_request** request) {
    return function(comm, from, to, count, dtype, more..., arguments.options(), request);
  };
  return face.run(run, {std::move(in), std::move(out)});
}

template <typename Face, typename Class>
void add_reductions(Class& face) {
  using namespace py::literals;
  face.def(
      "reduce",
      [](const Face& f, py::object data, py::object out, uint32_t root, const std::string& op, uintptr_t stream) {
        const Arguments a(*f.state, "reduce", stream);
        const uint32_t code = a.op(op);
        const bool into_data = out.is_none() && a.is(root);
        const Data in = a.take(data, "data", into_data), to = into_data ? in : a.take(out, "out", true, true);
        if (a.is(root)) a.fit("data", in, "out", to, 1);
        return collective(f, a, in, to, in.count(), tutti_reduce, code, root);
      },
      "data"_a, "out"_a = py::none(), "root"_a = 0, "op"_a = "sum", py::kw_only(), "stream"_a = 0, reduce_help);
  face.def(
      "all_reduce",
      [](const Face& f, py::object data, py::object out, const std::string& op, uintptr_t stream) {
        const Arguments a(*f.state, "all_reduce", stream);
        const uint32_t code = a.op(op);
        const Data in = a.take(data, "data", out.is_none()), to = out.is_none() ? in : a.take(out, "out", true);
        a.fit("data", in, "out", to, 1);
        return collective(f, a, in, to, in.count(), tutti_all_reduce, code);
      },
      "data"_a, "out"_a = py::none(), "op"_a = "sum", py::kw_only(), "stream"_a = 0, all_reduce_help);
  face.def(
      "reduce_scatter",
      [](const Face& f, py::object data, py::object out, const std::string& op, uintptr_t stream) {
        const Arguments a(*f.state, "reduce_scatter", stream);
        const uint32_t code = a.op(op);
        const Data in = a.take(data, "data", false), to = a.take(out, "out", true);
        a.fit("out", to, "data", in, a.nranks());
        return collective(f, a, in, to, to.count(), tutti_reduce_scatter, code);
      },
      "data"_a, "out"_a, "op"_a = "sum", py::kw_only(), "stream"_a = 0, reduce_scatter_help);
}

template <typename Face, typename Class>
void add_copies(Class& face) {
  using namespace py::literals;
  face.def(
      "broadcast",
      [](const Face& f, py::object data, uint32_t root, uintptr_t stream) {
        const Arguments a(*f.state, "broadcast", stream);
        const Data all = a.take(data, "data", !a.is(root));
        return collective(f, a, all, all, all.count(), tutti_broadcast, root);
      },
      "data"_a, "root"_a = 0, py::kw_only(), "stream"_a = 0, broadcast_help);
  face.def(
      "gather",
      [](const Face& f, py::object data, py::object out, uint32_t root, uintptr_t stream) {
        const Arguments a(*f.state, "gather", stream);
        const Data in = a.take(data, "data", false), to = a.take(out, "out", true, !a.is(root));
        if (a.is(root)) a.fit("data", in, "out", to, a.nranks());
        return collective(f, a, in, to, in.count(), tutti_gather, root);
      },
      "data"_a, "out"_a = py::none(), "root"_a = 0, py::kw_only(), "stream"_a = 0, gather_help);
  face.def(
      "all_gather",
      [](const Face& f, py::object data, py::object out, uintptr_t stream) {
        const Arguments a(*f.state, "all_gather", stream);
        const Data in = a.take(data, "data", false), to = a.take(out, "out", true);
        a.fit("data", in, "out", to, a.nranks());
        return collective(f, a, in, to, in.count(), tutti_all_gather);
      },
      "data"_a, "out"_a, py::kw_only(), "stream"_a = 0, all_gather_help);
  face.def(
      "scatter",
      [](const Face& f, py::object data, py::object out, uint32_t root, uintptr_t stream) {
        const Arguments a(*f.state, "scatter", stream);
        const Data in = a.take(data, "data", false, !a.is(root)), to = a.take(out, "out", true);
        if (a.is(root)) a.fit("out", to, "data", in, a.nranks());
        return collective(f, a, in, to, to.count(), tutti_scatter, root);
      },
      "data"_a, "out"_a, "root"_a = 0, py::kw_only(), "stream"_a = 0, scatter_help);
  face.def(
      "all_to_all",
      [](const Face& f, py::object data, py::object out, uintptr_t stream) {
        const Arguments a(*f.state, "all_to_all", stream);
        const Data in = a.take(data, "data", out.is_none()), to = out.is_none() ? in : a.take(out, "out", true);
        a.fit("data", in, "out", to, 1);
        return collective(f, a, in, to, a.block("data", in), tutti_all_to_all);
      },
      "data"_a, "out"_a = py::none(), py::kw_only(), "stream"_a = 0, all_to_all_help);
  face.def(
      "barrier",
      [](const Face& f) {
        return f.run([](tutti_comm* comm, tutti_request** request) { return tutti_barrier(comm, nullptr, request); },
                     {});
      },
      barrier_help);
}

template <typename Face, typename Class>
void add_messages(Class& face) {
  using namespace py::literals;
  face.def(
      "send",
      [](const Face& f, py::object data, uint32_t peer, uint32_t tag, uintptr_t stream) {
        const Arguments a(*f.state, "send", stream);
        const Data in = a.take(data, "data", false);
        const auto call = [=, from = in.address(), count = in.count(), dtype = in.dtype()](tutti_comm* comm,
                                                                                           tutti_request** request) {
          return tutti_send(comm, from, count, dtype, peer, tag, a.options(), request);
        };
        return f.run(call, {in});
      },
      "data"_a, "peer"_a, "tag"_a = 0, py::kw_only(), "stream"_a = 0, send_help);
  face.def(
      "receive",
      [](const Face& f, py::object data, uint32_t peer, uint32_t tag, uintptr_t stream) {
        const Arguments a(*f.state, "receive", stream);
        const Data out = a.take(data, "data", true);
        const auto call = [=, to = out.address(), count = out.count(), dtype = out.dtype()](tutti_comm* comm,
                                                                                            tutti_request** request) {
          return tutti_receive(comm, to, count, dtype, peer, tag, a.options(), request);
        };
        return f.run(call, {out});
      },
      "data"_a, "peer"_a, "tag"_a = 0, py::kw_only(), "stream"_a = 0, receive_help);
  face.def(
      "exchange",
      [](const Face& f, const std::vector<const Message*>& messages, uintptr_t stream) {
        const Arguments a(*f.state, "exchange", stream);
        std::vector<Data> data;
        std::vector<tutti_message> rows;
        for (const Message* m : messages) {
          const Data& one = data.emplace_back(a.take(m->data, "a message's data", m->direction == TUTTI_RECEIVE));
          rows.push_back({one.address(), one.count(), one.dtype(), m->peer, m->tag, m->direction, {}});
        }
        const auto call = [=](tutti_comm* comm, tutti_request** request) {
          return tutti_exchange(comm, rows.data(), rows.size(), a.options(), request);
        };
        return f.run(call, std::move(data));
      },
      "messages"_a, py::kw_only(), "stream"_a = 0, exchange_help);
}

template <typename Face, typename Class>
void add_calls(Class& face) {
  add_reductions<Face>(face);
  add_copies<Face>(face);
  add_messages<Face>(face);
}

}  // namespace

// A request lets signals through, which a blocking call does not.
template <typename Call>
void Calls::run(Call&& call, std::vector<Data> data) const {
  const bool on_device = std::ranges::any_of(data, [](const Data& one) { return one.on_device(); });
  if (on_device)
    state->use([&](tutti_comm* comm) { return call(comm, nullptr); });
  else
    Start{state}.run(call, std::move(data))->finish();
}

template <typename Call>
std::unique_ptr<Request> Start::run(Call&& call, std::vector<Data> data) const {
  tutti_request* request = nullptr;
  state->use([&](tutti_comm* comm) { return call(comm, &request); });
  return std::make_unique<Request>(state, request, std::move(data));
}

uint64_t nanoseconds(const char* argument, const std::optional<double>& seconds) {
  if (!seconds) return 0;
  if (!(*seconds > 0 && *seconds < 1e9))
    throw py::value_error(std::string(argument) + " is " + std::to_string(*seconds) +
                          ": expected seconds above 0, or None for the default");
  return static_cast<uint64_t>(std::ceil(*seconds * 1e9));
}

void add_operations(py::module_& module) {
  using namespace py::literals;
  py::class_<Message>(module, "Message", "A message of Communicator.exchange().");
  module.def(
      "Send",
      [](py::object data, uint32_t peer, uint32_t tag) {
        return Message{std::move(data), peer, tag, TUTTI_SEND};
      },
      "data"_a, "peer"_a, "tag"_a = 0, "A message to rank `peer`.");
  module.def(
      "Receive",
      [](py::object data, uint32_t peer, uint32_t tag) {
        return Message{std::move(data), peer, tag, TUTTI_RECEIVE};
      },
      "data"_a, "peer"_a, "tag"_a = 0, "A message from rank `peer`, of as many bytes as `data` has.");
  py::class_<Request>(
      module, "Request",
      "An operation under way. It keeps its arrays: until it is complete, outputs must not be read and inputs not\n"
      "written. `await` works too.")
      .def("test", &Request::test, "Advances the operation; True once it is complete. Raises its error.")
      .def("wait", &Request::wait, "seconds"_a = py::none(),
           "Waits until the operation is complete, at most so many seconds. False: it is not, and goes on. Raises its "
           "error.");
  py::class_<Start> start(module, "Start",
                          "The calls of a communicator that return a Request. See Communicator.start.");
  add_calls<Start>(start);
  py::class_<Calls> calls(module, "Calls", "The calls of a communicator.");
  add_calls<Calls>(calls);
}

}  // namespace tutti::python
