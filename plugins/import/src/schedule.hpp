// SPDX-License-Identifier: Apache-2.0
//
// A plan that was proved, as schedules of its ranks.
#pragma once

#include <cstdint>
#include <string>
#include <tutti/sdk/algorithm.hpp>
#include <vector>

#include "order.hpp"
#include "plan.hpp"
#include "trace.hpp"

namespace tutti::plans {

class Scheduled {
 public:
  // Proves the plan. Throws an Error with the place of what is wrong.
  explicit Scheduled(const Plan& plan);

  const std::string& name() const { return name_; }
  uint32_t collective() const { return trace_.shape.collective; }
  // The most that a query may allow and the schedule use.
  uint32_t lanes() const { return lanes_; }

  // Why it does not serve a query; empty: it does.
  std::string refusal(const sdk::Query& query) const;
  void schedule(const sdk::Query& query, sdk::Schedule& schedule) const;

 private:
  // A step with what it must follow in other lanes.
  struct Step {
    uint32_t kind = 0;
    uint32_t peer = 0;
    uint32_t lane = 0;
    uint32_t level = 0;
    tutti_span dst{}, src{};
    std::vector<tutti_span> sources;
    bool final = false, left = false;
    std::vector<uint32_t> follows;  // steps of this rank in other lanes
  };
  // Which places of a rank a query sees.
  struct View {
    uint32_t rank;
    bool in_place;
  };

  void choose_order(const Plan& plan);
  void choose_lanes();
  std::vector<Step> steps(const View& view) const;
  void add(const View& view, const Placed& placed, std::vector<Step>& steps) const;
  void add_group(const View& view, const Placed& placed, uint32_t first, uint32_t count,
                 std::vector<Step>& steps) const;
  uint32_t group_end(const Node& node, uint32_t first) const;
  tutti_span span(const View& view, Place place, uint32_t count) const;
  bool copies_input(const View& view) const;
  void find_conflicts(const View& view, std::vector<Step>& steps) const;
  uint64_t key(const View& view, const tutti_span& span, uint32_t i) const;
  std::vector<tutti_extent> extents(const View& view) const;

  std::string name_, file_;
  uint64_t least_bytes_, most_bytes_;
  Trace trace_;
  Order order_;
  // In place the input is first copied to scratch, from where it is read: the plan overwrites what it reads later.
  bool copies_input_ = false;
  uint32_t lanes_ = 1;
  std::vector<uint32_t> lane_of_channel_;
  std::vector<std::vector<uint32_t>> placed_of_rank_;  // in Order::placed
};

}  // namespace tutti::plans
