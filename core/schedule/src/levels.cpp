// SPDX-License-Identifier: Apache-2.0
#include "levels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "schedule/stream_order.hpp"

namespace tutti {
namespace {

using LaneKey = std::tuple<uint32_t, uint32_t, uint32_t>;  // from, to, lane

uint32_t lane_of(const StepGraph& graph, uint32_t node) { return graph.lanes()[graph.nodes()[node].lane].number; }

// The sending steps of one slice by way, in order.
std::map<LaneKey, std::vector<uint32_t>> ways_of(const StepGraph& graph) {
  std::map<LaneKey, std::vector<uint32_t>> ways;
  for (uint32_t node = 0; node < graph.nodes().size(); ++node)
    if (const tutti_step& op = graph.nodes()[node].op(); sends(op) && graph.slice_of(node) == 0)
      ways[{graph.rank_of(node), op.peer, lane_of(graph, node)}].push_back(node);
  return ways;
}

// The steps of both forms as one graph, in which the two ends of a message, alike in both forms, are one item. An
// item's level is above those of what it waits for and not below that of the message before it on its way.
class LevelGraph {
 public:
  LevelGraph(const Problem& problem, std::vector<Schedule> (&forms)[2]) : forms_(forms) {
    for (const bool form : {false, true}) {
      problems_[form] = problem;
      problems_[form].in_place.assign(problem.nranks, form && has_form_in_place(problem.collective));
    }
    graphs_.reserve(2);
    for (const bool form : {false, true})
      graphs_.emplace_back(problems_[form], forms[form], slices_to_unroll(forms[form]));
  }

  std::string give() {
    for (StepGraph& graph : graphs_)
      if (const Finding finding = graph.match()) return finding.text;
    if (std::string error = number_items(); !error.empty()) return error;
    for (const bool form : {false, true}) add_edges(form);
    if (!find_levels()) return "the ranks would wait for each other: there is no order for streams";
    const uint32_t apart = levels_between_slices();
    for (const bool form : {false, true}) write(form, apart);
    return {};
  }

 private:
  static constexpr uint32_t none = StepGraph::none;
  struct Precedence {
    uint32_t from, to;
    uint32_t rise;
  };

  // The k-th message of a way is one item in both forms.
  std::string number_items() {
    std::map<LaneKey, std::vector<uint32_t>> items;
    for (const bool form : {false, true}) {
      const StepGraph& graph = graphs_[form];
      item_[form].assign(graph.nodes().size(), none);
      for (const auto& [way, sent] : ways_of(graph)) {
        auto& list = items[way];
        if (!form) list.resize(sent.size());
        if (list.size() != sent.size())
          return fmt::format("rank {} sends {} messages to rank {} on lane {} in place and {} out of place",
                             std::get<0>(way), sent.size(), std::get<1>(way), std::get<2>(way), list.size());
        for (size_t k = 0; k < sent.size(); ++k) {
          if (!form) list[k] = items_++;
          if (!form && k) edges_.push_back({list[k - 1], list[k], 0});
          item_[form][sent[k]] = item_[form][graph.nodes()[sent[k]].partner] = list[k];
        }
        if (!form) spans_.emplace_back(list.front(), list.back());
      }
      for (uint32_t node = 0; node < graph.nodes().size(); ++node)
        if (item_[form][node] == none && graph.slice_of(node) == 0) item_[form][node] = items_++;
    }
    return {};
  }

  void add_edges(bool form) {
    const StepGraph& graph = graphs_[form];
    for (uint32_t node = 0; node < graph.nodes().size(); ++node) {
      if (graph.slice_of(node) != 0) continue;
      graph.for_each_predecessor(node, [&](uint32_t before) {
        if (before != graph.nodes()[node].partner) edges_.push_back({item_[form][before], item_[form][node], 1});
      });
    }
  }

  // Longest paths.
  bool find_levels() {
    levels_.assign(items_, 1);
    std::vector<uint32_t> begin(items_ + 1, 0), waiting(items_, 0), by_source(edges_.size());
    for (const Precedence& edge : edges_) ++begin[edge.from + 1], ++waiting[edge.to];
    for (uint32_t i = 0; i < items_; ++i) begin[i + 1] += begin[i];
    std::vector<uint32_t> at(begin.begin(), begin.end() - 1);
    for (uint32_t i = 0; i < edges_.size(); ++i) by_source[at[edges_[i].from]++] = i;
    std::vector<uint32_t> ready;
    for (uint32_t i = 0; i < items_; ++i)
      if (!waiting[i]) ready.push_back(i);
    for (size_t done = 0; done < ready.size(); ++done)
      for (uint32_t i = begin[ready[done]]; i < begin[ready[done] + 1]; ++i) {
        const Precedence& edge = edges_[by_source[i]];
        levels_[edge.to] = std::max(levels_[edge.to], levels_[edge.from] + edge.rise);
        if (--waiting[edge.to] == 0) ready.push_back(edge.to);
      }
    return ready.size() == items_;
  }

  uint32_t levels_between_slices() const {
    if (!forms_[0].front().sliced()) return 0;
    uint32_t apart = 1;
    for (const auto& [first, last] : spans_) apart = std::max(apart, levels_[last] - levels_[first]);
    for (const bool form : {false, true}) {
      const StepGraph& graph = graphs_[form];
      for (uint32_t node = 0; node < graph.nodes().size(); ++node)
        graph.for_each_predecessor(node, [&](uint32_t before) {
          const uint32_t slices = graph.slice_of(node) - graph.slice_of(before);
          if (!slices) return;
          const uint32_t low = levels_[item_[form][first_slice(form, before)]];
          const uint32_t high = levels_[item_[form][first_slice(form, node)]];
          if (low >= high) apart = std::max(apart, (low - high) / slices + 1);
        });
    }
    return apart;
  }
  // The same step of slice 0.
  uint32_t first_slice(bool form, uint32_t node) const {
    const StepGraph& graph = graphs_[form];
    return node - graph.slice_of(node) * graph.lanes()[graph.nodes()[node].lane].length;
  }

  void write(bool form, uint32_t apart) {
    for (const StepGraph::Lane& lane : graphs_[form].lanes())
      for (uint32_t i = 0; i < lane.length; ++i)
        forms_[form][lane.rank].lanes[lane.number][i].op.level = levels_[item_[form][lane.base + i]];
    for (Schedule& schedule : forms_[form]) schedule.flags |= TUTTI_SCHEDULE_SLICE_LEVELS(apart);
  }

  std::vector<Schedule> (&forms_)[2];
  Problem problems_[2];
  std::vector<StepGraph> graphs_;
  std::vector<uint32_t> item_[2];                     // of slice 0's nodes
  std::vector<std::pair<uint32_t, uint32_t>> spans_;  // the first and the last message of each way
  uint32_t items_ = 0;
  std::vector<Precedence> edges_;
  std::vector<uint32_t> levels_;
};

}  // namespace

uint32_t slices_to_unroll(const std::vector<Schedule>& schedules) {
  uint32_t slices = 1;
  for (const Schedule& schedule : schedules)
    if (schedule.sliced() && !schedule.scratch.empty() && schedule.scratch_copies)
      slices = std::max(slices, schedule.scratch_copies + 1);
  return slices;
}

Finding check_levels(const StepGraph& graph, const std::vector<Schedule>& schedules) {
  bool any = false, all = true;
  for (const Schedule& schedule : schedules)
    for (const auto& lane : schedule.lanes)
      if (!lane.empty()) (schedule.has_levels() ? any : all) = schedule.has_levels();
  if (!any) return {};
  if (!all) return {Fault::levels, "some ranks' steps have levels, and some have none"};
  const uint64_t apart = schedules.front().slice_levels();
  const auto level = [&](uint32_t node) {
    return graph.nodes()[node].op().level + uint64_t{graph.slice_of(node)} * apart;
  };
  Finding finding;
  for (uint32_t node = 0; node < graph.nodes().size() && !finding; ++node)
    graph.for_each_predecessor(node, [&](uint32_t before) {
      const bool message = before == graph.nodes()[node].partner;
      if (finding || (message ? level(before) == level(node) : level(before) < level(node))) return;
      finding = {
          Fault::levels,
          fmt::format("{} has level {}, but {}, {}, has level {}", graph.where(node), level(node), graph.where(before),
                      message ? "the other end of its message" : "which it waits for", level(before))};
    });
  for (const auto& [way, sent] : ways_of(graph))
    for (size_t k = 0; k < sent.size() && !finding; ++k) {
      const bool wraps = k + 1 == sent.size();
      const uint32_t next = wraps ? sent.front() : sent[k + 1];
      if (wraps && !apart) continue;
      if (level(sent[k]) > level(next) + (wraps ? apart : 0))
        finding = {Fault::levels,
                   fmt::format("{} has level {}, but the message after it on its way, {}{}, has level {}",
                               graph.where(sent[k]), level(sent[k]), graph.where(next),
                               wraps ? " of the next slice" : "", level(next) + (wraps ? apart : 0))};
    }
  return finding;
}

std::string give_levels(const Problem& problem, std::vector<Schedule> (&forms)[2]) {
  return LevelGraph(problem, forms).give();
}

}  // namespace tutti
