// SPDX-License-Identifier: Apache-2.0
#include "operations.hpp"

#include <pybind11/stl.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "arguments.hpp"
#include "help.hpp"

namespace tutti::python {
namespace {

namespace py = pybind11;

// The blocks of an argument, which has room for all of them.
struct Blocks {
  Blocks() = default;
  // `counts_name`: of the argument that has them.
  Blocks(const Arguments& a, const char* argument, const Data& data, const char* counts_name, const Counts& of_each,
         const std::optional<Counts>& begins) {
    for (const Number& one : of_each) counts.push_back(one.value(a.call(), counts_name));
    for (const Number& one : begins.value_or(Counts())) displacements.push_back(one.value(a.call(), "a displacement"));
    const auto require = [&](const std::string& name, size_t size) {
      if (size != a.nranks())
        throw py::value_error(a.text() + name + " has " + std::to_string(size) + " entries: expected " +
                              std::to_string(a.nranks()) + ", one for each rank");
    };
    require(counts_name, counts.size());
    if (begins) require("the displacements of " + std::string(argument), displacements.size());
    uint64_t next = 0;
    for (size_t r = 0; r < counts.size(); ++r) {
      const uint64_t begin = begins ? displacements[r] : next;
      if (counts[r] > data.count() || begin > data.count() - counts[r])
        throw py::value_error(a.text() + argument + " has " + std::to_string(data.count()) +
                              " elements: the block of rank " + std::to_string(r) + " has " +
                              std::to_string(counts[r]) + " from element " + std::to_string(begin) + " on");
      next = begin + counts[r];
    }
    for (uint64_t& one : counts) one = data.units(one);
    for (uint64_t& one : displacements) one = data.units(one);
  }
  const uint64_t* begins() const { return displacements.empty() ? nullptr : displacements.data(); }

  std::vector<uint64_t> counts, displacements;
};

// A message of a group.
struct Message {
  Message(const char* kind, py::object elements, const Number& other, const Number& label, uint32_t way)
      : call(kind),
        data(std::move(elements)),
        peer(other.rank(kind, "peer")),
        tag(label.of_32_bits(kind, "tag")),
        direction(way) {}
  const char* call;
  py::object data;
  uint32_t peer, tag, direction;
};

// Calls a collective from `in` to `out`, of which either may be absent, with `count` elements of one block.
template <typename Face, typename Function, typename... More>
auto collective(const Face& face, const Arguments& arguments, Data in, Data out, uint64_t count, Function* function,
                More... more) {
  const Data& one = in.is_absent() ? out : in;
  const auto run = [=, from = in.address(), to = out.address(), dtype = one.dtype(), units = one.units(count)](
                       tutti_comm* comm, tutti_request** request) {
    return function(comm, from, to, units, dtype, more..., arguments.options(), request);
  };
  return face.run(arguments.call(), run, {std::move(in), std::move(out)});
}

// An option that not every collective has: its place in CallOptions.
template <std::optional<std::string> CallOptions::*place>
struct Option {
  using Type = std::optional<std::string>;
  static constexpr const char* name = place == &CallOptions::order ? "order" : "wire";
};

// Adds a method of a collective: its own arguments, then the options as keywords, those of `places` among them.
template <typename Face, auto... places, typename Class, typename Body, typename Result, typename... Given,
          typename... Named>
void add_as(Class& face, const char* name, const Body& body,
            Result (Body::*)(const Face&, const CallOptions&, Given...) const, const std::string& text,
            const Named&... named) {
  using namespace py::literals;
  face.def(
      name,
      [body](const Face& f, Given... given, uintptr_t stream, const std::optional<std::string>& algorithms,
             const typename Option<places>::Type&... texts, const Number& tag) {
        CallOptions options{stream, algorithms, {}, {}, tag};
        ((options.*places = texts), ...);
        return body(f, options, std::forward<Given>(given)...);
      },
      named..., py::kw_only(), "stream"_a = 0, "algorithms"_a = py::none(),
      (py::arg(Option<places>::name) = py::none())..., "tag"_a = 0, text.c_str());
}
template <typename Face, typename Class, typename Body, typename... Named>
void add_reduction(Class& face, const char* name, const char* text, const Body& body, const Named&... named) {
  add_as<Face, &CallOptions::order, &CallOptions::wire>(face, name, body, &Body::operator(),
                                                        help::reduces(text) + help::wire_of_reductions, named...);
}
template <typename Face, typename Class, typename Body, typename... Named>
void add_scan(Class& face, const char* name, const char* text, const Body& body, const Named&... named) {
  add_as<Face, &CallOptions::order>(face, name, body, &Body::operator(), help::reduces(text), named...);
}
template <typename Face, typename Class, typename Body, typename... Named>
void add_copy(Class& face, const char* name, const std::string& text, const Body& body, const Named&... named) {
  add_as<Face>(face, name, body, &Body::operator(), text, named...);
}
// A copy that may travel in a wire format.
template <typename Face, typename Class, typename Body, typename... Named>
void add_rounding_copy(Class& face, const char* name, const char* text, const Body& body, const Named&... named) {
  add_as<Face, &CallOptions::wire>(face, name, body, &Body::operator(), help::copies(text) + help::wire_of_copies,
                                   named...);
}

template <typename Face, typename Class>
void add_reductions(Class& face) {
  using namespace py::literals;
  add_reduction<Face>(
      face, "reduce", help::reduce,
      [](const Face& f, const CallOptions& o, py::object data, py::object out, const Number& of, const py::object& op) {
        const Arguments a(f, "reduce", o);
        const uint32_t root = a.rank("root", of);
        const bool into_data = out.is_none() && a.is(root);
        const Data in = a.take_numbers(data, "data", into_data),
                   to = into_data ? in : a.take_numbers(out, "out", true, true);
        if (a.is(root)) a.fit("data", in, "out", to, 1);
        return collective(f, a, in, to, in.count(), tutti_reduce, a.op(*f.state, op, in), root);
      },
      "data"_a, "out"_a = py::none(), "root"_a = 0, "op"_a = "sum");
  add_reduction<Face>(
      face, "all_reduce", help::all_reduce,
      [](const Face& f, const CallOptions& o, py::object data, py::object out, const py::object& op) {
        const Arguments a(f, "all_reduce", o);
        const Data in = a.take_numbers(data, "data", out.is_none()),
                   to = out.is_none() ? in : a.take_numbers(out, "out", true);
        a.fit("data", in, "out", to, 1);
        return collective(f, a, in, to, in.count(), tutti_all_reduce, a.op(*f.state, op, in));
      },
      "data"_a, "out"_a = py::none(), "op"_a = "sum");
  add_reduction<Face>(
      face, "reduce_scatter", help::reduce_scatter,
      [](const Face& f, const CallOptions& o, py::object data, py::object out, const py::object& op) {
        const Arguments a(f, "reduce_scatter", o);
        const Data in = a.take_numbers(data, "data", false), to = a.take_numbers(out, "out", true);
        a.fit("out", to, "data", in, a.nranks());
        return collective(f, a, in, to, to.count(), tutti_reduce_scatter, a.op(*f.state, op, in));
      },
      "data"_a, "out"_a, "op"_a = "sum");
  struct Scan {
    const char* name;
    decltype(&tutti_scan) call;
    const char* help;
  };
  for (const Scan& scan :
       {Scan{"scan", tutti_scan, help::scan}, Scan{"exclusive_scan", tutti_exclusive_scan, help::exclusive_scan}})
    add_scan<Face>(
        face, scan.name, scan.help,
        [scan](const Face& f, const CallOptions& o, py::object data, py::object out, const py::object& op) {
          const Arguments a(f, scan.name, o);
          const Data in = a.take_numbers(data, "data", out.is_none()),
                     to = out.is_none() ? in : a.take_numbers(out, "out", true);
          a.fit("data", in, "out", to, 1);
          return collective(f, a, in, to, in.count(), scan.call, a.op(*f.state, op, in));
        },
        "data"_a, "out"_a = py::none(), "op"_a = "sum");
}

template <typename Face, typename Class>
void add_copies(Class& face) {
  using namespace py::literals;
  add_rounding_copy<Face>(
      face, "broadcast", help::broadcast,
      [](const Face& f, const CallOptions& o, py::object data, const Number& of) {
        const Arguments a(f, "broadcast", o);
        const uint32_t root = a.rank("root", of);
        const Data all = a.take(data, "data", !a.is(root) || o.wire);  // in a wire format the root rounds its own
        return collective(f, a, all, all, all.count(), tutti_broadcast, root);
      },
      "data"_a, "root"_a = 0);
  add_copy<Face>(
      face, "gather", help::copies(help::gather),
      [](const Face& f, const CallOptions& o, py::object data, py::object out, const Number& of) {
        const Arguments a(f, "gather", o);
        const uint32_t root = a.rank("root", of);
        const Data in = a.take(data, "data", false), to = a.take(out, "out", true, !a.is(root));
        if (a.is(root)) a.fit("data", in, "out", to, a.nranks());
        return collective(f, a, in, to, in.count(), tutti_gather, root);
      },
      "data"_a, "out"_a = py::none(), "root"_a = 0);
  add_rounding_copy<Face>(
      face, "all_gather", help::all_gather,
      [](const Face& f, const CallOptions& o, py::object data, py::object out) {
        const Arguments a(f, "all_gather", o);
        const Data in = a.take(data, "data", false), to = a.take(out, "out", true);
        a.fit("data", in, "out", to, a.nranks());
        return collective(f, a, in, to, in.count(), tutti_all_gather);
      },
      "data"_a, "out"_a);
  add_copy<Face>(
      face, "scatter", help::copies(help::scatter),
      [](const Face& f, const CallOptions& o, py::object data, py::object out, const Number& of) {
        const Arguments a(f, "scatter", o);
        const uint32_t root = a.rank("root", of);
        const Data in = a.take(data, "data", false, !a.is(root)), to = a.take(out, "out", true);
        if (a.is(root)) a.fit("out", to, "data", in, a.nranks());
        return collective(f, a, in, to, to.count(), tutti_scatter, root);
      },
      "data"_a, "out"_a, "root"_a = 0);
  add_copy<Face>(
      face, "all_to_all", help::copies(help::all_to_all),
      [](const Face& f, const CallOptions& o, py::object data, py::object out) {
        const Arguments a(f, "all_to_all", o);
        const Data in = a.take(data, "data", out.is_none()), to = out.is_none() ? in : a.take(out, "out", true);
        a.fit("data", in, "out", to, 1);
        return collective(f, a, in, to, a.block("data", in), tutti_all_to_all);
      },
      "data"_a, "out"_a = py::none());
  add_copy<Face>(face, "barrier", help::barrier + std::string(help::options), [](const Face& f, const CallOptions& o) {
    const Arguments a(f, "barrier", o);
    const auto call = [=](tutti_comm* comm, tutti_request** request) {
      return tutti_barrier(comm, a.options(), request);
    };
    return f.run(a.call(), call, {});
  });
}

template <typename Face, typename Class>
void add_unequal_to_all(Class& face) {
  using namespace py::literals;
  add_rounding_copy<Face>(
      face, "all_gather_v", help::all_gather_v,
      [](const Face& f, const CallOptions& o, py::object data, py::object out, const Counts& counts,
         const std::optional<Counts>& begins) {
        const Arguments a(f, "all_gather_v", o);
        const Data in = a.take(data, "data", false), to = a.take(out, "out", true);
        const Blocks blocks(a, "out", to, "counts", counts, begins);
        a.fit_own("data", in, counts);
        a.same_type("data", in, "out", to);
        const auto call = [=](tutti_comm* comm, tutti_request** request) {
          return tutti_all_gather_v(comm, in.address(), to.address(), blocks.counts.data(), blocks.begins(), to.dtype(),
                                    a.options(), request);
        };
        return f.run(a.call(), call, {in, to});
      },
      "data"_a, "out"_a, "counts"_a, "displacements"_a = py::none());
  add_reduction<Face>(
      face, "reduce_scatter_v", help::reduce_scatter_v,
      [](const Face& f, const CallOptions& o, py::object data, py::object out, const Counts& counts,
         const std::optional<Counts>& begins, const py::object& op) {
        const Arguments a(f, "reduce_scatter_v", o);
        const Data in = a.take_numbers(data, "data", false), to = a.take_numbers(out, "out", true);
        const Blocks blocks(a, "data", in, "counts", counts, begins);
        a.fit_own("out", to, counts);
        a.same_type("data", in, "out", to);
        const uint32_t code = a.op(*f.state, op, in);
        const auto call = [=](tutti_comm* comm, tutti_request** request) {
          return tutti_reduce_scatter_v(comm, in.address(), to.address(), blocks.counts.data(), blocks.begins(),
                                        to.dtype(), code, a.options(), request);
        };
        return f.run(a.call(), call, {in, to});
      },
      "data"_a, "out"_a, "counts"_a, "displacements"_a = py::none(), "op"_a = "sum");
  add_copy<Face>(
      face, "all_to_all_v", help::copies(help::all_to_all_v),
      [](const Face& f, const CallOptions& o, py::object data, py::object out, const Counts& in_counts,
         const Counts& out_counts, const std::optional<Counts>& in_begins, const std::optional<Counts>& out_begins) {
        const Arguments a(f, "all_to_all_v", o);
        const Data in = a.take(data, "data", false), to = a.take(out, "out", true);
        const Blocks from(a, "data", in, "in_counts", in_counts, in_begins);
        const Blocks into(a, "out", to, "out_counts", out_counts, out_begins);
        a.same_type("data", in, "out", to);
        const auto call = [=](tutti_comm* comm, tutti_request** request) {
          return tutti_all_to_all_v(comm, in.address(), from.counts.data(), from.begins(), to.address(),
                                    into.counts.data(), into.begins(), to.dtype(), a.options(), request);
        };
        return f.run(a.call(), call, {in, to});
      },
      "data"_a, "out"_a, "in_counts"_a, "out_counts"_a, "in_displacements"_a = py::none(),
      "out_displacements"_a = py::none());
}

template <typename Face, typename Class>
void add_unequal_of_root(Class& face) {
  using namespace py::literals;
  add_copy<Face>(
      face, "gather_v", help::copies(help::gather_v),
      [](const Face& f, const CallOptions& o, py::object data, py::object out, const std::optional<Counts>& counts,
         const std::optional<Counts>& begins, const Number& of) {
        const Arguments a(f, "gather_v", o);
        const uint32_t root = a.rank("root", of);
        const Data in = a.take(data, "data", false), to = a.take(out, "out", true, !a.is(root));
        Blocks blocks;
        if (a.is(root)) blocks = Blocks(a, "out", to, "counts", counts.value_or(Counts()), begins);
        if (a.is(root)) a.same_type("data", in, "out", to);
        const auto call = [=](tutti_comm* comm, tutti_request** request) {
          return tutti_gather_v(comm, in.address(), in.units(in.count()), to.address(), blocks.counts.data(),
                                blocks.begins(), in.dtype(), root, a.options(), request);
        };
        return f.run(a.call(), call, {in, to});
      },
      "data"_a, "out"_a = py::none(), "counts"_a = py::none(), "displacements"_a = py::none(), "root"_a = 0);
  add_copy<Face>(
      face, "scatter_v", help::copies(help::scatter_v),
      [](const Face& f, const CallOptions& o, py::object data, py::object out, const std::optional<Counts>& counts,
         const std::optional<Counts>& begins, const Number& of) {
        const Arguments a(f, "scatter_v", o);
        const uint32_t root = a.rank("root", of);
        const Data in = a.take(data, "data", false, !a.is(root)), to = a.take(out, "out", true);
        Blocks blocks;
        if (a.is(root)) blocks = Blocks(a, "data", in, "counts", counts.value_or(Counts()), begins);
        if (a.is(root)) a.same_type("data", in, "out", to);
        const auto call = [=](tutti_comm* comm, tutti_request** request) {
          return tutti_scatter_v(comm, in.address(), blocks.counts.data(), blocks.begins(), to.address(),
                                 to.units(to.count()), to.dtype(), root, a.options(), request);
        };
        return f.run(a.call(), call, {in, to});
      },
      "data"_a, "out"_a, "counts"_a = py::none(), "displacements"_a = py::none(), "root"_a = 0);
}

template <typename Face, typename Class>
void add_messages(Class& face) {
  using namespace py::literals;
  face.def(
      "send",
      [](const Face& f, py::object data, const Number& to_or_from, const Number& number, uintptr_t stream) {
        const Arguments a(f, "send", {stream});
        const uint32_t peer = a.rank("peer", to_or_from), tag = number.of_32_bits("send", "tag");
        const Data in = a.take(data, "data", false);
        const auto call = [=, from = in.address(), count = in.units(in.count()), dtype = in.dtype()](
                              tutti_comm* comm, tutti_request** request) {
          return tutti_send(comm, from, count, dtype, peer, tag, a.options(), request);
        };
        return f.run(a.call(), call, {in});
      },
      "data"_a, "peer"_a, "tag"_a = 0, py::kw_only(), "stream"_a = 0, help::moves(help::send).c_str());
  face.def(
      "receive",
      [](const Face& f, py::object data, const Number& to_or_from, const Number& number, uintptr_t stream) {
        const Arguments a(f, "receive", {stream});
        const uint32_t peer = a.rank("peer", to_or_from), tag = number.of_32_bits("receive", "tag");
        const Data out = a.take(data, "data", true);
        const auto call = [=, to = out.address(), count = out.units(out.count()), dtype = out.dtype()](
                              tutti_comm* comm, tutti_request** request) {
          return tutti_receive(comm, to, count, dtype, peer, tag, a.options(), request);
        };
        return f.run(a.call(), call, {out});
      },
      "data"_a, "peer"_a, "tag"_a = 0, py::kw_only(), "stream"_a = 0, help::moves(help::receive).c_str());
  face.def(
      "exchange",
      [](const Face& f, const std::vector<const Message*>& messages, uintptr_t stream) {
        const Arguments a(f, "exchange", {stream});
        std::vector<Data> data;
        std::vector<tutti_message> rows;
        for (const Message* m : messages) {
          const Data& one = data.emplace_back(a.take(m->data, "a message's data", m->direction == TUTTI_RECEIVE));
          rows.push_back({one.address(), one.units(one.count()), one.dtype(), m->peer, m->tag, m->direction, {}});
        }
        const auto call = [=](tutti_comm* comm, tutti_request** request) {
          return tutti_exchange(comm, rows.data(), rows.size(), a.options(), request);
        };
        return f.run(a.call(), call, std::move(data));
      },
      "messages"_a, py::kw_only(), "stream"_a = 0, help::moves(help::exchange).c_str());
}

template <typename Face>
void add_calls(py::class_<Face>& face) {
  add_reductions<Face>(face);
  add_copies<Face>(face);
  add_unequal_to_all<Face>(face);
  add_unequal_of_root<Face>(face);
  add_messages<Face>(face);
  add_group<Face>(face);
}

}  // namespace

// A request lets signals through, which a blocking call does not.
template <typename Call>
void Calls::run(const char* name, Call&& call, std::vector<Data> data) const {
  if (state->group) {
    state->use([&](tutti_comm* comm) { return call(comm, nullptr); });
    std::ranges::move(data, std::back_inserter(*state->group));
    return;
  }
  const bool on_device = std::ranges::any_of(data, [](const Data& one) { return one.on_device(); });
  if (on_device)
    state->use([&](tutti_comm* comm) { return call(comm, nullptr); });
  else
    Start{state}.run(name, call, std::move(data))->finish();
}

template <uint32_t call_flags>
template <typename Call>
std::shared_ptr<Request> Requests<call_flags>::run(const char* name, Call&& call, std::vector<Data> data) const {
  tutti_request* request = nullptr;
  state->use([&](tutti_comm* comm) { return call(comm, &request); });
  return std::make_shared<Request>(name, state, request, std::move(data), flags & TUTTI_PERSISTENT);
}

uint64_t nanoseconds(const char* argument, const std::optional<double>& seconds) {
  if (!seconds) return 0;
  if (!(*seconds > 0 && *seconds < 1e9))
    throw py::value_error(std::string(argument) + " is " + std::string(py::repr(py::float_(*seconds))) +
                          ": expected seconds above 0, or None for the default");
  return static_cast<uint64_t>(std::ceil(*seconds * 1e9));
}

void add_operations(py::module_& module) {
  using namespace py::literals;
  py::class_<Message>(module, "Message", "A message of Communicator.exchange(): what Send() and Receive() make.")
      .def("__repr__", [](const Message& m) {
        return "<tutti." + std::string(m.call) + (m.direction == TUTTI_SEND ? " to" : " from") + " rank " +
               std::to_string(m.peer) + ", tag " + std::to_string(m.tag) + ", of " + Py_TYPE(m.data.ptr())->tp_name +
               ">";
      });
  module.def(
      "Send",
      [](py::object data, const Number& peer, const Number& tag) {
        return Message("Send", std::move(data), peer, tag, TUTTI_SEND);
      },
      "data"_a, "peer"_a, "tag"_a = 0, "A message to rank `peer`.");
  module.def(
      "Receive",
      [](py::object data, const Number& peer, const Number& tag) {
        return Message("Receive", std::move(data), peer, tag, TUTTI_RECEIVE);
      },
      "data"_a, "peer"_a, "tag"_a = 0, "A message from rank `peer`, of as many bytes as `data` has.");
  add_requests(module);
  py::class_<Start> start(module, "Start",
                          "The calls of a communicator that return a Request. See Communicator.start.");
  add_calls<Start>(start);
  start.def("__repr__", [](const Start& face) { return "<tutti.Start, " + face.state->text() + ">"; });
  py::class_<Persistent> persistent(module, "Persistent", "The calls of Communicator.persistent.");
  add_calls<Persistent>(persistent);
  persistent.def("__repr__", [](const Persistent& face) { return "<tutti.Persistent, " + face.state->text() + ">"; });
  py::class_<Calls> calls(module, "Calls", "The calls of a communicator.");
  add_calls<Calls>(calls);
}

}  // namespace tutti::python
