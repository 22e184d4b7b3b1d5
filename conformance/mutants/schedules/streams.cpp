// SPDX-License-Identifier: Apache-2.0
#include "mutants/schedules/streams.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace tutti::conformance {
namespace {

struct Case {
  uint32_t slices, fragments, slots;
};
constexpr Case cases[] = {{1, 1, 1}, {1, 3, 1}, {1, 3, 2}, {3, 1, 1}, {3, 3, 2}};

using Way = std::tuple<uint32_t, uint32_t, uint32_t>;            // from, to, lane
using Where = std::tuple<uint32_t, uint32_t, uint32_t, size_t>;  // rank, slice, lane, step

bool sends(const tutti_step& op) {
  return op.kind == TUTTI_STEP_SEND || (op.kind == TUTTI_STEP_SIGNAL && !(op.flags & TUTTI_STEP_WAIT));
}
bool receives(const tutti_step& op) {
  return op.kind == TUTTI_STEP_RECV || op.kind == TUTTI_STEP_RECV_REDUCE ||
         (op.kind == TUTTI_STEP_SIGNAL && (op.flags & TUTTI_STEP_WAIT));
}

// A local step, or one end of a fragment of a message.
struct Item {
  uint64_t level;
  uint64_t fragment;  // of its way and level
  bool fetches;
  bool last;  // the step is over with it
  Where where;
};

class Queue {
 public:
  Queue(const ScheduleSet& set, const Case& c) : set_(set), case_(c) {
    for (uint32_t rank = 0; rank < set.schedules.size(); ++rank) add_rank(rank);
    std::stable_sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) {
      return std::tie(a.level, a.fragment, a.fetches) < std::tie(b.level, b.fragment, b.fetches);
    });
  }

  std::string run() {
    std::map<Way, uint32_t> full;  // slots
    for (const Item& item : items_) {
      const auto& [rank, slice, lane, step] = item.where;
      const tutti_step& op = op_at(item.where);
      const auto stands = [&](const char* why) {
        return fmt::format("in {} slices of {} fragments through {} slots: rank {} lane {} step {} of slice {} {}",
                           case_.slices, case_.fragments, case_.slots, rank, lane, step, slice, why);
      };
      if (op.dependency_lane != TUTTI_NO_DEPENDENCY &&
          !done_.contains({rank, slice, op.dependency_lane, op.dependency_step}))
        return stands("comes before the step that it depends on");
      if (sends(op) && full[{rank, op.peer, lane}]++ == case_.slots) return stands("waits for ever for a free slot");
      if (receives(op) && full[{op.peer, rank, lane}]-- == 0) return stands("waits for ever for its message");
      if (item.last) done_.insert(item.where);
    }
    return {};
  }

 private:
  const tutti_step& op_at(const Where& where) const {
    const auto& [rank, slice, lane, step] = where;
    return set_.schedules[rank].lanes[lane][step].op;
  }

  void add_rank(uint32_t rank) {
    const Schedule& schedule = set_.schedules[rank];
    std::map<std::tuple<Way, uint64_t>, uint64_t> fragments;
    for (uint32_t slice = 0; slice < case_.slices; ++slice)
      for (uint32_t lane = 0; lane < schedule.lanes.size(); ++lane)
        for (size_t step = 0; step < schedule.lanes[lane].size(); ++step) {
          const tutti_step& op = schedule.lanes[lane][step].op;
          const uint64_t level = op.level + uint64_t{slice} * schedule.slice_levels();
          if (!sends(op) && !receives(op)) {
            items_.push_back({level, 0, false, true, {rank, slice, lane, step}});
            continue;
          }
          const Way way = sends(op) ? Way{rank, op.peer, lane} : Way{op.peer, rank, lane};
          const uint32_t n = op.kind == TUTTI_STEP_SIGNAL ? 1 : case_.fragments;
          for (uint32_t f = 0; f < n; ++f)
            items_.push_back({level, fragments[{way, level}]++, receives(op), f + 1 == n, {rank, slice, lane, step}});
        }
  }

  const ScheduleSet& set_;
  const Case case_;
  std::vector<Item> items_;
  std::set<Where> done_;
};

}  // namespace

std::string search_streams(const ScheduleSet& set) {
  if (std::ranges::none_of(set.schedules, [](const Schedule& schedule) { return schedule.has_levels(); })) return {};
  for (const Case& c : cases)
    if (c.slices == 1 || set.schedules[0].sliced())
      if (std::string wrong = Queue(set, c).run(); !wrong.empty()) return wrong;
  return {};
}

}  // namespace tutti::conformance
