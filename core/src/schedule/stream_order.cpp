// SPDX-License-Identifier: Apache-2.0
#include "stream_order.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "step_graph.hpp"

namespace tutti {
namespace {

// One message, alike in both forms. Its fragments are numbered through over all messages.
struct Message {
  uint64_t bytes = 0;
  uint64_t first = 0;  // fragment
  uint64_t fragments = 1;
  uint64_t fragment = 0;  // bytes of all but the last
  uint64_t number = 0;    // of its first fragment on its way
};

// The graph of both forms: an item is the putting or the fetching of a fragment, or a local step of one form.
class Levels {
 public:
  Levels(const Problem& problem, const std::vector<Schedule> (&forms)[2], const StreamShape& shape) : shape_(shape) {
    for (const bool form : {false, true}) {
      problems_[form] = problem;
      problems_[form].in_place.assign(problem.nranks, form);
    }
    graphs_.reserve(2);
    for (const bool form : {false, true})
      graphs_.emplace_back(problems_[form], forms[form], static_cast<uint32_t>(shape.slices));
    bounds_ = piece_bounds(forms[0].front(), shape.count);
  }

  std::string compute() {
    for (StepGraph& graph : graphs_)
      if (const Finding finding = graph.match()) return finding.text;
    number_messages();
    if (std::string error = find_second_form(); !error.empty()) return error;
    for (const bool form : {false, true}) add_steps(form);
    add_ways();
    return run();
  }

  std::vector<StreamStep> sequence(bool form, uint32_t rank) const {
    const StepGraph& graph = graphs_[form];
    std::vector<StreamStep> steps;
    for (uint32_t node = 0; node < graph.nodes().size(); ++node) {
      if (graph.rank_of(node) != rank) continue;
      const StepGraph::Lane& lane = graph.lanes()[graph.nodes()[node].lane];
      StreamStep step;
      step.lane = lane.number;
      step.step = (node - lane.base) % lane.length;
      step.slice = graph.slice_of(node);
      if (message_of_[form][node] == none) {
        if (is_empty(form, node)) continue;
        step.level = levels_[local_item_[form][node]];
        steps.push_back(step);
        continue;
      }
      const Message& message = messages_[message_of_[form][node]];
      const bool fetching = receives(graph.nodes()[node].op());
      for (uint64_t i = 0; i < message.fragments; ++i) {
        step.level = levels_[2 * (message.first + i) + fetching];
        step.offset = i * message.fragment;
        step.bytes = std::min(message.fragment, message.bytes - step.offset);
        step.number = message.number + i;
        steps.push_back(step);
      }
    }
    std::stable_sort(steps.begin(), steps.end(),
                     [](const StreamStep& a, const StreamStep& b) { return a.level < b.level; });
    return steps;
  }

 private:
  static constexpr uint32_t none = StepGraph::none;
  using Way = std::tuple<uint32_t, uint32_t, uint32_t>;  // from, to, lane

  uint64_t bytes_of(bool form, uint32_t node, const tutti_span& span) const {
    const RankLayout& layout = graphs_[form].layout(graphs_[form].rank_of(node));
    uint64_t elements = 0;
    for (uint32_t i = 0; i < span.chunks; ++i) {
      const uint32_t piece = layout.piece(span.buffer, span.first + i);
      elements += bounds_[piece + 1] - bounds_[piece];
    }
    if (shape_.slices > 1) {
      const uint64_t slice = graphs_[form].slice_of(node);
      elements = slice_begin(elements, slice + 1, shape_.slices) - slice_begin(elements, slice, shape_.slices);
    }
    return elements * shape_.element_bytes;
  }
  bool is_empty(bool form, uint32_t node) const {
    const tutti_step& op = graphs_[form].nodes()[node].op();
    if (op.kind == TUTTI_STEP_NOP) return true;
    if (op.kind == TUTTI_STEP_SIGNAL) return false;
    return bytes_of(form, node, sends(op) ? op.src : op.dst) == 0;
  }
  Way way_of(bool form, uint32_t node) const {
    const StepGraph& graph = graphs_[form];
    const uint32_t rank = graph.rank_of(node), lane = graph.lanes()[graph.nodes()[node].lane].number;
    const tutti_step& op = graph.nodes()[node].op();
    return sends(op) ? Way{rank, op.peer, lane} : Way{op.peer, rank, lane};
  }

  // Messages of the first form, by their sending steps.
  void number_messages() {
    const StepGraph& graph = graphs_[0];
    message_of_[0].assign(graph.nodes().size(), none);
    for (uint32_t node = 0; node < graph.nodes().size(); ++node) {
      const tutti_step& op = graph.nodes()[node].op();
      if (!sends(op) || is_empty(false, node)) continue;
      const Way way = way_of(false, node);
      const StreamWay kind = shape_.way(std::get<0>(way), std::get<1>(way));
      Message message;
      message.bytes = op.kind == TUTTI_STEP_SIGNAL ? 0 : bytes_of(false, node, op.src);
      message.fragment = std::min(kind.fragment, std::max<uint64_t>(message.bytes, 1));
      message.fragments = std::max<uint64_t>(1, (message.bytes + message.fragment - 1) / message.fragment);
      message.first = fragments_;
      auto& on_way = ways_[way];
      if (!on_way.empty())
        message.number = messages_[on_way.back()].number + messages_[on_way.back()].fragments;
      fragments_ += message.fragments;
      const auto id = static_cast<uint32_t>(messages_.size());
      on_way.push_back(id);
      messages_.push_back(message);
      message_of_[0][node] = message_of_[0][graph.nodes()[node].partner] = id;
    }
  }

  // The same messages in the second form: the k-th of a way is the k-th of a way.
  std::string find_second_form() {
    const StepGraph& graph = graphs_[1];
    message_of_[1].assign(graph.nodes().size(), none);
    std::map<Way, size_t> seen;
    for (uint32_t node = 0; node < graph.nodes().size(); ++node) {
      if (!sends(graph.nodes()[node].op()) || is_empty(true, node)) continue;
      const Way way = way_of(true, node);
      const size_t k = seen[way]++;
      if (k >= ways_[way].size()) return graph.where(node) + ": it is sent in place only";
      message_of_[1][node] = message_of_[1][graph.nodes()[node].partner] = ways_[way][k];
    }
    for (const auto& [way, messages] : ways_)
      if (seen[way] != messages.size())
        return "rank " + std::to_string(std::get<0>(way)) + " sends fewer messages in place";
    return {};
  }

  void add_steps(bool form) {
    const StepGraph& graph = graphs_[form];
    if (form == false) items_ = 2 * fragments_;
    local_item_[form].assign(graph.nodes().size(), 0);
    for (uint32_t node = 0; node < graph.nodes().size(); ++node)
      if (message_of_[form][node] == none) local_item_[form][node] = items_++;
    for (uint32_t node = 0; node < graph.nodes().size(); ++node) {
      const uint64_t entry = message_of_[form][node] == none
                                 ? local_item_[form][node]
                                 : 2 * messages_[message_of_[form][node]].first + receives(graph.nodes()[node].op());
      graph.for_each_predecessor(node, [&](uint32_t before) {
        if (before == graph.nodes()[node].partner) return;
        // A message is over, at both ends, when its last fragment has been fetched.
        const uint32_t id = message_of_[form][before];
        const uint64_t exit =
            id == none ? local_item_[form][before] : 2 * (messages_[id].first + messages_[id].fragments - 1) + 1;
        if (exit != entry) edges_.emplace_back(exit, entry);
      });
    }
  }

  void add_ways() {
    for (const auto& [way, messages] : ways_) {
      const StreamWay kind = shape_.way(std::get<0>(way), std::get<1>(way));
      std::vector<uint64_t> fragments;
      for (const uint32_t id : messages)
        for (uint64_t i = 0; i < messages_[id].fragments; ++i) fragments.push_back(messages_[id].first + i);
      for (size_t k = 0; k < fragments.size(); ++k) {
        const uint64_t put = 2 * fragments[k], fetch = put + 1;
        edges_.emplace_back(put, fetch);
        if (k) edges_.emplace_back(2 * fragments[k - 1], put);
        if (k) edges_.emplace_back(2 * fragments[k - 1] + 1, fetch);
        if (kind.slots && k >= kind.slots) edges_.emplace_back(2 * fragments[k - kind.slots] + 1, put);
      }
    }
  }

  // Longest paths.
  std::string run() {
    levels_.assign(items_, 0);
    std::vector<uint64_t> begin(items_ + 1, 0), waiting(items_, 0), targets(edges_.size());
    for (const auto& [from, to] : edges_) ++begin[from + 1], ++waiting[to];
    for (uint64_t i = 0; i < items_; ++i) begin[i + 1] += begin[i];
    std::vector<uint64_t> at(begin.begin(), begin.end() - 1);
    for (const auto& [from, to] : edges_) targets[at[from]++] = to;
    std::vector<uint64_t> ready;
    for (uint64_t i = 0; i < items_; ++i)
      if (!waiting[i]) ready.push_back(i);
    uint64_t done = 0;
    for (; done < ready.size(); ++done) {
      const uint64_t item = ready[done];
      for (uint64_t i = begin[item]; i < begin[item + 1]; ++i) {
        levels_[targets[i]] = std::max(levels_[targets[i]], levels_[item] + 1);
        if (--waiting[targets[i]] == 0) ready.push_back(targets[i]);
      }
    }
    return done == items_ ? "" : "the ranks would wait for each other: there is no order for streams";
  }

  const StreamShape& shape_;
  Problem problems_[2];
  std::vector<StepGraph> graphs_;
  std::vector<uint64_t> bounds_;
  std::vector<Message> messages_;
  std::map<Way, std::vector<uint32_t>> ways_;
  std::vector<uint32_t> message_of_[2];
  std::vector<uint64_t> local_item_[2];
  uint64_t fragments_ = 0, items_ = 0;
  std::vector<std::pair<uint64_t, uint64_t>> edges_;
  std::vector<uint64_t> levels_;
};

}  // namespace

std::string order_for_stream(const Problem& problem, const std::vector<Schedule> (&forms)[2], bool in_place,
                             uint32_t rank, const StreamShape& shape, std::vector<StreamStep>* order) {
  Levels levels(problem, forms, shape);
  if (std::string error = levels.compute(); !error.empty()) return error;
  *order = levels.sequence(in_place, rank);
  return {};
}

}  // namespace tutti
