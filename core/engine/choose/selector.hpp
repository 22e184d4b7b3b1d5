// SPDX-License-Identifier: Apache-2.0
//
// Choosing an algorithm and the number of slices for a shape, from data that is the same on every rank: the topology,
// the schedules of all ranks, and settings that were compared when the communicator was made.
#pragma once

#include <tutti/plugin/selector.h>
#include <tutti/schedule.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "engine/choose/algorithm_filter.hpp"
#include "engine/choose/native.hpp"
#include "engine/choose/shape.hpp"
#include "engine/choose/tuning.hpp"
#include "topology/topology.hpp"

namespace tutti::core {

struct Candidate {
  const tutti_algorithm* algorithm = nullptr;
  const NativeGroup* native = nullptr;  // instead of an algorithm
  uint64_t slices = 1;
  bool cut = false;                // into slices, where the schedule can be: that is faster
  double seconds = 0;              // predicted
  std::optional<double> measured;  // seconds, by the tuning file
  size_t lanes = 1;                // that its schedules use
  uint64_t steps = 0;              // of its schedules in all slices: of all ranks, or of one where there are many
  std::string reason;              // why it is no candidate
  const char* name() const { return native ? native->name() : algorithm->name; }
};

struct SelectorSettings {
  // The plugin that chooses among the candidates; nullptr: the predicted time.
  const tutti_selector* plugin = nullptr;
  // Measured times, which come before predicted ones in calls on host memory. nullptr: none. They serve where they
  // were measured with ranks that are placed and connected as these.
  std::shared_ptr<const Tuning> tuning = nullptr;
};

class Selector {
 public:
  Selector(const Topology& topology, AlgorithmFilter filter, std::vector<const tutti_algorithm*> algorithms,
           uint32_t lanes, uint64_t scratch_limit, SelectorSettings settings = {});
  Selector(const Selector&) = delete;
  Selector& operator=(const Selector&) = delete;

  // Further candidates, for calls on host memory.
  void add(const std::vector<std::unique_ptr<NativeGroup>>& natives) {
    for (const auto& native : natives) natives_.push_back(native.get());
  }

  // Shape::algorithms of a call with tutti_options.algorithms: equal for equal texts on all ranks; 0: none. A text that
  // is known costs a hash. Throws Failure, whose text begins with `call`.
  uint64_t algorithms_of_call(const char* call, const char* text);
  // The best candidate of those whose operands stand in the order that is required, as the verifier finds; `ordered`:
  // at least in rank order. It depends on the size class and on what a collective/1 says of the call, not on earlier
  // calls. Throws Failure naming every reason when there is none.
  Candidate choose(const Shape& shape, bool on_device, bool ordered = false);
  // All, best first, refused ones last. Where the shape has an order all are proved.
  std::vector<Candidate> candidates(const Shape& shape, bool on_device) const;
  // The number of the one that is chosen of candidates of which at least one is not refused. Throws Failure.
  size_t pick(const Shape& shape, bool on_device, const std::vector<Candidate>& all) const;
  // The count for which the candidates are judged: the smallest of the size class, or the call's own.
  uint64_t judged_count(const Shape& shape, bool on_device) const;
  // Why it is.
  std::string why(const Candidate& chosen) const;
  // Why the tuning file has no effect on the choice of these candidates; "" where it has one, or there is no file.
  std::string tuning_note(uint32_t collective, const std::vector<Candidate>& all) const;
  // In how many slices a schedule that is cut runs. `uncut`: chunks of at most so many bytes are not cut.
  uint64_t slices_of(const Schedule& schedule, const Shape& shape, uint64_t uncut = 0) const;
  // The query to an algorithm for a call, the same for all sizes of a class.
  Problem problem(const tutti_algorithm& algorithm, const Shape& shape) const;

 private:
  const AlgorithmFilter& filter_of(const Shape& shape) const {
    return shape.algorithms ? of_calls_.at(shape.algorithms) : filter_;
  }
  std::vector<Schedule> sampled(const tutti_algorithm& algorithm, const Problem& problem) const;
  uint64_t most_scratch(std::span<const Schedule> schedules, Shape shape, bool cut) const;
  void cost(Candidate& candidate, const Problem& problem, const std::vector<Schedule>& schedules,
            const std::vector<Schedule>& sample, const Shape& shape, bool cut, const CostModel& model) const;
  Candidate judge(const tutti_algorithm* algorithm, const Shape& shape, const CostModel& model, bool on_device) const;
  CostModel model(bool on_device) const;
  std::vector<Candidate> judge_algorithms(const Shape& shape, bool on_device) const;
  bool asks_natives(const Shape& shape, bool on_device) const;
  void add_natives(const Shape& shape, bool on_device, std::vector<Candidate>& all) const;
  void sort(const Shape& shape, bool on_device, std::vector<Candidate>& all) const;
  void prefer_measured(const Shape& shape, std::vector<Candidate>& all) const;
  void require_order(const Shape& shape, std::vector<Candidate>& all, bool look_at_all) const;

  const Topology& topology_;
  std::vector<int32_t> numa_of_rank_;
  tutti_topology topology_table_{};
  AlgorithmFilter filter_;
  std::map<uint64_t, AlgorithmFilter> of_calls_;  // by Shape::algorithms
  std::vector<const tutti_algorithm*> algorithms_;
  uint32_t lanes_;
  uint64_t scratch_limit_;
  std::vector<const NativeGroup*> natives_;
  const tutti_selector* plugin_;
  std::shared_ptr<const Tuning> tuning_;
  std::string misfit_;  // why tuning_ does not serve
  // The algorithms, best first: by collective, root, smallest count of a power-of-two size class and size of an
  // element; host or device; the shape's order; in rank order or not; algorithms of the call.
  std::map<std::tuple<uint32_t, uint32_t, uint64_t, uint32_t, bool, Order, bool, uint64_t>, std::vector<Candidate>>
      judged_;
};

}  // namespace tutti::core
