// SPDX-License-Identifier: Apache-2.0
//
// An algorithm as a small C++ class that reads like its prose; make_algorithm turns it into the table of
// tutti/plugin/algorithm.h, which says what every step means.
//
//   struct Line {
//     static constexpr const char* name = "line";
//     static constexpr const char* summary = "each rank hands the data to the next";
//     static constexpr uint64_t collectives = mask({TUTTI_BROADCAST});
//     static constexpr bool takes_parameters = true;             // optional: supports() looks at q.parameters
//     static std::string supports(const Query& q);               // optional; empty: yes, else the reason why not
//     static void schedule(const Query& q, Schedule& s) {
//       Lane lane = s.lane();
//       if (q.relative() > 0) lane.recv(q.prev(), out());
//       ...
//     }
//   };
//   static const tutti_algorithm line = make_algorithm<Line>();
//
// The builder's part: LOAD is set on every step of a reducing collective that reads IN; steps are
// numbered; errors (a lane that does not exist, a refusal of the sink) end the schedule and reach the core as a status.
// FINAL is the author's: it belongs on the step that completes a result. Nothing is allocated per step.
#pragma once

#include <tutti/plugin/algorithm.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <tutti/base/bits.hpp>
#include <tutti/sdk/plugin.hpp>
#include <vector>

namespace tutti::sdk {
inline namespace TUTTI_SDK_NAMESPACE {

// The `collectives` of an algorithm, from a list of TUTTI_BROADCAST ...
constexpr uint64_t mask(std::initializer_list<uint32_t> collectives) {
  uint64_t bits = 0;
  for (const uint32_t collective : collectives) bits |= uint64_t{1} << collective;
  return bits;
}

inline std::string collective_text(uint32_t collective) {
  constexpr std::array names{"",           "broadcast",     "reduce",         "all_reduce",       "gather",
                             "all_gather", "scatter",       "reduce_scatter", "all_to_all",       "barrier",
                             "gather_v",   "all_gather_v",  "scatter_v",      "reduce_scatter_v", "all_to_all_v",
                             "scan",       "exclusive_scan"};
  return collective > 0 && collective < names.size() ? names[collective] : "collective " + std::to_string(collective);
}

// The schedule that is asked for, and this rank's place in it.
struct Query {
  uint32_t collective;
  uint32_t n;  // ranks
  uint32_t rank;
  uint32_t root;
  uint32_t lanes;  // how many may be used
  bool in_place;
  std::span<const uint32_t> host_of_rank;  // n entries, or none: all on one host
  std::string_view parameters;             // "4" of "bruck:4"; empty: none
  uint64_t block_bytes;                    // the largest of the size class; 0: not known
  const tutti_topology* topology;          // or nullptr: not known

  bool is_root() const { return rank == root; }
  bool reducing() const {
    return form() == TUTTI_REDUCE || form() == TUTTI_ALL_REDUCE || form() == TUTTI_REDUCE_SCATTER ||
           form() == TUTTI_SCAN || form() == TUTTI_EXCLUSIVE_SCAN;
  }
  // The collective whose blocks these are, equal or not: TUTTI_GATHER for TUTTI_GATHER_V. An algorithm in which blocks
  // keep their identity serves both: scratch for block b then has class class_of(b).
  uint32_t form() const {
    constexpr std::array forms{TUTTI_GATHER, TUTTI_ALL_GATHER, TUTTI_SCATTER, TUTTI_REDUCE_SCATTER, TUTTI_ALL_TO_ALL};
    return unequal() ? static_cast<uint32_t>(forms[collective - TUTTI_GATHER_V]) : collective;
  }
  bool unequal() const { return collective >= TUTTI_GATHER_V && collective <= TUTTI_ALL_TO_ALL_V; }
  // The class of block b in any collective except all_to_all_v.
  uint32_t class_of(uint32_t block) const { return unequal() ? block : 0; }
  // The rank `k` places after (before) this one, around the ring. k <= n.
  uint32_t next(uint32_t k = 1) const { return wrap(rank + k); }
  uint32_t prev(uint32_t k = 1) const { return wrap(rank + n - k); }
  // Ranks counted from the root: this one's distance, and the rank at a distance v < n.
  uint32_t relative() const { return wrap(rank + n - root); }
  uint32_t absolute(uint32_t v) const { return wrap(root + v); }
  // i mod n for i < 2n, without a division.
  uint32_t wrap(uint32_t i) const { return i < n ? i : i - n; }
};

// Rounds in which data of one rank reaches n >= 1 ranks, when their number doubles in each: ceil(log2 n).
constexpr uint32_t ceil_log2(uint32_t n) { return static_cast<uint32_t>(std::bit_width(n - 1)); }

// `chunks` consecutive chunks of a buffer from chunk `first`.
constexpr tutti_span in(uint32_t first = 0, uint32_t chunks = 1) { return {TUTTI_BUFFER_IN, first, chunks, 0}; }
constexpr tutti_span out(uint32_t first = 0, uint32_t chunks = 1) { return {TUTTI_BUFFER_OUT, first, chunks, 0}; }
constexpr tutti_span scratch(uint32_t first = 0, uint32_t chunks = 1) {
  return {TUTTI_BUFFER_SCRATCH, first, chunks, 0};
}

// The name of a step, for dependencies. A default one names none.
struct StepId {
  uint32_t lane = TUTTI_NO_DEPENDENCY;
  uint32_t step = 0;
};

// The sink refused. It has given its reason already, so this carries the status alone.
struct SinkRefused {
  tutti_status status;
};

class Lane;
class StepHandle;

// One rank's schedule on its way into a sink. Cuts, scratch and flags come before the first step.
class Schedule {
 public:
  Schedule(const Query& query, const tutti_schedule_sink& sink)
      : sink_(sink), loads_(query.reducing()), steps_(query.lanes, 0) {}
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  // Cuts each block into `pieces` equal pieces.
  void cut_equally(uint32_t pieces) {
    std::vector<tutti_cut> cuts;
    for (uint32_t p = 1; p < pieces; ++p) cuts.push_back({p, pieces});
    cut(cuts);
  }
  void cut(std::span<const tutti_cut> cuts) {
    if (!cuts.empty()) check(sink_.set_cuts(sink_.self, cuts.data(), static_cast<uint32_t>(cuts.size())));
  }
  // Scratch of `chunks` chunks, each as large as piece 0 of a block (the whole block where there are no cuts) ...
  void declare_scratch(uint32_t chunks) { declare_scratch(std::vector<tutti_extent>(chunks, tutti_extent{0, 0})); }
  // ... or with the given extents. `copies`: how many slices' scratch exist at once; 0: each slice has its own.
  void declare_scratch(std::span<const tutti_extent> chunks, uint32_t copies = 0) {
    if (!chunks.empty())
      check(sink_.set_scratch(sink_.self, chunks.data(), static_cast<uint32_t>(chunks.size()), copies));
  }
  // The schedule may be run slice by slice. Where steps have levels: slices are so many levels apart. One is enough
  // where all messages of a rank to another on a lane have the same level and slices share no scratch.
  void sliced(uint32_t levels = 0) {
    slice_levels_ = levels;
    check(sink_.set_flags(sink_.self, TUTTI_SCHEDULE_SLICED | TUTTI_SCHEDULE_SLICE_LEVELS(levels)));
  }

  uint32_t slice_levels() const { return slice_levels_; }

  Lane lane(uint32_t number = 0);

  // Hands the last step over. Called once by make_algorithm after schedule().
  void finish() {
    if (serial_ == 0 || handed_over_) return;
    handed_over_ = true;
    check(sink_.add_step(sink_.self, lane_, &step_, step_.sources > 0 ? sources_.data() : nullptr));
  }

 private:
  friend class Lane;
  friend class StepHandle;

  static void check(tutti_status status) {
    if (status != TUTTI_OK) throw SinkRefused{status};
  }
  // A step waits here until the next one starts, so that what follows its call (.final()) can still change it.
  StepHandle start(uint32_t lane, uint32_t kind, uint32_t peer, tutti_span dst, tutti_span src, bool reads_in);

  const tutti_schedule_sink& sink_;
  const bool loads_;
  std::vector<uint32_t> steps_;  // per lane, how many
  tutti_step step_{};
  std::vector<tutti_span> sources_;
  uint32_t lane_ = 0;
  bool handed_over_ = false;
  uint32_t level_ = 0, slice_levels_ = 0;
  uint64_t serial_ = 0;
};

// The step just added. Its functions must be called before the next step is added. Converts to its StepId, which stays
// valid.
class StepHandle {
 public:
  // This step writes a complete result.
  StepHandle& final() { return set(TUTTI_STEP_FINAL); }
  // RECV_REDUCE: the incoming value is the left operand.
  StepHandle& incoming_left(bool left = true) { return left ? set(TUTTI_STEP_INCOMING_LEFT) : *this; }
  // It starts only when `earlier`, a step of another lane, has completed.
  StepHandle& after(StepId earlier) {
    tutti_step& step = current();
    if (earlier.lane == id_.lane)
      throw Error(TUTTI_INTERNAL, "lane " + std::to_string(id_.lane) + " step " + std::to_string(id_.step) +
                                      ": a dependency must name a step of another lane, not step " +
                                      std::to_string(earlier.step) + " of its own; put a nop() between them");
    step.dependency_lane = earlier.lane;
    step.dependency_step = earlier.step;
    return *this;
  }
  operator StepId() const { return id_; }

 private:
  friend class Schedule;
  StepHandle(Schedule& schedule, StepId id) : schedule_(schedule), serial_(schedule.serial_), id_(id) {}
  tutti_step& current() {
    if (schedule_.serial_ != serial_)
      throw Error(TUTTI_INTERNAL, "lane " + std::to_string(id_.lane) + " step " + std::to_string(id_.step) +
                                      " was changed after the next step had been added");
    return schedule_.step_;
  }
  StepHandle& set(uint32_t flag) {
    current().flags |= flag;
    return *this;
  }

  Schedule& schedule_;
  uint64_t serial_;
  StepId id_;
};

inline StepHandle Schedule::start(uint32_t lane, uint32_t kind, uint32_t peer, tutti_span dst, tutti_span src,
                                  bool reads_in) {
  finish();
  step_.kind = kind;
  step_.flags = loads_ && reads_in ? uint32_t{TUTTI_STEP_LOAD} : 0u;
  step_.peer = peer;
  step_.sources = 0;
  step_.dependency_lane = TUTTI_NO_DEPENDENCY;
  step_.dependency_step = 0;
  step_.level = level_;
  step_.dst = dst;
  step_.src = src;
  lane_ = lane;
  handed_over_ = false;
  ++serial_;
  return StepHandle(*this, {lane, steps_[lane]++});
}

// One lane of a schedule. Copy it freely.
class Lane {
 public:
  // Steps that are added from now on, to any lane, have this level; 0, as at first: none. The ABI header says what
  // levels must satisfy: the number of a message's round does.
  Lane& level(uint32_t level) {
    schedule_->level_ = level;
    return *this;
  }
  StepHandle send(uint32_t peer, tutti_span src) { return add(TUTTI_STEP_SEND, peer, {}, src); }
  StepHandle recv(uint32_t peer, tutti_span dst) { return add(TUTTI_STEP_RECV, peer, dst, {}); }
  // dst = src op incoming.
  StepHandle recv_reduce(uint32_t peer, tutti_span dst, tutti_span src) {
    return add(TUTTI_STEP_RECV_REDUCE, peer, dst, src);
  }
  StepHandle copy(tutti_span dst, tutti_span src) { return add(TUTTI_STEP_COPY, 0, dst, src); }
  // dst = source 0 op source 1 op ...; at least two.
  StepHandle reduce(tutti_span dst, std::span<const tutti_span> sources) {
    const bool reads_in =
        std::any_of(sources.begin(), sources.end(), [](const tutti_span& s) { return s.buffer == TUTTI_BUFFER_IN; });
    StepHandle handle = schedule_->start(number_, TUTTI_STEP_REDUCE, 0, dst, {}, reads_in);
    schedule_->sources_.assign(sources.begin(), sources.end());
    schedule_->step_.sources = static_cast<uint32_t>(sources.size());
    return handle;
  }
  StepHandle reduce(tutti_span dst, std::initializer_list<tutti_span> sources) {
    return reduce(dst, std::span<const tutti_span>(sources.begin(), sources.size()));
  }
  StepHandle signal(uint32_t peer) { return add(TUTTI_STEP_SIGNAL, peer, {}, {}); }
  StepHandle wait(uint32_t peer) {
    StepHandle handle = add(TUTTI_STEP_SIGNAL, peer, {}, {});
    schedule_->step_.flags |= TUTTI_STEP_WAIT;
    return handle;
  }
  StepHandle nop() { return add(TUTTI_STEP_NOP, 0, {}, {}); }

 private:
  friend class Schedule;
  Lane(Schedule& schedule, uint32_t number) : schedule_(&schedule), number_(number) {}
  StepHandle add(uint32_t kind, uint32_t peer, tutti_span dst, tutti_span src) {
    return schedule_->start(number_, kind, peer, dst, src, src.buffer == TUTTI_BUFFER_IN);
  }

  Schedule* schedule_;
  uint32_t number_;
};

inline Lane Schedule::lane(uint32_t number) {
  if (number >= steps_.size())
    throw Error(TUTTI_INTERNAL, "lane " + std::to_string(number) + " was asked for, but only " +
                                    std::to_string(steps_.size()) + " may be used; supports() should have said so");
  return Lane(*this, number);
}

// A contiguous part of a run of chunks around the ring: `count` chunks from chunk `first`; they are the run's from its
// `offset`-th on.
struct Run {
  uint32_t first;
  uint32_t count;
  uint32_t offset;
};
// The run of `count` <= n chunks from chunk `first` < n as one part, or two where it passes the end.
class CyclicRun {
 public:
  CyclicRun(uint32_t first, uint32_t count, uint32_t n) {
    const uint32_t head = std::min(count, n - first);
    if (head > 0) parts_[size_++] = {first, head, 0};
    if (head < count) parts_[size_++] = {0, count - head, head};
  }
  const Run* begin() const { return parts_.data(); }
  const Run* end() const { return parts_.data() + size_; }
  uint32_t size() const { return size_; }
  const Run& operator[](uint32_t i) const { return parts_[i]; }

 private:
  std::array<Run, 2> parts_{};
  uint32_t size_ = 0;
};

// With one rank: adds the whole schedule, which is the same for all algorithms, and returns true. A reducing collective
// copies even in place, because LOAD and FINAL may change the values.
inline bool alone(const Query& q, Schedule& s) {
  if (q.n != 1) return false;
  Lane lane = s.lane().level(s.slice_levels() ? 1 : 0);
  if (q.collective == TUTTI_EXCLUSIVE_SCAN) return true;  // its first rank has no result
  if (q.reducing())
    lane.copy(out(), in()).final();
  else if (!q.in_place && q.collective != TUTTI_BARRIER)
    lane.copy(out(), in());
  return true;
}

template <typename T>
struct AlgorithmTable {
  static Error refusal(tutti_status status, const std::string& why) {
    return Error(status, std::string(T::name) + ": " + why);
  }

  // Checks a query for form and support, and gives it its C++ shape.
  static Query accept(const tutti_query* query) {
    if (const SizeVerdict verdict = judge_size(query); verdict.status < 0) throw refusal(verdict.status, verdict.text);
    if ((query->flags & 0xffffffffu & ~uint64_t{TUTTI_QUERY_IN_PLACE}) != 0)
      throw refusal(TUTTI_NOT_SUPPORTED,
                    "the query asks for something newer than this plugin; build it with newer headers");
    if (query->nranks == 0 || query->rank >= query->nranks || query->root >= query->nranks || query->lanes == 0)
      throw refusal(TUTTI_INVALID_ARGUMENT, "no such query: rank " + std::to_string(query->rank) + ", root " +
                                                std::to_string(query->root) + " of " + std::to_string(query->nranks) +
                                                " ranks, " + std::to_string(query->lanes) + " lanes");
    if (TUTTI_HAS(tutti_query, query, topology))
      if (const SizeVerdict verdict = judge_offer(query->topology); verdict.status < 0)
        throw refusal(verdict.status, verdict.text);
    const size_t hosts = query->host_of_rank ? query->nranks : 0;
    const Query q{query->collective,
                  query->nranks,
                  query->rank,
                  query->root,
                  query->lanes,
                  (query->flags & TUTTI_QUERY_IN_PLACE) != 0,
                  {query->host_of_rank, hosts},
                  TUTTI_HAS(tutti_query, query, parameters) ? query->parameters : "",
                  TUTTI_HAS_FIELD(tutti_query, query, block_bytes) ? query->block_bytes : 0,
                  TUTTI_HAS_FIELD(tutti_query, query, topology) ? query->topology : nullptr};
    if (!has_bit(T::collectives, q.collective))
      throw refusal(TUTTI_NOT_SUPPORTED, "has no " + collective_text(q.collective));
    if constexpr (!requires { T::takes_parameters; })
      if (!q.parameters.empty())
        throw refusal(TUTTI_INVALID_ARGUMENT,
                      "takes no parameters, but got \"" + std::string(q.parameters) + "\": name it alone");
    if constexpr (requires { T::supports(q); })
      if (const std::string why = T::supports(q); !why.empty())
        throw refusal(TUTTI_NOT_SUPPORTED, collective_text(q.collective) + ": " + why);
    return q;
  }
  static tutti_status supports(void*, const tutti_query* query) {
    return guard([&] { accept(query); });
  }
  static tutti_status schedule(void*, const tutti_query* query, const tutti_schedule_sink* sink) {
    return guard([&]() -> tutti_status {
      const Query q = accept(query);
      try {
        Schedule s(q, accepted_offer(sink));
        T::schedule(q, s);
        s.finish();
        return TUTTI_OK;
      } catch (const SinkRefused& refused) {
        return refused.status;
      }
    });
  }
};

// The ABI table of an algorithm class.
template <typename T>
constexpr tutti_algorithm make_algorithm() {
  tutti_algorithm table{};
  table.struct_size = sizeof table;
  table.name = T::name;
  table.summary = T::summary;
  table.collectives = T::collectives;
  table.supports = AlgorithmTable<T>::supports;
  table.schedule = AlgorithmTable<T>::schedule;
  return table;
}

}  // namespace TUTTI_SDK_NAMESPACE
}  // namespace tutti::sdk
