// SPDX-License-Identifier: Apache-2.0
#include <pybind11/stl.h>
#include <tutti/schedule.h>

#include <algorithm>

#include "operations.hpp"
#include "operators.hpp"
#include "windows.hpp"

namespace tutti::python {
namespace {

namespace py = pybind11;
using namespace py::literals;

// A communicator: its calls, and the rest.
struct Communicator : Calls {};

// The strings and figures of a configuration, while tutti_comm_create reads them.
struct Settings {
  std::optional<std::string> rendezvous, device, transports, algorithms;
  std::string name;
  std::optional<double> timeout, connect_timeout;
  uint32_t rank = 0, nranks = 0, flags = 0;
};

Communicator create(const Settings& settings) {
  const auto text = [](const std::optional<std::string>& value) { return value ? value->c_str() : nullptr; };
  std::string error(4096, '\0');
  tutti_comm_config config{};
  config.struct_size = sizeof config;
  config.flags = settings.flags;
  config.name = settings.name.c_str();
  config.rendezvous = text(settings.rendezvous);
  config.rank = settings.rank;
  config.nranks = settings.nranks;
  config.timeout_ns = nanoseconds("Communicator: timeout", settings.timeout);
  config.connect_timeout_ns = nanoseconds("Communicator: connect_timeout", settings.connect_timeout);
  config.transports = text(settings.transports);
  config.algorithms = text(settings.algorithms);
  config.device = text(settings.device);
  config.error = error.data();
  config.error_bytes = error.size();
  tutti_comm* comm = nullptr;
  tutti_status status;
  {
    const Signals signals;
    const py::gil_scoped_release unlocked;
    status = tutti_comm_create(&config, &comm);
  }
  Signals::raise_if_any(comm);
  check(status, error.c_str());
  return {{std::make_shared<State>(comm, settings.name)}};
}

// The communicator that `make` makes of this one.
template <typename Make>
Communicator next(const Communicator& self, Make&& make) {
  tutti_comm* made = nullptr;
  self.state->use([&](tutti_comm* comm) { return make(comm, &made); });
  Signals::raise_if_any(made);
  return {{std::make_shared<State>(made, tutti_comm_name(made))}};
}

std::optional<Communicator> split(const Communicator& self, const std::optional<Number>& color, int64_t key,
                                  const std::string& by, const std::optional<std::string>& name,
                                  std::optional<double> timeout) {
  const std::pair<const char*, uint32_t> ways[] = {{"color", TUTTI_SPLIT_BY_COLOR},
                                                   {"host", TUTTI_SPLIT_BY_HOST},
                                                   {"numa", TUTTI_SPLIT_BY_NUMA},
                                                   {"device", TUTTI_SPLIT_BY_DEVICE}};
  const auto way = std::ranges::find(ways, by, [](const auto& one) { return std::string_view(one.first); });
  if (way == std::end(ways))
    throw py::value_error("split: by is \"" + by + "\", expected \"color\", \"host\", \"numa\" or \"device\"");
  tutti_split how{};
  how.struct_size = sizeof how;
  how.by = way->second;
  how.color = TUTTI_NO_COLOR;
  if (color)
    how.color = static_cast<uint32_t>(
        color->value("split", "color", "a whole number from 0 up, or None for no part", TUTTI_NO_COLOR - 1));
  how.key = key;
  how.name = name ? name->c_str() : nullptr;
  how.timeout_ns = nanoseconds("split", timeout);
  tutti_comm* made = nullptr;
  self.state->use([&](tutti_comm* comm) { return tutti_comm_split(comm, &how, &made); });
  Signals::raise_if_any(made);
  if (!made) return std::nullopt;
  return Communicator{{std::make_shared<State>(made, tutti_comm_name(made))}};
}

tutti_unique_id id_of(const std::string& text) {
  tutti_unique_id id{};
  if (text.size() >= sizeof id.text)
    throw py::value_error("grow: id has " + std::to_string(text.size()) +
                          " characters: expected what invite() returned");
  text.copy(id.text, text.size());
  return id;
}

template <typename Row>
std::vector<Row> rows(const Communicator& self, tutti_status (*function)(const tutti_comm*, Row*, uint64_t*)) {
  tutti_comm* const comm = self.state->handle();
  uint64_t n = 0;
  function(comm, nullptr, &n);
  std::vector<Row> result(n);
  const tutti_status status = function(comm, result.data(), &n);
  check(status, tutti_comm_error(comm));  // after the call, which makes the text
  if (n < result.size()) result.resize(n);
  return result;
}

// A text of which `function` tells the length.
template <typename Function>
std::string text_of(const Communicator& self, Function&& function) {
  tutti_comm* const comm = self.state->handle();
  uint64_t bytes = 0;
  function(comm, nullptr, &bytes);
  std::string text(bytes, '\0');
  const tutti_status status = function(comm, text.data(), &bytes);
  check(status, tutti_comm_error(comm));
  return text.c_str();
}

py::list services(const Communicator& self) {
  py::list list;
  for (const tutti_service& row : rows(self, tutti_comm_services))
    list.append(py::dict("collective"_a = row.collective, "algorithm"_a = row.algorithm,
                         "transports"_a = row.transports, "calls"_a = row.calls, "bytes"_a = row.bytes,
                         "seconds"_a = double(row.time_ns) * 1e-9));
  return list;
}

py::list traffic(const Communicator& self) {
  py::list list;
  for (const tutti_link_traffic& row : rows(self, tutti_comm_traffic))
    list.append(py::dict("transport"_a = row.transport, "peer"_a = row.peer, "sent_bytes"_a = row.sent_bytes,
                         "received_bytes"_a = row.received_bytes));
  return list;
}

uint32_t collective_of(const std::string& name) {
  if (const uint32_t c = collective_from_name(name); c && name == collective_name(c)) return c;
  throw py::value_error("explain: there is no collective \"" + name + "\"");
}

std::string explain(const Communicator& self, const std::string& collective, const Number& elements,
                    const std::string& dtype) {
  const uint64_t count = elements.value("explain", "count");
  const uint32_t type = dtype_of_text(dtype);
  if (!type) throw py::value_error("explain: there is no data type \"" + dtype + "\"");
  const uint32_t c = collective_of(collective);
  return text_of(self, [&](tutti_comm* comm, char* text, uint64_t* bytes) {
    return tutti_comm_explain(comm, c, count, type, text, bytes);
  });
}

tutti_host_facts host(const Communicator& self, const std::optional<Number>& rank) {
  tutti_comm* const comm = self.state->handle();
  tutti_host_facts facts{};
  facts.struct_size = sizeof facts;
  const tutti_status status = tutti_comm_host(comm, rank ? rank->rank("host", "rank") : tutti_comm_rank(comm), &facts);
  check(status, tutti_comm_error(comm));
  return facts;
}

tutti_envelope envelope_of(const char* call, const std::optional<Number>& peer, const std::optional<Number>& tag) {
  tutti_envelope envelope{};
  envelope.struct_size = sizeof envelope;
  if (!peer) envelope.flags |= TUTTI_ANY_PEER;
  if (!tag) envelope.flags |= TUTTI_ANY_TAG;
  if (peer) envelope.peer = peer->rank(call, "peer");
  if (tag) envelope.tag = tag->of_32_bits(call, "tag");
  return envelope;
}

std::optional<tutti_envelope> probe(const Communicator& self, const std::optional<Number>& peer,
                                    const std::optional<Number>& tag, std::optional<double> timeout) {
  tutti_envelope envelope = envelope_of("probe", peer, tag);
  const uint64_t limit = !timeout ? UINT64_MAX : *timeout == 0 ? 0 : nanoseconds("probe", timeout);
  const tutti_status status = self.state->use([&](tutti_comm* comm) { return tutti_probe(comm, &envelope, limit); });
  return status == TUTTI_OK ? std::optional(envelope) : std::nullopt;
}

tutti_envelope receive_any(const Communicator& self, const py::object& data, const std::optional<Number>& peer,
                           const std::optional<Number>& tag) {
  const Data out(data, "receive_any", "data", true, 0, Elements::any);
  tutti_envelope envelope = envelope_of("receive_any", peer, tag);
  self.state->use([&](tutti_comm* comm) {
    return tutti_receive_any(comm, out.address(), out.units(out.count()), out.dtype(), &envelope, nullptr, nullptr);
  });
  return envelope;
}

py::object failure(const Communicator& self) {
  tutti_comm* const comm = self.state->handle();
  const tutti_status status = tutti_comm_async_error(comm);
  if (status == TUTTI_OK) return py::none();
  try {
    raise(status, tutti_comm_error(comm));
  } catch (py::error_already_set& error) {
    return error.value();
  }
}

std::string make_id() {
  tutti_unique_id id{};
  check(tutti_unique_id_create(&id), "no address for a meeting could be made");
  return id.text;
}

void add_facts(py::class_<Communicator, Calls>& type) {
  type.def_property_readonly(
          "rank", [](const Communicator& c) { return c.state->rank; }, "This rank.")
      .def_property_readonly(
          "nranks", [](const Communicator& c) { return c.state->nranks; }, "The number of ranks.")
      .def_property_readonly(
          "name", [](const Communicator& c) { return c.state->name(); }, "Its name in messages.")
      .def_property_readonly(
          "closed", [](const Communicator& c) { return !c.state->is_open(); }, "True after close().")
      .def_property_readonly(
          "device", [](const Communicator& c) { return text_of(c, tutti_comm_device); },
          "The device that it is bound to, \"cuda:1\"; \"none\".")
      .def_property_readonly(
          "persistent", [](const Communicator& c) { return Persistent{c.state}; },
          "The same calls, which start nothing: they return a Request whose start() does, as often as is wanted.")
      .def_property_readonly(
          "start", [](const Communicator& c) { return Start{c.state}; },
          "The same calls, which return a Request at once. All ranks start collectives in the same order.")
      .def_property_readonly("failure", failure, "The exception that has broken the communicator; None. Any thread.")
      .def_property_readonly(
          "lost", [](const Communicator& c) { return rows<uint32_t>(c, tutti_comm_lost); },
          "The ranks known to be lost. Any thread.")
      .def("services", services,
           "How each kind of call was served, a dict each: collective, algorithm, transports, calls, bytes, seconds.")
      .def("traffic", traffic,
           "The bytes moved with each peer, a dict for each of its transports: transport, peer, sent_bytes, "
           "received_bytes.")
      .def("host", host, "rank"_a = py::none(),
           "Where a rank is (None: this one): its host, and its number there. Raises InvalidArgument for a rank that "
           "there "
           "is not.")
      .def(
          "topology", [](const Communicator& c) { return text_of(c, tutti_comm_topology); },
          "Ranks, hosts, devices, and the transport of each pair, as text.")
      .def(
          "explain", explain, "collective"_a, "count"_a, "dtype"_a = "float32",
          "The algorithms for a call of `count` elements of type `dtype`, with their predicted times, as text. Raises\n"
          "ValueError for an unknown collective or type.")
      .def("__repr__", [](const Communicator& c) {
        const bool open = c.state->is_open(), broken = open && tutti_comm_async_error(c.state->handle()) < 0;
        return "<tutti.Communicator \"" + c.state->name() + "\", rank " + std::to_string(c.state->rank) + " of " +
               std::to_string(c.state->nranks) +
               (broken ? ", broken>"
                : open ? ">"
                       : ", closed>");
      });
}

void add_own_operators(py::class_<Communicator, Calls>& type) {
  type.def(
          "operator",
          [](const Communicator& c, const std::string& name, py::function function, const std::string& dtype,
             bool commutes) { return Operator::of_function(c.state, name, std::move(function), dtype, commutes); },
          "name"_a, "function"_a, "dtype"_a, py::kw_only(), "commutes"_a = true,
          "An operator for `op` of this communicator's calls on host memory. function(left, right) gets memoryviews of "
          "as\n"
          "many elements of type `dtype`, for this call only, and sets left to left op right: numpy.asarray(left)[:] = "
          "...\n"
          "It must be associative. commutes=False: operands stay in the order of ranks. An exception ends the "
          "communicator\n"
          "on all ranks. All ranks make it under the same name. Local.")
      .def(
          "premul_sum",
          [](const Communicator& c, const py::object& factor) { return Operator::premul_sum(c.state, factor); },
          "factor"_a,
          "The operator that sums the ranks' elements, each times the factor of its rank: one element of the data's "
          "type,\n"
          "numpy.float32(0.5). Local.");
}

void add_membership(py::class_<Communicator, Calls>& type) {
  type.def(
          "abort", [](const Communicator& c, const std::string& reason) { c.state->abort(reason); }, "reason"_a,
          "Ends every operation of all ranks: they raise Aborted with the reason. Any thread.")
      .def(
          "revoke",
          [](const Communicator& c, const std::string& reason) {
            tutti_comm* const comm = c.state->handle();
            const py::gil_scoped_release unlocked;  // an operator's function may want it
            tutti_comm_revoke(comm, reason.c_str());
          },
          "reason"_a, "As abort(), when all ranks are to go on by shrink(). Any thread.")
      .def("probe", &probe, "peer"_a = py::none(), "tag"_a = py::none(), "timeout"_a = 0.0,
           "The message that has come and that a receive from this peer with this tag would meet; None: any. It stays "
           "where it is. Waits at most `timeout` seconds, then returns None; timeout=None waits until one comes.")
      .def("receive_any", &receive_any, "data"_a, "peer"_a = py::none(), "tag"_a = py::none(),
           "Receives into `data` from any rank, or with any tag: None. The message must have as many bytes as `data`: "
           "probe()\n"
           "tells. Returns which it was. `data` is as for receive(). Raises Mismatch for another length.")
      .def(
          "split", &split, "color"_a = 0, "key"_a = 0, py::kw_only(), "by"_a = "color", "name"_a = py::none(),
          "timeout"_a = py::none(),
          "The communicator of this rank's part: the ranks of its color, in the order of `key` and then of their rank. "
          "None: it is in no part, by color=None, or since nothing tells its NUMA node or device. `by`: \"color\", "
          "\"host\", \"numa\" or \"device\", and then by color. `timeout`: seconds, for the part. Parts and parent are "
          "closed "
          "in any order. Collective.")
      .def(
          "duplicate",
          [](const Communicator& c) {
            return next(c, [](tutti_comm* comm, tutti_comm** made) { return tutti_comm_split(comm, nullptr, made); });
          },
          "Another communicator of all its ranks. Collective.")
      .def(
          "shrink",
          [](const Communicator& c) {
            return next(c, [](tutti_comm* comm, tutti_comm** made) { return tutti_comm_shrink(comm, nullptr, made); });
          },
          "A communicator of the surviving ranks, in their order; collective over them. This one stays to be closed.")
      .def(
          "invite",
          [](const Communicator& c) {
            tutti_unique_id id{};
            c.state->use([&](tutti_comm* comm) { return tutti_comm_invite(comm, nullptr, &id); });
            return std::string(id.text);
          },
          "The id by which processes join() while all ranks grow(). It holds a secret. Collective.")
      .def(
          "grow",
          [](const Communicator& c, const std::string& text, const Number& more) {
            const tutti_unique_id id = id_of(text);
            const uint32_t newcomers = more.of_32_bits("grow", "newcomers");
            return next(c, [&](tutti_comm* comm, tutti_comm** made) {
              return tutti_comm_grow(comm, &id, newcomers, nullptr, made);
            });
          },
          "id"_a, "newcomers"_a,
          "A communicator with `newcomers` processes more, behind the ranks of this one. They join(id). Collective. "
          "Raises\n"
          "Timeout where they do not come.")
      .def_static(
          "join",
          [](const std::string& id, const std::string& name) {
            Settings settings;
            settings.rendezvous = id;
            settings.name = name;
            settings.flags = TUTTI_COMM_JOIN;
            return create(settings);
          },
          "id"_a, py::kw_only(), "name"_a = "world",
          "Joins the ranks that grow(): the communicator that they get. `id`: what invite() returned there.")
      .def(
          "register", &make_window, "data"_a, py::kw_only(), "zero_copy"_a = false, "timeout"_a = py::none(),
          "stream"_a = 0,
          "A Window of the memory of `data`, which all ranks register together, with as many bytes; collective. Other\n"
          "processes of the host read device memory of a window in place; transports get host memory of one "
          "registered\n"
          "once. `data` is an array as for broadcast(), and is kept until the window is closed. zero_copy: raise "
          "NotSupported where\n"
          "it would be staged. `timeout`: seconds to wait for the other ranks; None: the communicator's.")
      .def(
          "close", [](const Communicator& c) { c.state->close(); },
          "Ends the communicator when all ranks have come to it; collective. Requests end. Raises what has gone wrong "
          "that no call\n"
          "has raised: a rank that does not come, calls that differ.")
      .def("__enter__", [](const py::object& self) { return self; })
      .def("__exit__", [](const Communicator& c, const py::object& kind, const py::object& value, const py::object&) {
        if (!kind.is_none() && c.state->is_open())
          c.state->abort("the rank left by " + py::str(kind.attr("__name__")).cast<std::string>() + ": " +
                         py::str(value).cast<std::string>());
        c.state->close();
      });
}

uint32_t flag_of_order(const std::optional<std::string>& order) {
  if (!order) return 0;
  if (*order == "canonical") return TUTTI_COMM_CANONICAL_ORDER;
  if (*order == "exact") return TUTTI_COMM_EXACT_SUMS;
  throw py::value_error("Communicator: order is \"" + *order + "\": expected \"canonical\", \"exact\" or None");
}

constexpr const char* communicator_help =
    "A communicator. Collective: each rank makes it with the same arguments, its rank aside.\n\n"
    "rendezvous       where the ranks meet: None for the launcher's environment (tuttirun, torchrun, mpirun, srun),\n"
    "                 \"tcp://HOST:PORT\", an id of tutti.unique_id(), \"file:/FOLDER\", \"local:NAME\" for threads of "
    "this process\n"
    "rank, nranks     None: from the environment\n"
    "timeout          seconds that an operation may stand still (600)\n"
    "connect_timeout  seconds for meeting and connecting (30)\n"
    "transports       which may be used: \"shm,tcp\"\n"
    "algorithms       \"all_reduce:ring;all_gather:^bruck\"\n"
    "order            of reductions: \"canonical\" or \"exact\" give the same bits whatever carries them; None: "
    "TUTTI_ORDER\n"
    "check_calls      compare the calls of all ranks before each collective\n"
    "progress_thread  a thread advances requests\n\n"
    "Raises ValueError for arguments that cannot be, NotFound for an unknown transport or algorithm, and Timeout or\n"
    "PeerFailed where the ranks do not meet.\n\n"
    "One thread at a time uses it. As a context manager it ends at the end of the block: for all ranks at once where "
    "an\n"
    "exception leaves the block, else when all have come there. A communicator that is open when the program ends is\n"
    "closed then.";

}  // namespace

void add_communicator(py::module_& module) {
  py::class_<tutti_host_facts>(module, "Host", "Where a rank is.")
      .def_readonly("host", &tutti_host_facts::host, "The host's number, in the order of the hosts' first ranks.")
      .def_readonly("hosts", &tutti_host_facts::hosts, "How many hosts the communicator's ranks are on.")
      .def_readonly("local_rank", &tutti_host_facts::local_rank, "The rank's number among those of its host.")
      .def_readonly("local_nranks", &tutti_host_facts::local_nranks, "How many of the ranks are on its host.")
      .def("__repr__", [](const tutti_host_facts& h) {
        return "<tutti.Host " + std::to_string(h.host) + " of " + std::to_string(h.hosts) + ", local rank " +
               std::to_string(h.local_rank) + " of " + std::to_string(h.local_nranks) + ">";
      });
  py::class_<tutti_envelope>(module, "Envelope", "A message that has come.")
      .def_readonly("peer", &tutti_envelope::peer, "The rank that sent it.")
      .def_readonly("tag", &tutti_envelope::tag, "Its tag.")
      .def_readonly("bytes", &tutti_envelope::bytes, "Its length.")
      .def("__repr__", [](const tutti_envelope& e) {
        return "<tutti.Envelope from rank " + std::to_string(e.peer) + ", tag " + std::to_string(e.tag) + ", " +
               std::to_string(e.bytes) + " bytes>";
      });
  py::class_<Communicator, Calls> type(module, "Communicator", communicator_help);
  type.def(py::init([](std::optional<std::string> rendezvous, const std::optional<Number>& rank,
                       const std::optional<Number>& nranks, std::string name, std::optional<std::string> device,
                       std::optional<std::string> transports, std::optional<std::string> algorithms,
                       std::optional<double> timeout, std::optional<double> connect_timeout,
                       const std::optional<std::string>& order, bool check_calls, bool progress_thread) {
             if (rank.has_value() != nranks.has_value())
               throw py::value_error("Communicator: rank and nranks belong together: give both or none");
             const uint32_t own = rank ? rank->rank("Communicator", "rank") : 0;
             const uint32_t all = nranks ? nranks->of_32_bits("Communicator", "nranks") : 0;
             if (nranks && all == 0) throw py::value_error("Communicator: nranks is 0: expected at least 1");
             uint32_t flags = flag_of_order(order);
             if (check_calls) flags |= TUTTI_COMM_CHECK_CALLS;
             if (progress_thread) flags |= TUTTI_COMM_PROGRESS_THREAD;
             return create({std::move(rendezvous), std::move(device), std::move(transports), std::move(algorithms),
                            std::move(name), timeout, connect_timeout, own, all, flags});
           }),
           "rendezvous"_a = py::none(), "rank"_a = py::none(), "nranks"_a = py::none(), py::kw_only(),
           "name"_a = "world", "device"_a = py::none(), "transports"_a = py::none(), "algorithms"_a = py::none(),
           "timeout"_a = py::none(), "connect_timeout"_a = py::none(), "order"_a = py::none(), "check_calls"_a = false,
           "progress_thread"_a = false);
  add_facts(type);
  add_own_operators(type);
  add_membership(type);
  module.def("unique_id", make_id,
             "An address and a secret for Communicator(rendezvous=...), to be handed to all ranks. Rank 0 is in this "
             "process.");
  module.def("_join_job", &State::join_job, "job"_a,
             "Communicators that this thread makes from now on are of the job.");
  module.def("_abort_job", &State::abort_job, "job"_a, "reason"_a, "Aborts the open communicators of a job.");
  module.def("_close_all", &State::close_all, "reason"_a = py::none(), "Closes all communicators, at the end.");
}

}  // namespace tutti::python
