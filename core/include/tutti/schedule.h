// SPDX-License-Identifier: Apache-2.0
//
// Schedules as data (C++): build, inspect, edit, verify, cost. For tools, tests and mutants; applications do not need
// it.
//
// An algorithm emits a Schedule for one rank (tutti/plugin/algorithm.h has the meaning of every field). verify() proves
// and simulate() costs the schedules of all ranks of one operation.
#pragma once

#include <tutti/plugin/algorithm.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#pragma GCC visibility push(default)
namespace tutti {

struct Step {
  tutti_step op{};
  std::vector<tutti_span> sources;  // REDUCE only
};

struct Schedule {
  std::vector<tutti_cut> cuts;
  std::vector<tutti_extent> scratch;
  uint32_t scratch_copies = 0;
  uint64_t flags = 0;
  std::vector<std::vector<Step>> lanes;

  uint32_t pieces() const { return static_cast<uint32_t>(cuts.size()) + 1; }
  bool sliced() const { return (flags & TUTTI_SCHEDULE_SLICED) != 0; }
  uint32_t slice_levels() const { return TUTTI_SCHEDULE_SLICE_LEVELS_OF(flags); }
  // True if its steps have levels: all of them do, or none.
  bool has_levels() const {
    for (const auto& lane : lanes)
      if (!lane.empty()) return lane.front().op.level != 0;
    return false;
  }
};

// An operation as all ranks see it. `hosts` may be empty (all ranks on one host); the last three as in tutti_query.
struct Problem {
  uint32_t collective = 0;
  uint32_t nranks = 1;
  uint32_t root = 0;
  uint32_t lanes = 8;
  std::vector<uint32_t> hosts;
  std::vector<bool> in_place;  // per rank; empty: nowhere
  std::string parameters;
  uint64_t block_bytes = 0;
  std::shared_ptr<const tutti_topology> topology;
};

// Problem::hosts for hosts of so many ranks each, at least one: consecutive ranks fill host after host; cyclic ones are
// dealt out to the hosts in turn while they have room. Hosts are numbered in order of first rank either way.
std::vector<uint32_t> place_on_hosts(std::span<const uint32_t> sizes, bool cyclic);
// Ranks at random places on some hosts, for tests. Equal seeds give equal places on every machine.
std::vector<uint32_t> random_hosts(uint32_t nranks, uint64_t seed);

// Problem::topology for ranks whose hosts and NUMA nodes are known, one of each for each rank, and nothing else: no
// links, no devices, each rank a process.
std::shared_ptr<const tutti_topology> topology_of_nodes(std::span<const uint32_t> hosts,
                                                        std::span<const int32_t> nodes);

// The query of one rank of a problem. The result points into `problem`, which must outlive it.
tutti_query make_query(const Problem& problem, uint32_t rank);

// The number of blocks of IN (TUTTI_BUFFER_IN) or OUT at `rank`; 0: the buffer does not exist there.
uint32_t block_count(uint32_t collective, uint32_t nranks, uint32_t root, uint32_t rank, uint32_t buffer);
bool is_reducing(uint32_t collective);
// Scans reduce over the first ranks only. contributors: over how many, at `rank`; in other collectives nranks.
constexpr bool is_scan(uint32_t collective) { return collective == TUTTI_SCAN || collective == TUTTI_EXCLUSIVE_SCAN; }
constexpr uint32_t contributors(uint32_t collective, uint32_t nranks, uint32_t rank) {
  return collective == TUTTI_SCAN ? rank + 1 : collective == TUTTI_EXCLUSIVE_SCAN ? rank : nranks;
}
bool has_root(uint32_t collective);

// The highest number of a collective.
constexpr uint32_t last_collective = TUTTI_EXCLUSIVE_SCAN;
// Collectives with unequal blocks (v-forms). equal_form: TUTTI_GATHER of TUTTI_GATHER_V; of others the same.
constexpr bool has_unequal_blocks(uint32_t collective) {
  return collective >= TUTTI_GATHER_V && collective <= TUTTI_ALL_TO_ALL_V;
}
constexpr uint32_t equal_form(uint32_t collective) {
  switch (collective) {
    case TUTTI_GATHER_V:
      return TUTTI_GATHER;
    case TUTTI_ALL_GATHER_V:
      return TUTTI_ALL_GATHER;
    case TUTTI_SCATTER_V:
      return TUTTI_SCATTER;
    case TUTTI_REDUCE_SCATTER_V:
      return TUTTI_REDUCE_SCATTER;
    case TUTTI_ALL_TO_ALL_V:
      return TUTTI_ALL_TO_ALL;
    default:
      return collective;
  }
}
// In place, IN and OUT of a rank are one buffer: both are the same, or the one with a single block is block `rank` of
// the other. none: the collective has only the form out of place.
enum class InPlaceForm { none, same, in_is_block, out_is_block };
InPlaceForm in_place_form(uint32_t collective);
inline bool has_form_in_place(uint32_t collective) { return in_place_form(collective) != InPlaceForm::none; }
// The block of that one buffer at which IN (TUTTI_BUFFER_IN) or OUT begins at `rank`.
constexpr uint32_t block_in_place(InPlaceForm form, uint32_t rank, uint32_t buffer) {
  return (form == InPlaceForm::in_is_block && buffer == TUTTI_BUFFER_IN) ||
                 (form == InPlaceForm::out_is_block && buffer == TUTTI_BUFFER_OUT)
             ? rank
             : 0;
}
inline uint32_t block_in_place(uint32_t collective, uint32_t rank, uint32_t buffer) {
  return block_in_place(in_place_form(collective), rank, buffer);
}
// The class of block `block` of a buffer at `rank` (algorithm.h: Unequal blocks), how many there are, and whether a
// rank knows the size of a class. In equal forms 0, 1, true.
uint32_t block_class(uint32_t collective, uint32_t nranks, uint32_t rank, uint32_t buffer, uint32_t block);
uint64_t block_classes(uint32_t collective, uint32_t nranks);
bool knows_block(uint32_t collective, uint32_t nranks, uint32_t root, uint32_t rank, uint32_t block_class);
// Do all ranks know all sizes?
bool all_know_blocks(uint32_t collective);

// Asks an algorithm for one rank's schedule. Checks what it emits for form (known kinds and flags, peers, buffers,
// chunk numbers, lanes, dependencies in range, cuts increasing): a plugin is not trusted. On failure `error` says why.
tutti_status build_schedule(const tutti_algorithm& algorithm, const tutti_query& query, Schedule* schedule,
                            std::string* error);
// All ranks' schedules of a problem.
tutti_status build_schedules(const tutti_algorithm& algorithm, const Problem& problem, std::vector<Schedule>* schedules,
                             std::string* error);

// A digest of everything in a schedule. Equal schedules have equal digests, in every process and build.
uint64_t schedule_hash(const Schedule& schedule);

// The element boundaries of a block of `length` elements: pieces()+1 values from 0 to length.
std::vector<uint64_t> piece_bounds(const Schedule& schedule, uint64_t length);
// One of them, for piece < pieces(), or `length` for piece == pieces().
uint64_t piece_bound(const std::vector<tutti_cut>& cuts, uint64_t length, uint32_t piece);
// The first element of slice `slice` of `slices` of a chunk of `length` elements (slice == slices: its end).
constexpr uint64_t slice_begin(uint64_t length, uint64_t slice, uint64_t slices) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(slice) * length / slices);
}

// Pairs of adjacent steps of a lane that one pass over memory serves: RECV or RECV_REDUCE into X, then SEND of X.
// fused[lane][i] is true where step i is carried out together with step i+1. Meaning and matching are unchanged.
std::vector<std::vector<bool>> find_fusions(const Schedule& schedule);

enum class Fault {
  none,
  form,            // not a legal schedule: bounds, kinds, flags, missing buffer, unsliceable step
  unmatched,       // a SEND without its RECV or the other way round
  size_mismatch,   // extents differ between the ends of a message or of a local step
  deadlock,        // a cyclic wait
  race,            // unordered conflicting accesses (a missing dependency)
  slice_reuse,     // scratch reused in slice s+1 before slice s is done with it
  wrong_result,    // an output chunk lacks a contribution, has one twice, or has another chunk's
  overwritten,     // something that is not output was written: IN out of place
  scaling,         // not exactly one LOAD per contribution and one FINAL per output value
  in_place_order,  // the SEND/RECV sequence differs between in-place and out-of-place
  levels           // a step's level is not above those of what it waits for
};
const char* fault_name(Fault fault);

// The result of verify(). `error` is empty when everything is proved; else it names rank, lane, step, chunk.
struct Proof {
  Fault fault = Fault::none;
  std::string error;
  bool same_tree = false;   // the reduction tree of every chunk is the same on all ranks, up to commutation
  bool rank_order = false;  // every tree has its operands in rank order: legal for non-commutative operators
  // Every tree is the canonical one: over the numbers of the ranks that contribute, split at the largest power of two
  // below their count, the lower half the left operand, rounded at each node, and FINAL where its last node is reduced
  // (in an exclusive scan at a copy of that). All such schedules give the same bits.
  bool canonical = false;
  // Each result is reduced by one step, which is FINAL, from the contributions themselves, and is only moved from there
  // on: nothing is rounded in between. A result of one contribution is that, copied.
  bool flat = false;
  uint64_t steps = 0;  // of all ranks
  uint64_t messages = 0;
  uint64_t rounds = 0;  // longest chain of dependent messages
  uint32_t lanes = 0;
  uint32_t scratch_chunks = 0;   // most of any rank
  uint64_t most_in_flight = 0;   // most messages between two ranks at once, buffering as much as wanted
  double bytes_sent = 0;         // most of any rank, in units of one block
  double bytes_lower_bound = 0;  // known lower bound of the same
  bool ok() const { return fault == Fault::none; }
};

// Proves a schedule set correct for every count, data type and slice count: bounds, matching, no deadlock with no
// buffering and two steps of each lane in flight, provenance as a multiset, no races, scratch reuse over two slices,
// scaling, and levels if there are any. docs/proof.md states the limits of the proof.
Proof verify(const Problem& problem, const std::vector<Schedule>& schedules);
// Verifies the problem out of place, in place on all ranks, and in place on odd ranks only (up to four ranks: in every
// mix). All must have equal message sequences. On failure returns the first failing proof.
Proof verify_algorithm(const tutti_algorithm& algorithm, Problem problem);

// The cost of a message from one rank to another.
struct LinkCost {
  double latency = 0;             // seconds
  double per_byte = 0;            // seconds
  double gap = 0;                 // seconds for which a message keeps its two ends busy, besides its bytes
  double processor_per_byte = 0;  // seconds for which a byte keeps the processor at either end busy
};
// Resources that the ranks of a host share.
struct HostCost {
  double per_byte = 0;    // seconds, of its network: for each byte that leaves, and for each that enters
  double processors = 1;  // they share the gaps and the bytes of messages
};
struct CostModel {
  std::function<LinkCost(uint32_t from, uint32_t to)> link;
  double reduce_per_byte = 1e-10;  // seconds per byte of result
  double copy_per_byte = 1e-10;
  double per_step = 1e-8;    // dispatch
  double send_per_byte = 0;  // seconds of the rank's processor
  double receive_per_byte = 0;
  double per_message = 0;  // the same, for each message at each of its ends
  double per_peer = 0;     // the same, for each rank to or from which it has messages: what a connection costs
  // By the numbers of Problem::hosts; empty: ranks of a host share nothing.
  std::vector<HostCost> hosts;
  double per_switch = 0;  // seconds of a switch to another rank, where ranks outnumber processors
  // Seconds after which a message with a gap finds its receiver on a processor, within a host that has half as many
  // processors as ranks. It grows with the ranks that wait for each.
  double per_wake = 0;
  // Seconds until a rank that waits for a message without a gap has its turn, where ranks of a host outnumber its
  // processors: for each of such messages that come one after the other. None where no rank waits for itself by way of
  // others.
  double per_turn = 0;
  // Messages with a gap are buffered: so many calls go on side by side where no rank waits for itself by way of others.
  double calls_in_a_row = 1;
};
// Predicted seconds of an operation of `block_bytes` bytes per block and `element_bytes` bytes per element in `slices`
// slices: list simulation of one and of two slices, extrapolated linearly. A message starts when both ends are ready. A
// rank's sends share its egress and its receives its ingress, in the order in which they become ready; messages between
// hosts also share the hosts' networks, and those with a gap their processors. Reductions and copies share the rank. A
// RECV_REDUCE reduces the first bytes while the rest arrives. A lane issues its steps in order, `per_step` apart. The
// result is at least the work of the busiest rank, and of the busiest host's processors. Where these are fewer than its
// ranks, they also switch: once for each round of messages that a rank receives, as often as messages have to come one
// after the other, and messages without a gap find a rank only when it has its turn. Calls that go on side by side take
// the mean of the first and of what follows it, which takes as long as the busiest rank works, sends or takes in. The
// schedules must have been verified; the result is infinity if they do not match. A result above `limit` is only known
// to be above it, and costs less time.
double simulate(const Problem& problem, const std::vector<Schedule>& schedules, uint64_t block_bytes,
                uint32_t element_bytes, uint64_t slices, const CostModel& model,
                double limit = std::numeric_limits<double>::infinity());
// The seconds for which a rank's processor works, which bound the result from below.
double work_of_rank(const Problem& problem, uint32_t rank, const Schedule& schedule, uint64_t block_bytes,
                    uint32_t element_bytes, const CostModel& model);

// Names: "all_reduce", "float32", "sum", "recv_reduce". From text: 0 when unknown; of a collective also its name
// without underscores, as MPI and NCCL write it ("allreduce"), "bcast" and "exscan".
const char* collective_name(uint32_t collective);
const char* dtype_name(uint32_t dtype);
const char* op_name(uint32_t op);
const char* step_name(uint32_t kind);
uint32_t collective_from_name(const std::string& name);
uint32_t dtype_from_name(const std::string& name);
uint32_t op_from_name(const std::string& name);
uint32_t dtype_bytes(uint32_t dtype);  // 0 when unknown
// The alignment of an element, that of its parts: 4 for complex64 and float32_int32. 0 when unknown.
uint32_t dtype_alignment(uint32_t dtype);
// Every data type, and every operator, that calls take, in the order of their numbers.
const std::vector<uint32_t>& all_dtypes();
const std::vector<uint32_t>& all_ops();
// The table of docs/types.md: is the operator defined for elements of the type?
bool op_is_defined(uint32_t op, uint32_t dtype);
// "sum, prod, avg": the operators of a type. "float32, float64": the types of an operator.
std::string ops_of_dtype(uint32_t dtype);
std::string dtypes_of_op(uint32_t op);

// One line for a step: "recv_reduce from 3: out[2] = in[2] + incoming".
std::string describe(const Step& step);

}  // namespace tutti
#pragma GCC visibility pop
