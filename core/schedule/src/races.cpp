// SPDX-License-Identifier: Apache-2.0
//
// Goes through the steps in one legal order and asks, at each access, whether it comes after the accesses before it by
// happens-before and not by luck. It is enough to ask about the last write and the reads since: the earlier ones were
// asked about then, and happens-before is transitive. Conflicting steps of one lane are ordered by definition.
#include "races.hpp"

#include <fmt/format.h>

namespace tutti {
namespace {

// Is `first` before `second` by happens-before wherever chunks of `extent` are not empty? Searches backwards from
// `second`, never past `first` in the order of execution. A message of other extents orders nothing here: where those
// are empty it is dropped.
class HappensBefore {
 public:
  explicit HappensBefore(const StepGraph& graph) : graph_(graph), seen_(graph.nodes().size(), 0) {}
  bool operator()(uint32_t first, uint32_t second, const tutti_extent& extent) {
    ++search_;
    const uint32_t bound = graph_.position(first);
    stack_.assign(1, second);
    bool found = false;
    while (!stack_.empty() && !found) {
      const uint32_t node = stack_.back();
      stack_.pop_back();
      graph_.for_each_predecessor(node, [&](uint32_t before) {
        if (before == graph_.nodes()[node].partner && !carries(before, extent)) return;
        if (before == first) found = true;
        if (seen_[before] == search_ || graph_.position(before) <= bound) return;
        seen_[before] = search_;
        stack_.push_back(before);
      });
    }
    return found;
  }

 private:
  bool carries(uint32_t send, const tutti_extent& extent) const {
    const tutti_step& op = graph_.nodes()[send].op();
    if (op.kind == TUTTI_STEP_SIGNAL) return true;
    for (uint32_t i = 0; i < op.src.chunks; ++i)
      if (same_size(graph_.layout(graph_.rank_of(send)).extent(op.src.buffer, op.src.first + i), extent)) return true;
    return false;
  }

  const StepGraph& graph_;
  std::vector<uint32_t> seen_;
  std::vector<uint32_t> stack_;
  uint32_t search_ = 0;
};

class RaceSearch {
 public:
  explicit RaceSearch(const StepGraph& graph) : graph_(graph), happens_before_(graph) {}

  // Steps of one rank, in the order of execution.
  Finding run(uint32_t rank, const std::vector<uint32_t>& steps) {
    writers_.assign(graph_.layout(rank).locations(), StepGraph::none);
    readers_.assign(writers_.size(), StepGraph::none);
    reads_.clear();
    for (const uint32_t node : steps) {
      Finding finding;
      graph_.for_each_access(node, graph_.slice_of(node), [&](uint32_t location, bool write) {
        if (!finding) finding = access(rank, node, location, write);
      });
      if (finding) return finding;
    }
    return {};
  }

 private:
  struct ReadAccess {
    uint32_t node, next;
  };

  Finding access(uint32_t rank, uint32_t node, uint32_t location, bool write) {
    if (Finding finding = check(rank, writers_[location], node, location, true)) return finding;
    if (!write) {
      reads_.push_back({node, readers_[location]});
      readers_[location] = uint32_t(reads_.size() - 1);
      return {};
    }
    for (uint32_t i = readers_[location]; i != StepGraph::none; i = reads_[i].next)
      if (Finding finding = check(rank, reads_[i].node, node, location, false)) return finding;
    writers_[location] = node;
    readers_[location] = StepGraph::none;
    return {};
  }

  Finding check(uint32_t rank, uint32_t before, uint32_t node, uint32_t location, bool before_writes) {
    if (before == StepGraph::none || graph_.nodes()[before].lane == graph_.nodes()[node].lane) return {};
    if (happens_before_(before, node, graph_.layout(rank).extent_at(location))) return {};
    const bool slices = graph_.slice_of(before) != graph_.slice_of(node);
    return {
        slices ? Fault::slice_reuse : Fault::race,
        fmt::format("{} {} {} while {} may still {} it{}", graph_.where(node), touches(node, location),
                    graph_.layout(rank).name(location), graph_.where(before), before_writes ? "write" : "read",
                    slices ? ": the scratch copy is reused too soon" : ": no dependency or message orders the two")};
  }

  const char* touches(uint32_t node, uint32_t location) const {
    bool writes = false;
    graph_.for_each_access(node, graph_.slice_of(node),
                           [&](uint32_t touched, bool write) { writes = writes || (write && touched == location); });
    return writes ? "writes" : "reads";
  }

  const StepGraph& graph_;
  HappensBefore happens_before_;
  std::vector<uint32_t> writers_, readers_;
  std::vector<ReadAccess> reads_;
};

}  // namespace

Finding check_races(const StepGraph& graph) {
  // With one lane on a rank, lane order is complete.
  std::vector<uint32_t> used(graph.problem().nranks, 0);
  for (const StepGraph::Lane& lane : graph.lanes())
    if (lane.length) ++used[lane.rank];
  std::vector<std::vector<uint32_t>> steps(graph.problem().nranks);
  bool any = false;
  for (const uint32_t node : graph.order())
    if (const uint32_t rank = graph.rank_of(node); used[rank] > 1) {
      steps[rank].push_back(node);
      any = true;
    }
  if (!any) return {};
  RaceSearch search(graph);
  for (uint32_t rank = 0; rank < steps.size(); ++rank)
    if (!steps[rank].empty())
      if (Finding finding = search.run(rank, steps[rank])) return finding;
  return {};
}

}  // namespace tutti
