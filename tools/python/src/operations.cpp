// SPDX-License-Identifier: Apache-2.0
#include "operations.hpp"

#include <pybind11/stl.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "operators.hpp"

namespace tutti::python {
namespace {

namespace py = pybind11;

// The arguments of one call.
class Arguments {
 public:
  template <typename Face>
  Arguments(const Face& face, const char* call, uintptr_t stream)
      : call_(call), nranks_(tutti_comm_nranks(face.state->handle())) {
    options_.struct_size = sizeof options_;
    options_.flags = Face::flags;
    options_.stream = reinterpret_cast<void*>(stream);
    rank_ = tutti_comm_rank(face.state->handle());
  }
  const tutti_options* options() const { return &options_; }
  uint32_t nranks() const { return nranks_; }
  bool is(uint32_t root) const { return rank_ == root; }

  // `given`: a name, or an Operator of this communicator.
  uint32_t op(const State& state, py::handle given) const {
    if (py::isinstance<Operator>(given)) return given.cast<const Operator&>().number(state, call_);
    if (!py::isinstance<py::str>(given))
      throw py::type_error(text() + "op is of type " + std::string(py::str(py::type::of(given).attr("__name__"))) +
                           ": expected a name, or what Communicator.operator() made");
    const auto name = given.cast<std::string>();
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
  void same_type(const char* one, const Data& data, const char* other, const Data& out) const {
    if (data.dtype() != out.dtype())
      throw py::value_error(text() + one + " is " + dtype_text(data.dtype()) + " and " + other + " is " +
                            dtype_text(out.dtype()));
  }
  // One block of `data` for each of `blocks` in `out`.
  void fit(const char* smaller, const Data& data, const char* larger, const Data& out, uint32_t blocks) const {
    same_type(smaller, data, larger, out);
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

  // The argument has as many elements as this rank's block.
  void fit_own(const char* argument, const Data& data, const std::vector<uint64_t>& counts) const {
    if (data.count() != counts.at(rank_))
      throw py::value_error(text() + argument + " has " + std::to_string(data.count()) + " elements: expected " +
                            std::to_string(counts[rank_]) + ", which is counts[" + std::to_string(rank_) +
                            "], this rank's own");
  }
  std::string text() const { return std::string(call_) + ": "; }

 private:
  const char* call_;
  uint32_t nranks_, rank_ = 0;
  tutti_options options_{};
};

// The blocks of an argument, which has room for all of them.
struct Blocks {
  Blocks() = default;
  // `counts_name`: of the argument that has them.
  Blocks(const Arguments& a, const char* argument, const Data& data, const char* counts_name,
         std::vector<uint64_t> of_each, const std::optional<std::vector<uint64_t>>& begins)
      : counts(std::move(of_each)), displacements(begins.value_or(std::vector<uint64_t>())) {
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
  }
  const uint64_t* begins() const { return displacements.empty() ? nullptr : displacements.data(); }

  std::vector<uint64_t> counts, displacements;
};

constexpr const char* all_gather_v_help =
    "As all_gather, with blocks of different sizes: rank r gives counts[r] elements, which begin at displacements[r]\n"
    "of `out`; None: one block after another. All ranks pass the same counts.";
constexpr const char* reduce_scatter_v_help =
    "As reduce_scatter, with blocks of different sizes: rank r gets counts[r] elements. All ranks pass the same "
    "counts.";
constexpr const char* all_to_all_v_help =
    "As all_to_all, with blocks of different sizes: rank r gets in_counts[r] elements of `data`, and out_counts[r]\n"
    "come from it.";
constexpr const char* gather_v_help =
    "As gather, with blocks of different sizes. `out`, `counts` and `displacements` are those of the root.";
constexpr const char* scatter_v_help =
    "As scatter, with blocks of different sizes. `data`, `counts` and `displacements` are those of the root.";
constexpr const char* broadcast_help = "Gives every rank the elements of `data` at `root`.";
constexpr const char* reduce_help =
    "Reduces `data` of all ranks by `op` (\"sum\", \"prod\", \"min\", \"max\", \"avg\", \"band\" ... \"maxloc\", an "
    "Operator) into `out` of `root`; None: "
    "into the\n"
    "root's `data`.";
constexpr const char* all_reduce_help =
    "Reduces `data` of all ranks by `op` (\"sum\", \"prod\", \"min\", \"max\", \"avg\", \"band\" ... \"maxloc\", an "
    "Operator) into `out` of every rank; "
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
constexpr const char* scan_help =
    "Reduces `data` of ranks 0 to r by `op`, in their order, into `out` of rank r, or into its `data` without `out`.";
constexpr const char* exclusive_scan_help =
    "As scan, over ranks 0 to r-1. Rank 0 has no result: its `out` or `data` stays as it is.";
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
      [](const Face& f, py::object data, py::object out, uint32_t root, const py::object& op, uintptr_t stream) {
        const Arguments a(f, "reduce", stream);
        const uint32_t code = a.op(*f.state, op);
        const bool into_data = out.is_none() && a.is(root);
        const Data in = a.take(data, "data", into_data), to = into_data ? in : a.take(out, "out", true, true);
        if (a.is(root)) a.fit("data", in, "out", to, 1);
        return collective(f, a, in, to, in.count(), tutti_reduce, code, root);
      },
      "data"_a, "out"_a = py::none(), "root"_a = 0, "op"_a = "sum", py::kw_only(), "stream"_a = 0, reduce_help);
  face.def(
      "all_reduce",
      [](const Face& f, py::object data, py::object out, const py::object& op, uintptr_t stream) {
        const Arguments a(f, "all_reduce", stream);
        const uint32_t code = a.op(*f.state, op);
        const Data in = a.take(data, "data", out.is_none()), to = out.is_none() ? in : a.take(out, "out", true);
        a.fit("data", in, "out", to, 1);
        return collective(f, a, in, to, in.count(), tutti_all_reduce, code);
      },
      "data"_a, "out"_a = py::none(), "op"_a = "sum", py::kw_only(), "stream"_a = 0, all_reduce_help);
  face.def(
      "reduce_scatter",
      [](const Face& f, py::object data, py::object out, const py::object& op, uintptr_t stream) {
        const Arguments a(f, "reduce_scatter", stream);
        const uint32_t code = a.op(*f.state, op);
        const Data in = a.take(data, "data", false), to = a.take(out, "out", true);
        a.fit("out", to, "data", in, a.nranks());
        return collective(f, a, in, to, to.count(), tutti_reduce_scatter, code);
      },
      "data"_a, "out"_a, "op"_a = "sum", py::kw_only(), "stream"_a = 0, reduce_scatter_help);
  struct Scan {
    const char* name;
    decltype(&tutti_scan) call;
    const char* help;
  };
  for (const Scan& scan :
       {Scan{"scan", tutti_scan, scan_help}, Scan{"exclusive_scan", tutti_exclusive_scan, exclusive_scan_help}})
    face.def(
        scan.name,
        [scan](const Face& f, py::object data, py::object out, const py::object& op, uintptr_t stream) {
          const Arguments a(f, scan.name, stream);
          const uint32_t code = a.op(*f.state, op);
          const Data in = a.take(data, "data", out.is_none()), to = out.is_none() ? in : a.take(out, "out", true);
          a.fit("data", in, "out", to, 1);
          return collective(f, a, in, to, in.count(), scan.call, code);
        },
        "data"_a, "out"_a = py::none(), "op"_a = "sum", py::kw_only(), "stream"_a = 0, scan.help);
}

template <typename Face, typename Class>
void add_copies(Class& face) {
  using namespace py::literals;
  face.def(
      "broadcast",
      [](const Face& f, py::object data, uint32_t root, uintptr_t stream) {
        const Arguments a(f, "broadcast", stream);
        const Data all = a.take(data, "data", !a.is(root));
        return collective(f, a, all, all, all.count(), tutti_broadcast, root);
      },
      "data"_a, "root"_a = 0, py::kw_only(), "stream"_a = 0, broadcast_help);
  face.def(
      "gather",
      [](const Face& f, py::object data, py::object out, uint32_t root, uintptr_t stream) {
        const Arguments a(f, "gather", stream);
        const Data in = a.take(data, "data", false), to = a.take(out, "out", true, !a.is(root));
        if (a.is(root)) a.fit("data", in, "out", to, a.nranks());
        return collective(f, a, in, to, in.count(), tutti_gather, root);
      },
      "data"_a, "out"_a = py::none(), "root"_a = 0, py::kw_only(), "stream"_a = 0, gather_help);
  face.def(
      "all_gather",
      [](const Face& f, py::object data, py::object out, uintptr_t stream) {
        const Arguments a(f, "all_gather", stream);
        const Data in = a.take(data, "data", false), to = a.take(out, "out", true);
        a.fit("data", in, "out", to, a.nranks());
        return collective(f, a, in, to, in.count(), tutti_all_gather);
      },
      "data"_a, "out"_a, py::kw_only(), "stream"_a = 0, all_gather_help);
  face.def(
      "scatter",
      [](const Face& f, py::object data, py::object out, uint32_t root, uintptr_t stream) {
        const Arguments a(f, "scatter", stream);
        const Data in = a.take(data, "data", false, !a.is(root)), to = a.take(out, "out", true);
        if (a.is(root)) a.fit("out", to, "data", in, a.nranks());
        return collective(f, a, in, to, to.count(), tutti_scatter, root);
      },
      "data"_a, "out"_a, "root"_a = 0, py::kw_only(), "stream"_a = 0, scatter_help);
  face.def(
      "all_to_all",
      [](const Face& f, py::object data, py::object out, uintptr_t stream) {
        const Arguments a(f, "all_to_all", stream);
        const Data in = a.take(data, "data", out.is_none()), to = out.is_none() ? in : a.take(out, "out", true);
        a.fit("data", in, "out", to, 1);
        return collective(f, a, in, to, a.block("data", in), tutti_all_to_all);
      },
      "data"_a, "out"_a = py::none(), py::kw_only(), "stream"_a = 0, all_to_all_help);
  face.def(
      "barrier",
      [](const Face& f) {
        const Arguments a(f, "barrier", 0);
        return f.run(
            [=](tutti_comm* comm, tutti_request** request) { return tutti_barrier(comm, a.options(), request); }, {});
      },
      barrier_help);
}

using Counts = std::vector<uint64_t>;

template <typename Face, typename Class>
void add_unequal_to_all(Class& face) {
  using namespace py::literals;
  face.def(
      "all_gather_v",
      [](const Face& f, py::object data, py::object out, const Counts& counts, const std::optional<Counts>& begins) {
        const Arguments a(f, "all_gather_v", 0);
        const Data in = a.take(data, "data", false), to = a.take(out, "out", true);
        const Blocks blocks(a, "out", to, "counts", counts, begins);
        a.fit_own("data", in, counts);
        a.same_type("data", in, "out", to);
        const auto call = [=](tutti_comm* comm, tutti_request** request) {
          return tutti_all_gather_v(comm, in.address(), to.address(), blocks.counts.data(), blocks.begins(), to.dtype(),
                                    a.options(), request);
        };
        return f.run(call, {in, to});
      },
      "data"_a, "out"_a, "counts"_a, "displacements"_a = py::none(), all_gather_v_help);
  face.def(
      "reduce_scatter_v",
      [](const Face& f, py::object data, py::object out, const Counts& counts, const std::optional<Counts>& begins,
         const py::object& op) {
        const Arguments a(f, "reduce_scatter_v", 0);
        const uint32_t code = a.op(*f.state, op);
        const Data in = a.take(data, "data", false), to = a.take(out, "out", true);
        const Blocks blocks(a, "data", in, "counts", counts, begins);
        a.fit_own("out", to, counts);
        a.same_type("data", in, "out", to);
        const auto call = [=](tutti_comm* comm, tutti_request** request) {
          return tutti_reduce_scatter_v(comm, in.address(), to.address(), blocks.counts.data(), blocks.begins(),
                                        to.dtype(), code, a.options(), request);
        };
        return f.run(call, {in, to});
      },
      "data"_a, "out"_a, "counts"_a, "displacements"_a = py::none(), "op"_a = "sum", reduce_scatter_v_help);
  face.def(
      "all_to_all_v",
      [](const Face& f, py::object data, py::object out, const Counts& in_counts, const Counts& out_counts,
         const std::optional<Counts>& in_begins, const std::optional<Counts>& out_begins) {
        const Arguments a(f, "all_to_all_v", 0);
        const Data in = a.take(data, "data", false), to = a.take(out, "out", true);
        const Blocks from(a, "data", in, "in_counts", in_counts, in_begins);
        const Blocks into(a, "out", to, "out_counts", out_counts, out_begins);
        a.same_type("data", in, "out", to);
        const auto call = [=](tutti_comm* comm, tutti_request** request) {
          return tutti_all_to_all_v(comm, in.address(), from.counts.data(), from.begins(), to.address(),
                                    into.counts.data(), into.begins(), to.dtype(), a.options(), request);
        };
        return f.run(call, {in, to});
      },
      "data"_a, "out"_a, "in_counts"_a, "out_counts"_a, "in_displacements"_a = py::none(),
      "out_displacements"_a = py::none(), all_to_all_v_help);
}

template <typename Face, typename Class>
void add_unequal_of_root(Class& face) {
  using namespace py::literals;
  face.def(
      "gather_v",
      [](const Face& f, py::object data, py::object out, const std::optional<Counts>& counts,
         const std::optional<Counts>& begins, uint32_t root) {
        const Arguments a(f, "gather_v", 0);
        const Data in = a.take(data, "data", false), to = a.take(out, "out", true, !a.is(root));
        Blocks blocks;
        if (a.is(root)) blocks = Blocks(a, "out", to, "counts", counts.value_or(Counts()), begins);
        if (a.is(root)) a.same_type("data", in, "out", to);
        const auto call = [=](tutti_comm* comm, tutti_request** request) {
          return tutti_gather_v(comm, in.address(), in.count(), to.address(), blocks.counts.data(), blocks.begins(),
                                in.dtype(), root, a.options(), request);
        };
        return f.run(call, {in, to});
      },
      "data"_a, "out"_a = py::none(), "counts"_a = py::none(), "displacements"_a = py::none(), "root"_a = 0,
      gather_v_help);
  face.def(
      "scatter_v",
      [](const Face& f, py::object data, py::object out, const std::optional<Counts>& counts,
         const std::optional<Counts>& begins, uint32_t root) {
        const Arguments a(f, "scatter_v", 0);
        const Data in = a.take(data, "data", false, !a.is(root)), to = a.take(out, "out", true);
        Blocks blocks;
        if (a.is(root)) blocks = Blocks(a, "data", in, "counts", counts.value_or(Counts()), begins);
        if (a.is(root)) a.same_type("data", in, "out", to);
        const auto call = [=](tutti_comm* comm, tutti_request** request) {
          return tutti_scatter_v(comm, in.address(), blocks.counts.data(), blocks.begins(), to.address(), to.count(),
                                 to.dtype(), root, a.options(), request);
        };
        return f.run(call, {in, to});
      },
      "data"_a, "out"_a, "counts"_a = py::none(), "displacements"_a = py::none(), "root"_a = 0, scatter_v_help);
}

template <typename Face, typename Class>
void add_messages(Class& face) {
  using namespace py::literals;
  face.def(
      "send",
      [](const Face& f, py::object data, uint32_t peer, uint32_t tag, uintptr_t stream) {
        const Arguments a(f, "send", stream);
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
        const Arguments a(f, "receive", stream);
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
        const Arguments a(f, "exchange", stream);
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
void Calls::run(Call&& call, std::vector<Data> data) const {
  if (state->group) {
    state->use([&](tutti_comm* comm) { return call(comm, nullptr); });
    std::ranges::move(data, std::back_inserter(*state->group));
    return;
  }
  const bool on_device = std::ranges::any_of(data, [](const Data& one) { return one.on_device(); });
  if (on_device)
    state->use([&](tutti_comm* comm) { return call(comm, nullptr); });
  else
    Start{state}.run(call, std::move(data))->finish();
}

template <uint32_t call_flags>
template <typename Call>
std::shared_ptr<Request> Requests<call_flags>::run(Call&& call, std::vector<Data> data) const {
  tutti_request* request = nullptr;
  state->use([&](tutti_comm* comm) { return call(comm, &request); });
  return std::make_shared<Request>(state, request, std::move(data), flags & TUTTI_PERSISTENT);
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
  add_requests(module);
  py::class_<Start> start(module, "Start",
                          "The calls of a communicator that return a Request. See Communicator.start.");
  add_calls<Start>(start);
  py::class_<Persistent> persistent(module, "Persistent", "The calls of Communicator.persistent.");
  add_calls<Persistent>(persistent);
  py::class_<Calls> calls(module, "Calls", "The calls of a communicator.");
  add_calls<Calls>(calls);
}

}  // namespace tutti::python
