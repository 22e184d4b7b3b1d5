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
#include <vector>

#include "engine/choose/algorithm_filter.hpp"
#include "engine/choose/judgements.hpp"
#include "engine/choose/native.hpp"
#include "engine/choose/shape.hpp"
#include "engine/choose/tuning.hpp"
#include "topology/topology.hpp"

namespace tutti::core {

struct SelectorSettings {
  // The plugin that chooses among the candidates; nullptr: the predicted time.
  const tutti_selector* plugin = nullptr;
  // Measured times, which come before predicted ones in calls on host memory. nullptr: none. They serve where they
  // were measured with ranks that are placed and connected as these.
  std::shared_ptr<const Tuning> tuning = nullptr;
  // The communicator's number: its ranks in this process judge once for all of them. 0: this one does for itself.
  uint64_t communicator = 0;
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
  std::string why(const Candidate& chosen, const std::vector<Candidate>& all) const;
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
  // Predicted times that differ by less than this factor are alike: measured ones differ by more.
  double alike_times() const { return topology_.hosts() > 1 ? 1.01 : 1.05; }
  // The schedules of an algorithm: out of place, of all ranks or of the root; and those that sampled() makes.
  struct Made {
    Problem problem;
    std::vector<Schedule> schedules;
    std::optional<std::vector<Schedule>> sample;
  };
  std::vector<Schedule> sampled(const tutti_algorithm& algorithm, const Problem& problem) const;
  uint64_t most_scratch(std::span<const Schedule> schedules, Shape shape, bool cut) const;
  void cost(Candidate& candidate, Made& made, const Shape& shape, bool cut, const CostModel& model, double limit) const;
  Candidate admit(const tutti_algorithm* algorithm, const Shape& shape, const CostModel& model) const;
  double least_time(const tutti_algorithm& algorithm, const Problem& problem, const Shape& shape,
                    const CostModel& model) const;
  Candidate judge(const tutti_algorithm* algorithm, const Shape& shape, const CostModel& model, bool on_device,
                  double limit) const;
  CostModel model(bool on_device) const;
  std::vector<Candidate> judge_algorithms(const Shape& shape, bool on_device, bool every) const;
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
  std::shared_ptr<Judgements> judgements_;
};

}  // namespace tutti::core
