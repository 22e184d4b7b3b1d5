// SPDX-License-Identifier: Apache-2.0
#include "resources.hpp"

#include <algorithm>

namespace tutti {
namespace {

// Rounds: a message's round is one more than the longest chain of messages that must be over before it is sent. A rank
// that sends as early as it may has a message in flight from its round to the round in which it can be received.
class Rounds {
 public:
  explicit Rounds(const StepGraph& graph) : graph_(graph), depth_(graph.nodes().size(), 0) {
    for (const uint32_t node : graph.order()) {
      uint64_t depth = 0;
      graph.for_each_predecessor(node, [&](uint32_t before) { depth = std::max<uint64_t>(depth, depth_[before]); });
      const StepGraph::Node& step = graph.nodes()[node];
      if (step.partner != StepGraph::none && receives(step.op()))
        depth = std::max<uint64_t>(depth, depth_[step.partner] + 1);
      depth_[node] = uint32_t(depth);
      longest_ = std::max(longest_, depth);
    }
  }
  uint64_t longest() const { return longest_; }

  uint64_t most_in_flight() const {
    struct Message {
      uint64_t pair;
      uint32_t sent, received;
    };
    std::vector<Message> messages;
    for (uint32_t node = 0; node < graph_.nodes().size(); ++node) {
      const StepGraph::Node& step = graph_.nodes()[node];
      if (step.partner == StepGraph::none || !sends(step.op()) || graph_.slice_of(node) != 0) continue;
      messages.push_back({uint64_t{graph_.rank_of(node)} << 32 | step.op().peer, depth_[node], depth_[step.partner]});
    }
    std::stable_sort(messages.begin(), messages.end(),
                     [](const Message& a, const Message& b) { return a.pair < b.pair; });
    std::vector<int64_t> change(longest_ + 2, 0);
    uint64_t most = 0;
    for (size_t begin = 0; begin < messages.size();) {
      size_t end = begin;
      uint32_t first = messages[begin].sent, last = messages[begin].received;
      for (; end < messages.size() && messages[end].pair == messages[begin].pair; ++end) {
        ++change[messages[end].sent];
        --change[messages[end].received];
        first = std::min(first, messages[end].sent);
        last = std::max(last, messages[end].received);
      }
      int64_t now = 0;
      for (uint32_t round = first; round <= last; ++round) {
        now += change[round];
        most = std::max(most, uint64_t(std::max<int64_t>(now, 0)));
        change[round] = 0;
      }
      begin = end;
    }
    return most;
  }

 private:
  const StepGraph& graph_;
  std::vector<uint32_t> depth_;
  uint64_t longest_ = 0;
};

double most_bytes_sent(const StepGraph& graph, const std::vector<Schedule>& schedules) {
  const Schedule& any = schedules[0];
  std::vector<double> piece;
  double before = 0;
  for (const tutti_cut& cut : any.cuts) {
    const double at = double(cut.p) / cut.q;
    piece.push_back(at - before);
    before = at;
  }
  piece.push_back(1 - before);
  double most = 0;
  for (uint32_t rank = 0; rank < schedules.size(); ++rank) {
    double sent = 0;
    for (const auto& lane : schedules[rank].lanes)
      for (const Step& step : lane)
        if (step.op.kind == TUTTI_STEP_SEND)
          for (uint32_t i = 0; i < step.op.src.chunks; ++i)
            sent += piece[graph.layout(rank).piece(step.op.src.buffer, step.op.src.first + i)];
    most = std::max(most, sent);
  }
  return most;
}

}  // namespace

double least_bytes_sent(uint32_t collective, uint32_t nranks) {
  if (nranks < 2) return 0;
  switch (equal_form(collective)) {  // in v-forms for blocks that happen to be equal
    case TUTTI_ALL_REDUCE:
      return 2.0 * (nranks - 1) / nranks;
    case TUTTI_REDUCE_SCATTER:
    case TUTTI_ALL_GATHER:
    case TUTTI_ALL_TO_ALL:
    case TUTTI_SCATTER:
      return nranks - 1;
    // The busiest sender: the root hands out one block, or each other rank gives one; in scans all but the last.
    case TUTTI_BROADCAST:
    case TUTTI_REDUCE:
    case TUTTI_GATHER:
    case TUTTI_SCAN:
    case TUTTI_EXCLUSIVE_SCAN:
      return 1;
    default:
      return 0;
  }
}

void count_resources(const StepGraph& graph, const std::vector<Schedule>& schedules, Proof* proof) {
  for (const Schedule& schedule : schedules) {
    uint32_t lanes = 0;
    for (const auto& lane : schedule.lanes) {
      lanes += !lane.empty();
      proof->steps += lane.size();
      for (const Step& step : lane) proof->messages += sends(step.op);
    }
    proof->lanes = std::max(proof->lanes, lanes);
    proof->scratch_chunks = std::max(proof->scratch_chunks, uint32_t(schedule.scratch.size()));
  }
  const Rounds rounds(graph);
  proof->rounds = rounds.longest();
  proof->most_in_flight = rounds.most_in_flight();
  proof->bytes_sent = most_bytes_sent(graph, schedules);
  proof->bytes_lower_bound = least_bytes_sent(graph.problem().collective, graph.problem().nranks);
}

}  // namespace tutti
