// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>

#include "simulation/simulation.hpp"

namespace tutti::simulation {
namespace {

class NearAndFar : public Network {
 public:
  explicit NearAndFar(const Problem& problem) : hosts_(problem.hosts) {
    for (const double factor : {1.0, 10.0}) {
      add_class("out", factor * 1e-6, factor * 1e-10, problem.nranks);
      add_class("in", 0, factor * 1e-10, problem.nranks);
    }
  }
  void route(uint32_t from, uint32_t to, Route* route) const final {
    const uint8_t classes = hosts_.empty() || hosts_[from] == hosts_[to] ? 0 : 2;
    *route = {};
    pass(route, classes, from);
    pass(route, uint8_t(classes + 1), to);
  }
  std::string link_name(uint32_t link) const final { return std::to_string(link); }

 private:
  const std::vector<uint32_t>& hosts_;
};

}  // namespace

StepTimes step_times(const Problem& problem, const std::vector<Schedule>& schedules, uint64_t block_bytes,
                     uint32_t element_bytes) {
  // Each step takes some time, so none ends together with one that it waits for.
  const Processor processor{1e-8, 1e-10, 1e-10, 0};
  StepTimes times;
  try {
    Schedules compiled(problem, {block_bytes, element_bytes});
    for (const Schedule& schedule : schedules) compiled.add(schedule);
    if (!run(compiled, NearAndFar(problem), processor, &times).error.empty()) times.clear();
  } catch (const std::runtime_error&) {
    return {};
  }
  return times;
}

}  // namespace tutti::simulation
