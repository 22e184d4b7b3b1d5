// SPDX-License-Identifier: Apache-2.0
//
// Algorithms written in Python: each is a plugin of this process with one algorithm/1, which asks the Python object for
// its schedule.
#include <pybind11/stl.h>
#include <tutti/schedule.h>

#include <array>
#include <memory>
#include <string>
#include <tutti/sdk/algorithm.hpp>
#include <utility>
#include <vector>

#include "lock.hpp"
#include "schedules.hpp"

namespace tutti::python {
namespace {

namespace py = pybind11;
using namespace py::literals;

// A schedule on its way, for as long as the object's schedule() runs.
struct Writer {
  sdk::Schedule* schedule;
  sdk::Schedule& live() const {
    if (!schedule) throw py::value_error("the schedule is finished: add steps within schedule() only");
    return *schedule;
  }
};

// A step, or a lane, that Python may keep for longer.
struct Step {
  std::shared_ptr<Writer> writer;
  sdk::StepHandle handle;
};
struct Lane {
  std::shared_ptr<Writer> writer;
  uint32_t number;
  template <typename Add>
  Step add(Add&& add) const {
    sdk::Lane lane = writer->live().lane(number);
    return {writer, add(lane)};
  }
};

// The Python object behind an algorithm. It lives as long as the process, as its table does.
class Written {
 public:
  explicit Written(py::object object) : object_(std::move(object)) {
    name = object_.attr("name").cast<std::string>();
    summary = object_.attr("summary").cast<std::string>();
    for (const auto& collective : object_.attr("collectives").cast<std::vector<std::string>>()) {
      const uint32_t number = collective_from_name(collective);
      if (!number) throw py::value_error("register: " + name + ": there is no collective \"" + collective + "\"");
      collectives |= uint64_t{1} << number;
    }
    if (!py::hasattr(object_, "schedule"))
      throw py::type_error("register: " + name + " has no method schedule(query, schedule)");
  }

  std::string supports(const sdk::Query& query) const {
    return in_python([&]() -> std::string {
      if (!py::hasattr(object_, "supports"))
        return query.parameters.empty() ? ""
                                        : "it takes no parameters, but got \"" + std::string(query.parameters) + "\"";
      const py::object reason = object_.attr("supports")(query);
      return reason.is_none() ? "" : reason.cast<std::string>();
    });
  }
  void schedule(const sdk::Query& query, sdk::Schedule& schedule) const {
    in_python([&] {
      const auto writer = std::make_shared<Writer>(Writer{&schedule});
      struct End {
        Writer& writer;
        ~End() { writer.schedule = nullptr; }
      } end{*writer};
      object_.attr("schedule")(query, writer);
      return std::string();
    });
  }

  std::string name, summary;
  uint64_t collectives = 0;

 private:
  // A Python exception becomes the plugin's error.
  template <typename Call>
  std::string in_python(Call&& call) const {
    const Locked locked;
    try {
      return call();
    } catch (py::error_already_set& error) {
      throw sdk::Error(TUTTI_INTERNAL, name + ": " + error.what());
    } catch (const py::cast_error& error) {
      throw sdk::Error(TUTTI_INTERNAL, name + ": supports() returned neither None nor a text: " + error.what());
    }
  }
  py::object object_;
};

// The tables of the I-th algorithm: their functions have no argument that could tell which one is meant.
template <size_t I>
struct Slot {
  static inline const Written* written = nullptr;
  static inline const char *name = nullptr, *summary = nullptr;
  static inline uint64_t collectives = 0;
  static constexpr bool takes_parameters = true;
  static std::string supports(const sdk::Query& query) { return written->supports(query); }
  static void schedule(const sdk::Query& query, sdk::Schedule& schedule) { written->schedule(query, schedule); }

  static tutti_status init(const tutti_host* host) {
    sdk::host = host;
    return TUTTI_OK;
  }
  static const void* get_interface(const char* id, uint32_t index) {
    return std::string_view(id) == TUTTI_ALGORITHM_ID && index == 0 ? &table() : nullptr;
  }
  static const tutti_algorithm& table() {
    static const tutti_algorithm made = sdk::make_algorithm<Slot>();
    return made;
  }
  static tutti_status register_as(const Written& algorithm) {
    written = &algorithm;
    name = algorithm.name.c_str();
    summary = algorithm.summary.c_str();
    collectives = algorithm.collectives;
    static const std::string id = "python-" + algorithm.name;
    static const tutti_plugin_info info{sizeof info, 0, id.c_str(), "1", "this program", "Apache-2.0", summary};
    static const tutti_plugin_entry_table entry{sizeof entry, TUTTI_ABI_MAJOR, TUTTI_ABI_MINOR, 0, &info,
                                                init,         get_interface};
    return tutti_plugin_register(&entry);
  }
};

constexpr size_t most_algorithms = 64;
using Register = tutti_status (*)(const Written&);
template <size_t... I>
constexpr std::array<Register, sizeof...(I)> make_slots(std::index_sequence<I...>) {
  return {Slot<I>::register_as...};
}
constexpr auto slots = make_slots(std::make_index_sequence<most_algorithms>());

py::object register_algorithm(py::object algorithm) {
  static std::vector<std::unique_ptr<Written>>& all = *new std::vector<std::unique_ptr<Written>>();
  const py::object object = PyType_Check(algorithm.ptr()) ? algorithm() : algorithm;
  auto written = std::make_unique<Written>(object);
  if (all.size() == slots.size())
    throw py::value_error("register: " + written->name + ": there are " + std::to_string(slots.size()) +
                          " algorithms already");
  if (find_algorithm_or_null(written->name))
    throw py::value_error("register: there is an algorithm \"" + written->name + "\" already: choose another name");
  all.push_back(std::move(written));
  if (const tutti_status status = slots[all.size() - 1](*all.back()); status < 0)
    raise(status, "register: " + all.back()->name + " is refused; TUTTI_LOG=warn tells why");
  return algorithm;
}

template <uint32_t buffer>
tutti_span span(uint32_t first, uint32_t chunks) {
  return {buffer, first, chunks, 0};
}

void add_query(py::module_& module) {
  py::class_<sdk::Query>(module, "Query", "What schedule() is asked for: the same query gives the same schedule.")
      .def_property_readonly(
          "collective", [](const sdk::Query& q) { return collective_name(q.collective); }, "\"all_reduce\".")
      .def_readonly("nranks", &sdk::Query::n, "The number of ranks.")
      .def_readonly("rank", &sdk::Query::rank, "The rank whose schedule is asked for.")
      .def_readonly("root", &sdk::Query::root, "The root's rank; 0 where there is none.")
      .def_readonly("lanes", &sdk::Query::lanes, "How many lanes may be used.")
      .def_readonly("in_place", &sdk::Query::in_place, "The input lies in the output.")
      .def_readonly("block_bytes", &sdk::Query::block_bytes,
                    "A block's bytes: the largest of the size class; 0: not known.")
      .def_property_readonly(
          "parameters", [](const sdk::Query& q) { return std::string(q.parameters); }, "\"4\" of \"bruck:4\".")
      .def_property_readonly(
          "host_of_rank",
          [](const sdk::Query& q) { return std::vector<uint32_t>(q.host_of_rank.begin(), q.host_of_rank.end()); },
          "The number of each rank's host; empty: all on one.")
      .def_property_readonly("is_root", &sdk::Query::is_root, "rank == root.")
      .def("__repr__",
           [](const sdk::Query& q) {
             return "<tutti.Query " + std::string(collective_name(q.collective)) + ", rank " + std::to_string(q.rank) +
                    " of " + std::to_string(q.n) + ">";
           })
      .def("next", &sdk::Query::next, "places"_a = 1, "The rank so many places behind this one, around the ring.")
      .def("prev", &sdk::Query::prev, "places"_a = 1, "The rank so many places before this one.")
      .def_property_readonly("relative", &sdk::Query::relative, "This rank's distance from the root.")
      .def("absolute", &sdk::Query::absolute, "distance"_a, "The rank at a distance from the root.");
}

void add_steps(py::module_& module) {
  py::class_<tutti_span>(module, "Span", "Consecutive chunks of a buffer: what IN(), OUT() and SCRATCH() make.")
      .def("__repr__", [](const tutti_span& s) {
        const char* const name = s.buffer == TUTTI_BUFFER_IN ? "IN" : s.buffer == TUTTI_BUFFER_OUT ? "OUT" : "SCRATCH";
        return std::string(name) + "(" + std::to_string(s.first) + ", " + std::to_string(s.chunks) + ")";
      });
  module.def("IN", span<TUTTI_BUFFER_IN>, "first"_a = 0, "chunks"_a = 1, "Chunks of the input.");
  module.def("OUT", span<TUTTI_BUFFER_OUT>, "first"_a = 0, "chunks"_a = 1, "Chunks of the output.");
  module.def("SCRATCH", span<TUTTI_BUFFER_SCRATCH>, "first"_a = 0, "chunks"_a = 1, "Chunks of scratch.");
  py::class_<Step>(module, "Step", "A step. Its methods are called before the next step is added.")
      .def(
          "final",
          [](Step& s) {
            s.writer->live();
            s.handle.final();
            return s;
          },
          "It writes a complete result.")
      .def(
          "incoming_left",
          [](Step& s) {
            s.writer->live();
            s.handle.incoming_left();
            return s;
          },
          "The incoming value is the left operand of a recv_reduce.")
      .def(
          "after",
          [](Step& s, const Step& earlier) {
            s.writer->live();
            s.handle.after(earlier.handle);
            return s;
          },
          "earlier"_a, "It starts when `earlier`, a step of another lane, is complete.");
  py::class_<Lane>(module, "Lane", "A sequence of steps.")
      .def(
          "level",
          [](const Lane& l, uint32_t level) {
            l.writer->live().lane(l.number).level(level);
            return l;
          },
          "level"_a, "Steps from now on have this level (docs/glossary.md): the number of a message's round.")
      .def(
          "send",
          [](const Lane& l, uint32_t peer, tutti_span src) {
            return l.add([&](sdk::Lane& lane) { return lane.send(peer, src); });
          },
          "peer"_a, "src"_a, "Sends the chunks `src` to rank `peer`.")
      .def(
          "recv",
          [](const Lane& l, uint32_t peer, tutti_span dst) {
            return l.add([&](sdk::Lane& lane) { return lane.recv(peer, dst); });
          },
          "peer"_a, "dst"_a, "Receives into the chunks `dst` from rank `peer`.")
      .def(
          "recv_reduce",
          [](const Lane& l, uint32_t peer, tutti_span dst, tutti_span src) {
            return l.add([&](sdk::Lane& lane) { return lane.recv_reduce(peer, dst, src); });
          },
          "peer"_a, "dst"_a, "src"_a, "dst = src op what comes.")
      .def(
          "copy",
          [](const Lane& l, tutti_span dst, tutti_span src) {
            return l.add([&](sdk::Lane& lane) { return lane.copy(dst, src); });
          },
          "dst"_a, "src"_a, "Copies chunks of this rank.")
      .def(
          "reduce",
          [](const Lane& l, tutti_span dst, const std::vector<tutti_span>& sources) {
            if (sources.size() < 2)
              throw py::value_error("reduce: expected at least two sources, got " + std::to_string(sources.size()));
            return l.add([&](sdk::Lane& lane) { return lane.reduce(dst, sources); });
          },
          "dst"_a, "sources"_a, "dst = source 0 op source 1 op ...")
      .def(
          "signal",
          [](const Lane& l, uint32_t peer) { return l.add([&](sdk::Lane& lane) { return lane.signal(peer); }); },
          "peer"_a, "A message without data to rank `peer`.")
      .def(
          "wait", [](const Lane& l, uint32_t peer) { return l.add([&](sdk::Lane& lane) { return lane.wait(peer); }); },
          "peer"_a, "Waits for a signal of rank `peer`.")
      .def(
          "nop", [](const Lane& l) { return l.add([&](sdk::Lane& lane) { return lane.nop(); }); },
          "Does nothing: for after().");
  py::class_<Writer, std::shared_ptr<Writer>>(module, "Schedule", "One rank's schedule, for schedule() to fill.")
      .def(
          "cut_equally", [](Writer& w, uint32_t pieces) { w.live().cut_equally(pieces); }, "pieces"_a,
          "Cuts each block into so many pieces: chunk number = block * pieces + piece. Before the first step.")
      .def(
          "declare_scratch", [](Writer& w, uint32_t chunks) { w.live().declare_scratch(chunks); }, "chunks"_a,
          "Scratch of so many chunks, each as large as piece 0. Before the first step.")
      .def(
          "sliced", [](Writer& w, uint32_t levels) { w.live().sliced(levels); }, "levels"_a = 0,
          "The schedule may run slice by slice; with levels, slices are so many levels apart. Before the first step.")
      .def(
          "lane",
          [](std::shared_ptr<Writer> w, uint32_t number) {
            w->live().lane(number);
            return Lane{std::move(w), number};
          },
          "number"_a = 0, "A lane.");
}

}  // namespace

void add_algorithms(py::module_& module) {
  add_query(module);
  add_steps(module);
  module.def("register", register_algorithm, "algorithm"_a,
             "Makes an algorithm known to this process, under its `name`; all ranks register the same ones. It is an "
             "object, or a\n"
             "class that is called without arguments, with `name`, `summary`, `collectives` (a list of names), "
             "`schedule(query,\n"
             "schedule)`, and where it cannot answer every query `supports(query)`, which returns None or the reason "
             "why not.\n"
             "Works as a decorator.");
}

}  // namespace tutti::python
