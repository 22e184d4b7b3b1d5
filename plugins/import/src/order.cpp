// SPDX-License-Identifier: Apache-2.0
#include "order.hpp"

#include <algorithm>
#include <map>
#include <queue>
#include <tuple>

namespace tutti::plans {
namespace {

class Arranger {
 public:
  explicit Arranger(const Trace& trace)
      : trace_(trace), waits_(trace.nodes.size() * 2, 0), level_(waits_.size(), first_level) {
    order_.scratch = trace.scratch;
    index_edges();
    when_.resize(waits_.size(), 0);
    for (uint32_t i = 0; i < trace.ends.size(); ++i) when_[trace.ends[i]] = i;
    done_.resize(waits_.size(), false);
    for (uint32_t node = 0; node < trace.nodes.size(); ++node) {
      offer(node);
      if (is_message(node)) senders_.push_back(node);  // in the order of their sends
    }
  }

  Order run() {
    size_t next = 0;
    for (;;) {
      while (!ready_.empty()) {
        const uint32_t node = ready_.top().second;
        ready_.pop();
        take(node);
      }
      // Messages wait for each other. The first of them whose sender can act goes into scratch.
      while (next < senders_.size() && done_[sender_end(senders_[next])]) ++next;
      size_t at = next;
      while (at < senders_.size() && (done_[sender_end(senders_[at])] || waits_[sender_end(senders_[at])] > 0)) ++at;
      if (at == senders_.size()) break;
      buffer(senders_[at]);
    }
    std::ranges::stable_sort(order_.placed, {}, &Placed::level);
    for (const auto& [way, levels] : levels_)
      order_.slice_levels = std::max(order_.slice_levels, levels.second - levels.first);
    return std::move(order_);
  }

 private:
  bool is_message(uint32_t node) const { return trace_.nodes[node].kind == Node::Kind::message; }

  void index_edges() {
    first_edge_.assign(waits_.size() + 1, 0);
    for (const auto& [before, after] : trace_.edges) ++first_edge_[before + 1], ++waits_[after];
    for (size_t i = 1; i < first_edge_.size(); ++i) first_edge_[i] += first_edge_[i - 1];
    after_.resize(trace_.edges.size());
    std::vector<size_t> at(first_edge_.begin(), first_edge_.end() - 1);
    for (const auto& [before, after] : trace_.edges) after_[at[before]++] = after;
  }

  // A node whose ends can act, or the receiver's end of a message that lies in scratch.
  void offer(uint32_t node) {
    const uint32_t last = is_message(node) ? receiver_end(node) : sender_end(node);
    if (done_[last] || waits_[last] > 0) return;
    if (is_message(node) && !done_[sender_end(node)] && waits_[sender_end(node)] > 0) return;
    ready_.push({when_[last], node});
  }

  void take(uint32_t node) {
    const bool late = is_message(node) && done_[sender_end(node)];
    if (is_message(node) && !late) {
      const uint32_t level = message_level(node, std::max(level_[sender_end(node)], level_[receiver_end(node)]));
      order_.placed.push_back({Placed::Part::whole, node, level, 0});
      finish(sender_end(node), level);
      finish(receiver_end(node), level);
      return;
    }
    const uint32_t end = late ? receiver_end(node) : sender_end(node);
    order_.placed.push_back(
        {late ? Placed::Part::late : Placed::Part::whole, node, level_[end], late ? buffers_[node] : 0});
    finish(end, level_[end]);
  }

  void buffer(uint32_t node) {
    const Node& message = trace_.nodes[node];
    std::vector<uint32_t>& scratch = order_.scratch[message.to];
    buffers_[node] = static_cast<uint32_t>(scratch.size());
    for (uint32_t i = 0; i < message.count; ++i) scratch.push_back(piece(trace_.chunks[message.first + i], message.to));
    const uint32_t level = message_level(node, level_[sender_end(node)]);
    order_.placed.push_back({Placed::Part::buffered, node, level, buffers_[node]});
    ++order_.buffered;
    level_[receiver_end(node)] = std::max(level_[receiver_end(node)], level + 1);
    finish(sender_end(node), level);
    offer(node);
  }
  // The piece that a message's chunk is: its place at the receiver has the same size.
  uint32_t piece(const Chunk& chunk, uint32_t rank) const {
    return chunk.dst.buffer == Buffer::scratch ? trace_.scratch[rank][chunk.dst.index]
                                               : chunk.dst.index % trace_.shape.pieces;
  }

  // Levels of messages of a rank to another on a channel never fall, on whichever lane the channel is. Ways that share
  // a lane are one way: channels are not told apart.
  uint32_t message_level(uint32_t node, uint32_t level) {
    const Node& message = trace_.nodes[node];
    const auto [at, fresh] = levels_.try_emplace({message.from, message.to}, std::pair{level, level});
    if (fresh) return level;
    at->second.second = std::max(at->second.second, level);
    return at->second.second;
  }

  void finish(uint32_t end, uint32_t level) {
    done_[end] = true;
    for (size_t i = first_edge_[end]; i < first_edge_[end + 1]; ++i) {
      const uint32_t after = after_[i];
      level_[after] = std::max(level_[after], level + 1);
      if (--waits_[after] == 0) offer(after / 2);
    }
  }

  const Trace& trace_;
  std::vector<uint32_t> waits_, level_;  // by end
  std::vector<uint32_t> when_;           // by end: its place in the trace
  std::vector<bool> done_;               // by end
  std::vector<size_t> first_edge_;
  std::vector<uint32_t> after_;
  std::priority_queue<std::pair<uint32_t, uint32_t>, std::vector<std::pair<uint32_t, uint32_t>>, std::greater<>> ready_;
  std::vector<uint32_t> senders_;
  std::map<uint32_t, uint32_t> buffers_;                                           // by node
  std::map<std::pair<uint32_t, uint32_t>, std::pair<uint32_t, uint32_t>> levels_;  // by way: lowest and highest
  Order order_;
};

}  // namespace

Order arrange(const Trace& trace) { return Arranger(trace).run(); }

}  // namespace tutti::plans
