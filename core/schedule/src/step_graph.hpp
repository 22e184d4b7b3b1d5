// SPDX-License-Identifier: Apache-2.0
//
// All ranks' steps as one graph. A node is one step of one slice; its predecessors are exactly what happens before it:
//
//   - earlier steps of its lane that touch a location that it touches, one of them writing;
//   - its dependency;
//   - for a receiving step, the step that sends to it.
//
// Other steps of a lane are not ordered, not even by a NOP or a SIGNAL between them. Every edge leads from a slice to
// the same or a later one, so a cycle always lies within one slice: more than one slice needs a look only where slices
// share scratch.
#pragma once

#include <cstdint>
#include <vector>

#include "form.hpp"
#include "rank_layout.hpp"

namespace tutti {

class StepGraph {
 public:
  static constexpr uint32_t none = 0xffffffffu;

  struct Lane {
    uint32_t rank, number;
    uint32_t base, length;  // nodes base .. base + length * slices, slice by slice
  };
  struct Node {
    const Step* step;
    uint32_t lane;            // into lanes()
    uint32_t partner = none;  // the other end of a message
    uint32_t dependency = none;
    bool after_previous = false;  // the lane's previous step is a predecessor
    const tutti_step& op() const { return step->op; }
  };

  // The schedules must have passed check_form, and must outlive the graph.
  StepGraph(const Problem& problem, const std::vector<Schedule>& schedules, uint32_t slices);

  // Joins the two ends of every message. Fault::unmatched or size_mismatch when that cannot be. Call it once, first.
  Finding match();
  // Runs the strictest executor: no buffering (both ends of a message complete together), steps of a lane start in
  // order, at most two in flight. Fault::deadlock with the cycle when it does not come to an end; else order() is set.
  Finding run();

  const Problem& problem() const { return problem_; }
  uint32_t slices() const { return slices_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<Lane>& lanes() const { return lanes_; }
  const RankLayout& layout(uint32_t rank) const { return layouts_[rank]; }
  uint32_t rank_of(uint32_t node) const { return lanes_[nodes_[node].lane].rank; }
  uint32_t slice_of(uint32_t node) const;
  std::string where(uint32_t node) const;

  // Nodes by completion in run(): a linear extension of happens-before in which a SEND directly precedes its receiving
  // step.
  const std::vector<uint32_t>& order() const { return order_; }
  uint32_t position(uint32_t node) const { return position_[node]; }

  // Calls visit(predecessor) for every direct predecessor.
  template <typename Visit>
  void for_each_predecessor(uint32_t node, Visit&& visit) const {
    for (uint32_t i = edge_begin_[node]; i < edge_begin_[node + 1]; ++i) visit(edges_[i]);
    if (nodes_[node].dependency != none) visit(nodes_[node].dependency);
    if (nodes_[node].partner != none && receives(nodes_[node].op())) visit(nodes_[node].partner);
  }

  // Calls visit(location, is_write) for every location that a step touches, reads first.
  template <typename Visit>
  void for_each_access(uint32_t node, uint32_t slice, Visit&& visit) const {
    const Step& step = *nodes_[node].step;
    const RankLayout& layout = layouts_[rank_of(node)];
    const auto touch = [&](const tutti_span& span, bool write) {
      const uint32_t first = layout.locate(span, slice);
      for (uint32_t i = 0; i < span.chunks; ++i) visit(first + i, write);
    };
    if (reads_src(step.op)) touch(step.op.src, false);
    for (const tutti_span& source : step.sources) touch(source, false);
    if (writes_dst(step.op)) touch(step.op.dst, true);
  }

 private:
  void add_nodes(const std::vector<Schedule>& schedules);
  void add_lane_edges();
  Finding check_message(uint32_t send, uint32_t receive) const;
  Finding describe_cycle(const std::vector<uint32_t>& started, const std::vector<bool>& done) const;

  const Problem& problem_;
  uint32_t slices_;
  uint32_t most_lanes_ = 0;
  std::vector<RankLayout> layouts_;
  std::vector<Lane> lanes_;
  std::vector<uint32_t> first_lane_;  // of each rank, and one past the last
  std::vector<Node> nodes_;
  std::vector<uint32_t> edge_begin_, edges_;  // predecessors within the lane
  std::vector<uint32_t> order_, position_;
};

}  // namespace tutti
