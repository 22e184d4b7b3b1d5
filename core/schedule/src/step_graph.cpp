// SPDX-License-Identifier: Apache-2.0
#include "step_graph.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti {
namespace {

// One lane's last writer of each location, and the readers since.
class LaneHistory {
 public:
  explicit LaneHistory(uint64_t locations) : stamps_(locations, 0), writers_(locations), readers_(locations) {}
  void clear() {
    ++epoch_;
    reads_.clear();
  }
  template <typename Add>
  void read(uint32_t location, Add&& add) {
    touch(location);
    if (writers_[location] != StepGraph::none) add(writers_[location]);
  }
  template <typename Add>
  void write(uint32_t location, uint32_t node, Add&& add) {
    touch(location);
    if (writers_[location] != StepGraph::none) add(writers_[location]);
    for (uint32_t i = readers_[location]; i != StepGraph::none; i = reads_[i].next)
      if (reads_[i].node != node) add(reads_[i].node);
    writers_[location] = node;
    readers_[location] = StepGraph::none;
  }
  void note_read(uint32_t location, uint32_t node) {
    touch(location);
    reads_.push_back({node, readers_[location]});
    readers_[location] = uint32_t(reads_.size() - 1);
  }

 private:
  struct LaneRead {
    uint32_t node, next;
  };
  void touch(uint32_t location) {
    if (stamps_[location] == epoch_) return;
    stamps_[location] = epoch_;
    writers_[location] = readers_[location] = StepGraph::none;
  }
  uint32_t epoch_ = 0;
  std::vector<uint32_t> stamps_, writers_, readers_;
  std::vector<LaneRead> reads_;
};

}  // namespace

StepGraph::StepGraph(const Problem& problem, const std::vector<Schedule>& schedules, uint32_t slices)
    : problem_(problem), slices_(slices) {
  layouts_.reserve(schedules.size());
  for (uint32_t rank = 0; rank < schedules.size(); ++rank)
    layouts_.emplace_back(problem, schedules[rank], rank, slices);
  add_nodes(schedules);
  add_lane_edges();
}

void StepGraph::add_nodes(const std::vector<Schedule>& schedules) {
  uint32_t total = 0;
  for (uint32_t rank = 0; rank < schedules.size(); ++rank) {
    first_lane_.push_back(uint32_t(lanes_.size()));
    const auto& lanes = schedules[rank].lanes;
    most_lanes_ = std::max(most_lanes_, uint32_t(lanes.size()));
    for (uint32_t lane = 0; lane < lanes.size(); ++lane) {
      lanes_.push_back({rank, lane, total, uint32_t(lanes[lane].size())});
      total += uint32_t(lanes[lane].size()) * slices_;
    }
  }
  first_lane_.push_back(uint32_t(lanes_.size()));
  nodes_.reserve(total);
  for (uint32_t id = 0; id < lanes_.size(); ++id) {
    const Lane& lane = lanes_[id];
    for (uint32_t slice = 0; slice < slices_; ++slice)
      for (const Step& step : schedules[lane.rank].lanes[lane.number]) {
        Node node{&step, id};
        if (step.op.dependency_lane != TUTTI_NO_DEPENDENCY) {
          const Lane& other = lanes_[first_lane_[lane.rank] + step.op.dependency_lane];
          node.dependency = other.base + slice * other.length + step.op.dependency_step;
        }
        nodes_.push_back(node);
      }
  }
}

void StepGraph::add_lane_edges() {
  uint64_t most = 0;
  for (const RankLayout& layout : layouts_) most = std::max(most, layout.locations());
  LaneHistory history(most);
  edge_begin_.reserve(nodes_.size() + 1);
  edges_.reserve(nodes_.size() * 2);
  for (const Lane& lane : lanes_) {
    history.clear();
    for (uint32_t node = lane.base; node < lane.base + lane.length * slices_; ++node) {
      const auto begin = uint32_t(edges_.size());
      edge_begin_.push_back(begin);
      const auto add = [&](uint32_t before) {
        if (edges_.size() == begin || edges_.back() != before) edges_.push_back(before);
      };
      const uint32_t slice = (node - lane.base) / lane.length;
      for_each_access(node, slice, [&](uint32_t location, bool write) {
        write ? history.write(location, node, add) : history.read(location, add);
      });
      for_each_access(node, slice, [&](uint32_t location, bool write) {
        if (!write) history.note_read(location, node);
      });
      nodes_[node].after_previous =
          node > lane.base && std::find(edges_.begin() + begin, edges_.end(), node - 1) != edges_.end();
    }
  }
  edge_begin_.push_back(uint32_t(edges_.size()));
}

uint32_t StepGraph::slice_of(uint32_t node) const {
  const Lane& lane = lanes_[nodes_[node].lane];
  return (node - lane.base) / lane.length;
}

std::string StepGraph::where(uint32_t node) const {
  const Lane& lane = lanes_[nodes_[node].lane];
  std::string text = tutti::where(lane.rank, lane.number, (node - lane.base) % lane.length, *nodes_[node].step);
  return slices_ > 1 ? text + fmt::format(" of slice {}", slice_of(node)) : text;
}

Finding StepGraph::match() {
  // The sending steps by receiver; within one they stay in the order of sender, lane and step.
  std::vector<uint32_t> begin(problem_.nranks + 1, 0);
  for (const Node& node : nodes_)
    if (sends(node.op())) ++begin[node.op().peer + 1];
  for (uint32_t rank = 0; rank < problem_.nranks; ++rank) begin[rank + 1] += begin[rank];
  std::vector<uint32_t> by_receiver(begin.back());
  std::vector<uint32_t> end(begin.begin(), begin.end() - 1);
  for (uint32_t node = 0; node < nodes_.size(); ++node)
    if (sends(nodes_[node].op())) by_receiver[end[nodes_[node].op().peer]++] = node;

  constexpr uint32_t empty = none;
  std::vector<uint32_t> heads(size_t{problem_.nranks} * most_lanes_, empty), tails(heads.size(), empty);
  std::vector<uint32_t> next(nodes_.size(), empty);
  for (uint32_t to = 0; to < problem_.nranks; ++to) {
    const auto queue_of = [&](uint32_t from, uint32_t lane) { return size_t{from} * most_lanes_ + lane; };
    for (uint32_t i = begin[to]; i < begin[to + 1]; ++i) {
      const Lane& lane = lanes_[nodes_[by_receiver[i]].lane];
      const size_t queue = queue_of(lane.rank, lane.number);
      (heads[queue] == empty ? heads[queue] : next[tails[queue]]) = by_receiver[i];
      tails[queue] = by_receiver[i];
    }
    for (uint32_t id = first_lane_[to]; id < first_lane_[to + 1]; ++id) {
      const Lane& lane = lanes_[id];
      for (uint32_t node = lane.base; node < lane.base + lane.length * slices_; ++node) {
        if (!receives(nodes_[node].op())) continue;
        uint32_t& head = heads[queue_of(nodes_[node].op().peer, lane.number)];
        if (head == empty)
          return {Fault::unmatched, fmt::format("{}: nothing is sent to it: rank {} sends fewer messages to rank {} on "
                                                "lane {} than are received there",
                                                where(node), nodes_[node].op().peer, to, lane.number)};
        if (Finding finding = check_message(head, node)) return finding;
        nodes_[node].partner = head;
        nodes_[head].partner = node;
        head = next[head];
      }
    }
    for (uint32_t i = begin[to]; i < begin[to + 1]; ++i) {
      const uint32_t node = by_receiver[i];
      if (nodes_[node].partner == none)
        return {
            Fault::unmatched,
            fmt::format(
                "{}: nobody receives it: rank {} receives fewer messages from rank {} on lane {} than are sent there",
                where(node), to, rank_of(node), lanes_[nodes_[node].lane].number)};
    }
  }
  return {};
}

Finding StepGraph::check_message(uint32_t send, uint32_t receive) const {
  const tutti_step &from = nodes_[send].op(), &to = nodes_[receive].op();
  if ((from.kind == TUTTI_STEP_SIGNAL) != (to.kind == TUTTI_STEP_SIGNAL))
    return {Fault::unmatched,
            fmt::format("{} meets {}: one is a signal and the other is not", where(send), where(receive))};
  if (from.kind == TUTTI_STEP_SIGNAL) return {};
  if (from.src.chunks != to.dst.chunks)
    return {Fault::size_mismatch, fmt::format("{} sends {} chunks, but {} takes {}", where(send), from.src.chunks,
                                              where(receive), to.dst.chunks)};
  const RankLayout &source = layouts_[rank_of(send)], &destination = layouts_[rank_of(receive)];
  for (uint32_t i = 0; i < from.src.chunks; ++i) {
    const tutti_extent sent = source.extent(from.src.buffer, from.src.first + i);
    const tutti_extent taken = destination.extent(to.dst.buffer, to.dst.first + i);
    if (!same_size(sent, taken))
      return {Fault::size_mismatch,
              fmt::format("{} sends a chunk of the size of {}, but {} takes the size of {}", where(send),
                          size_text(problem_.collective, sent), where(receive), size_text(problem_.collective, taken))};
  }
  return {};
}

Finding StepGraph::run() {
  std::vector<uint32_t> started(lanes_.size(), 0);  // steps of each lane
  std::vector<bool> done(nodes_.size(), false), queued(lanes_.size(), true);
  std::vector<uint32_t> waiting_on_me(nodes_.size(), none), next_waiting(lanes_.size(), none),
      waits_for(lanes_.size(), none);
  std::vector<uint32_t> queue;
  queue.reserve(lanes_.size() * 2);
  order_.reserve(nodes_.size());
  const auto enqueue = [&](uint32_t lane) {
    if (queued[lane]) return;
    queued[lane] = true;
    queue.push_back(lane);
  };
  const auto complete = [&](uint32_t node) {
    done[node] = true;
    order_.push_back(node);
    enqueue(nodes_[node].lane);
    for (uint32_t lane = waiting_on_me[node]; lane != none; lane = next_waiting[lane]) enqueue(lane);
    waiting_on_me[node] = none;
  };
  const auto is_started = [&](uint32_t node) {
    return node - lanes_[nodes_[node].lane].base < started[nodes_[node].lane];
  };
  const auto advance = [&](uint32_t id) {
    const Lane& lane = lanes_[id];
    while (started[id] < lane.length * slices_) {
      const uint32_t i = started[id], node = lane.base + i;
      if (i >= 2 && !done[node - 2]) return;
      if (nodes_[node].after_previous && !done[node - 1]) return;
      const uint32_t dependency = nodes_[node].dependency;
      if (dependency != none && !done[dependency]) {
        if (waits_for[id] != dependency) {  // it is in the list already when it was looked at for another reason
          waits_for[id] = dependency;
          next_waiting[id] = waiting_on_me[dependency];
          waiting_on_me[dependency] = id;
        }
        return;
      }
      ++started[id];
      const uint32_t partner = nodes_[node].partner;
      if (partner == none) {
        complete(node);
      } else if (is_started(partner)) {
        const bool sending = sends(nodes_[node].op());
        complete(sending ? node : partner);
        complete(sending ? partner : node);
      }
    }
  };
  for (uint32_t id = 0; id < lanes_.size(); ++id) queue.push_back(id);
  for (size_t head = 0; head < queue.size(); ++head) {
    queued[queue[head]] = false;
    advance(queue[head]);
    if (head > 4096 && head * 2 > queue.size()) {
      queue.erase(queue.begin(), queue.begin() + std::ptrdiff_t(head) + 1);
      head = size_t(-1);
    }
  }
  if (order_.size() < nodes_.size()) return describe_cycle(started, done);
  position_.resize(nodes_.size());
  for (uint32_t i = 0; i < order_.size(); ++i) position_[order_[i]] = i;
  return {};
}

// From a lane that stands still, follows who it waits for until a lane comes again.
Finding StepGraph::describe_cycle(const std::vector<uint32_t>& started, const std::vector<bool>& done) const {
  const auto stuck = [&](uint32_t id) { return started[id] < lanes_[id].length * slices_; };
  struct Wait {
    uint32_t lane;
    std::string text;
  };
  std::vector<Wait> path;
  std::vector<uint32_t> seen(lanes_.size(), none);
  uint32_t id = 0;
  while (id < lanes_.size() && !stuck(id)) ++id;
  if (id ==
      lanes_.size()) {  // every step was started, but a message at a lane's end is incomplete: cannot be when matched
    return {Fault::deadlock, "a message was never completed"};
  }
  while (seen[id] == none) {
    seen[id] = uint32_t(path.size());
    const uint32_t node = lanes_[id].base + started[id];
    const uint32_t dependency = nodes_[node].dependency;
    uint32_t blocker = started[id] >= 2 && !done[node - 2]              ? node - 2
                       : nodes_[node].after_previous && !done[node - 1] ? node - 1
                                                                        : dependency;
    std::string text = fmt::format("{} waits for {}", where(node), where(blocker));
    const uint32_t blocker_lane = nodes_[blocker].lane;
    if (blocker - lanes_[blocker_lane].base < started[blocker_lane]) {  // in flight: its other end has not started
      blocker = nodes_[blocker].partner;
      text += fmt::format(", which waits for {}", where(blocker));
    }
    path.push_back({id, std::move(text)});
    id = nodes_[blocker].lane;
  }
  std::string text = "the ranks wait for each other in a cycle: ";
  for (size_t i = seen[id]; i < path.size(); ++i) text += (i > seen[id] ? "; " : "") + path[i].text;
  return {Fault::deadlock, text};
}

}  // namespace tutti
