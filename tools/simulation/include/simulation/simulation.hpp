// SPDX-License-Identifier: Apache-2.0
//
// Runs the schedules of all ranks in the model of a network: discrete events, without data, up to 65,536 ranks. For
// tools and for choosing; applications do not need it. docs/simulation.md has the model in words.
//
// A caller compiles the schedules, one rank at a time, and runs them:
//
//   simulation::Schedules schedules(problem, {.block_bytes = 1 << 20});
//   for (uint32_t rank = 0; rank < problem.nranks; ++rank) schedules.add(schedule_of(rank));
//   const simulation::Result result = simulation::run(schedules, network, processor);
#pragma once

#include <tutti/schedule.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#pragma GCC visibility push(default)
namespace tutti::simulation {

// Links of one kind. Their numbers are consecutive.
struct LinkClass {
  std::string name;     // "nic out"
  double latency = 0;   // seconds, of a message that passes
  double per_byte = 0;  // seconds
  uint32_t first = 0;   // the number of its first link
  uint32_t links = 0;
};

// The way of a message from one rank to another.
struct Route {
  static constexpr uint32_t most_hops = 16;
  uint32_t hops = 0;
  std::array<uint32_t, most_hops> link{};
  std::array<uint8_t, most_hops> link_class{};  // index into Network::classes()
  double latency = 0;                           // seconds, of all of it
  double per_byte = 0;                          // seconds, of the slowest link
};

// The places of ranks and the links between them.
class Network {
 public:
  virtual ~Network() = default;
  // `from` and `to` differ.
  virtual void route(uint32_t from, uint32_t to, Route* route) const = 0;
  // "host 3, nic 0"
  virtual std::string link_name(uint32_t link) const = 0;
  const std::vector<LinkClass>& classes() const { return classes_; }
  uint32_t links() const { return classes_.empty() ? 0 : classes_.back().first + classes_.back().links; }
  // The number of a new class.
  uint8_t add_class(std::string name, double latency, double per_byte, uint64_t links);

 protected:
  // Appends a link to a route.
  void pass(Route* route, uint8_t link_class, uint64_t link) const;

 private:
  std::vector<LinkClass> classes_;
};

// A built-in network. Hosts have `ranks_per_host` ranks, which reach each other over the links inside, and network
// cards that are attached to the fabric. The i-th rank of a host uses card i * nics / ranks_per_host.
struct Fabric {
  enum class Kind { single_switch, fat_tree, dragonfly };
  struct Link {
    double latency = 0;    // seconds
    double bandwidth = 0;  // bytes per second
  };
  // Switches of one level of a fat tree.
  struct Level {
    uint32_t down = 0;            // switches of the level below, or hosts, that one switch joins
    double oversubscription = 1;  // what comes from below against what goes up
    double latency = 0;           // seconds, of a message that goes up from this level
  };
  Kind kind = Kind::single_switch;
  uint32_t nranks = 0;
  uint32_t ranks_per_host = 1;
  bool cyclic = false;        // rank r is on host r mod hosts, not r / ranks_per_host
  uint32_t nics = 1;          // of a host
  Link nic;                   // one direction of a card; its latency is that of a message between neighbours
  Link inside;                // one direction of a rank, within its host
  std::vector<Level> levels;  // fat tree: from the hosts up; the last one has no links up
  // Dragonfly: every router of a group is joined to each other one, every group to each other one. Routes are minimal.
  uint32_t hosts_per_router = 0, routers_per_group = 0, links_per_pair = 1;  // global links of two groups
  Link local, global;

  uint32_t hosts() const { return (nranks + ranks_per_host - 1) / ranks_per_host; }
  uint32_t host_of(uint32_t rank) const { return cyclic ? rank % hosts() : rank / ranks_per_host; }
  uint32_t place_on_host(uint32_t rank) const { return cyclic ? rank / hosts() : rank % ranks_per_host; }
};
// The fabric's figures must make sense: numbers above 0 where something is counted, bandwidths above 0.
std::unique_ptr<Network> make_network(const Fabric& fabric);

// One rank's processor.
struct Processor {
  double message = 0;          // seconds that a message costs at each of its ends
  double reduce_per_byte = 0;  // seconds per byte of result and operand after the first
  double copy_per_byte = 0;    // seconds
  // A reduction, and the forwarding of what is received, begin when so many bytes have come; 0: when all have.
  uint64_t fragment = 0;
};

// The shape of the operation.
struct Shape {
  uint64_t block_bytes = 0;
  uint32_t element_bytes = 1;
  uint64_t slices = 1;                   // of schedules that may be cut
  uint64_t memory = uint64_t{16} << 30;  // bytes that a simulation may take
};

// A step as the simulation needs it.
struct CompactStep {
  uint32_t peer = 0;        // of a REDUCE: how many operands are added to the first
  uint32_t size = 0;        // index of its bytes
  uint32_t dependency = 0;  // 0: none, else 1 + lane * 2^21 + step
  uint8_t kind = 0;
  uint8_t flags = 0;
  uint8_t conflict = 0;  // distance to the nearest earlier step that touches the same memory; 0: none in reach
  uint8_t way = 0;       // distance to the nearest earlier message on the same way; 0: none in reach
};
static_assert(sizeof(CompactStep) == 16);

struct LaneOfRank {
  uint64_t first = 0;  // its first step, of all ranks' steps
  uint32_t length = 0;
  uint32_t rank = 0;
};

// The schedules of all ranks, compact. Throws std::runtime_error where the ranks' schedules contradict one another or
// need more memory than they may.
class Schedules {
 public:
  Schedules(const Problem& problem, const Shape& shape);
  // The next rank's schedule, which must have passed build_schedule. Blocks of v-forms count as equal.
  void add(const Schedule& schedule);

  const Problem& problem() const { return problem_; }
  uint64_t slices() const { return slices_; }
  const std::vector<CompactStep>& steps() const { return steps_; }
  const std::vector<LaneOfRank>& lanes() const { return lanes_; }
  // The first lane of a rank, and one past the last rank.
  const std::vector<uint32_t>& first_lane() const { return first_lane_; }
  const std::vector<uint64_t>& sizes() const { return sizes_; }
  bool has_dependencies(uint32_t rank) const { return has_dependencies_[rank]; }
  uint64_t bytes() const;  // of memory that a run takes, about

 private:
  class Compiler;
  void accept_shape(const Schedule& schedule);
  uint32_t size_number(uint64_t bytes);

  Problem problem_;
  Shape shape_;
  uint64_t slices_ = 1;
  bool sliced_ = false;
  std::vector<tutti_cut> cuts_;
  std::vector<uint64_t> bounds_;  // bytes of a block, by piece
  std::vector<CompactStep> steps_;
  std::vector<LaneOfRank> lanes_;
  std::vector<uint32_t> first_lane_{0};
  std::vector<bool> has_dependencies_;
  std::vector<uint64_t> sizes_;
  std::unordered_map<uint64_t, uint32_t> size_numbers_;
};

// One step on the critical path.
struct PathStep {
  uint32_t rank = 0, lane = 0, step = 0;
  uint64_t slice = 0;
  uint32_t kind = 0, peer = 0;  // TUTTI_STEP_SEND ...
  uint64_t bytes = 0;
  double begin = 0, end = 0;  // seconds: `begin` is the end of the step before it on the path
  uint8_t link_class = 0;     // of a SEND: the link that was done with it last; Result::no_class: none
  double latency = 0, transfer = 0, work = 0, waiting = 0;  // what the time between is made of
};

struct Result {
  static constexpr uint8_t no_class = 255;
  double seconds = 0;
  std::vector<double> rank_seconds;             // when each rank was done
  uint64_t steps = 0, messages = 0, bytes = 0;  // of all slices
  std::vector<uint64_t> link_bytes;             // that each link carried
  std::vector<PathStep> path;                   // from the first step on
  std::string error;  // not empty: the ranks wait for each other, or messages do not match; says where
};

// When a step ended, and for a message the step at the other end (same lane of the peer).
struct StepTime {
  double end = 0;  // seconds
  uint32_t partner_step = TUTTI_NO_DEPENDENCY;
};
using StepTimes = std::vector<std::vector<std::vector<StepTime>>>;  // [rank][lane][step]

// `times`, if given, become those of the last slice.
Result run(const Schedules& schedules, const Network& network, const Processor& processor, StepTimes* times = nullptr);

// The times of one slice in a network in which nothing but a rank's own links is shared, and other hosts are ten times
// farther than ranks of the same one. For pictures and for the order of steps. Empty where the schedules do not match.
StepTimes step_times(const Problem& problem, const std::vector<Schedule>& schedules, uint64_t block_bytes,
                     uint32_t element_bytes);

}  // namespace tutti::simulation
#pragma GCC visibility pop
