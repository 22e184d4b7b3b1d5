// SPDX-License-Identifier: Apache-2.0
#include "knomial.hpp"

namespace tutti::algorithms {
namespace {
using namespace tutti::sdk;

struct Node {
  Node(const Query& query, uint32_t to_base) : q(query), base(to_base), v(query.relative()) {
    for (unit = 1; unit < q.n && (v == 0 || v / unit % base == 0); unit *= base) ++digit;
    for (uint64_t u = 1; u < q.n; u *= base) {
      depth += v / u % base != 0;
      ++digits;
    }
  }
  bool is_root() const { return v == 0; }
  uint32_t parent() const { return q.absolute(static_cast<uint32_t>(v - v / unit % base * unit)); }
  // The level of the message up from the node whose lowest digit is number i and is j: after those of lower digits.
  uint32_t up(uint32_t i, uint64_t j) const { return i * (base - 1) + static_cast<uint32_t>(j); }
  uint32_t levels_up() const { return digits * (base - 1); }
  // Calls visit(rank, digit, value) for the children, the nearest first.
  template <typename Visit>
  void for_each_child(Visit&& visit) const {
    uint32_t i = 0;
    for (uint64_t u = 1; u < unit && u < q.n; u *= base, ++i)
      for (uint64_t j = 1; j < base && v + j * u < q.n; ++j) visit(q.absolute(static_cast<uint32_t>(v + j * u)), i, j);
  }

  const Query& q;
  const uint64_t base;
  const uint64_t v;
  uint64_t unit = 1;   // base^digit
  uint32_t digit = 0;  // the number of the lowest digit that is not 0; at the root: of digits
  uint32_t digits = 0, depth = 0;
};

StepId collect(Lane lane, const Node& node, tutti_span sum) {
  uint32_t children = 0, heard = 0;
  node.for_each_child([&](uint32_t, uint32_t, uint64_t) { ++children; });
  tutti_span from = in();
  StepId last;
  node.for_each_child([&](uint32_t rank, uint32_t i, uint64_t j) {
    auto step = lane.level(node.up(i, j)).recv_reduce(rank, sum, from);
    if (++heard == children && node.is_root()) step.final();
    from = sum;
    last = step;
  });
  if (!node.is_root()) last = lane.level(node.up(node.digit, node.v / node.unit % node.base)).send(node.parent(), from);
  return last;
}

void hand_out(Lane lane, const Node& node, tutti_span block, uint32_t below, StepId ready) {
  if (!node.is_root()) lane.level(below + node.depth).recv(node.parent(), block);
  std::vector<uint32_t> children;
  node.for_each_child([&](uint32_t rank, uint32_t, uint64_t) { children.push_back(rank); });
  lane.level(below + node.depth + 1);
  for (size_t i = children.size(); i-- > 0;) lane.send(children[i], block).after(ready);  // the largest subtree first
}

}  // namespace

void knomial_tree(const Query& q, Schedule& s, uint32_t base) {
  const Node node(q, base);
  switch (q.collective) {
    case TUTTI_BROADCAST: {
      Lane lane = s.lane();
      hand_out(lane, node, node.is_root() ? in() : out(), 0, {});
      if (node.is_root() && !q.in_place) lane.copy(out(), in());
      return;
    }
    case TUTTI_REDUCE:
      if (!node.is_root()) s.declare_scratch(1);
      collect(s.lane(), node, node.is_root() ? out() : scratch());
      return;
    case TUTTI_ALL_REDUCE: {
      const StepId done = collect(s.lane(0), node, out());
      return hand_out(s.lane(1), node, out(), node.levels_up(), node.is_root() ? done : StepId());
    }
  }
}

}  // namespace tutti::algorithms
