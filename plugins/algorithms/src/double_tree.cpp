// SPDX-License-Identifier: Apache-2.0
//
// double_tree: two binary trees at once, each for one half of the block (Sanders, Speck, Träff, "Two-tree algorithms
// for full bandwidth broadcast, reduction and scan", 2009).
//
// In a binary tree half of the ranks are leaves, which send nothing on the way down. Here the leaves of one tree are
// the inner nodes of the other, so each rank forwards about as much as it receives. a: latency, B: bytes per second, N:
// bytes of a block, S: slices.
//
// all_reduce   Each half is reduced to the root of its tree and broadcast from there, the ways up and down in lanes of
//              their own: with many slices 4 log2 n a + 2 N/B, twice the ring's least bytes in logarithmic time.
//              Operands are in rank order for even n.
// broadcast    The root hands each half to the root of a tree over the other ranks: 2 log2 n a + N/B.
// reduce       The same backwards.
//
// A tree over places 0 ... m-1: place v > 0 with lowest set bit b has the children v - b/2 and v + b/2, the latter
// halved again until it is below m; place 0 is the root, and its child is the largest power of two below m. Odd places
// are leaves. The second tree has its places in reverse order where m is even, and moved on by one where it is odd.
#include <tutti/sdk/algorithm.hpp>

#include "algorithms.hpp"

namespace tutti::algorithms {
namespace {
using namespace tutti::sdk;

constexpr uint32_t nobody = UINT32_MAX;

// One rank's place in one of the two trees over `m` members; `second` says in which.
class Place {
 public:
  Place(uint32_t m, uint32_t member, bool second) : m_(m), second_(second), v_(place_of(member)) {}

  bool is_root() const { return v_ == 0; }
  uint32_t parent() const { return member_at(parent_place()); }
  // The two children; nobody where there is none.
  std::array<uint32_t, 2> children() const {
    const uint32_t half = reach() / 2;
    std::array<uint32_t, 2> list{nobody, nobody};
    if (v_ > 0 && half > 0) list[0] = member_at(v_ - half);
    uint32_t right = half;
    while (right > 0 && v_ + right >= m_) right /= 2;
    if (right > 0) list[1] = member_at(v_ + right);
    return list;
  }
  // A node of height h has its children's values by level 2h, and gives its own on the way down in level
  // 2 (top - h) + 1.
  uint32_t height() const { return static_cast<uint32_t>(std::countr_zero(reach())); }
  uint32_t top() const { return ceil_log2(m_); }
  // The level of the message to the parent, and of the one from it.
  uint32_t up() const {
    const Place above(m_, parent(), second_);
    return 2 * above.height() - (above.v_ > v_ ? 1 : 0);
  }
  uint32_t down() const { return 2 * (top() - Place(m_, parent(), second_).height()) + 1; }
  static constexpr uint32_t levels(uint32_t m) { return 2 * ceil_log2(m); }

 private:
  // The second tree's order is its own inverse, or a turn.
  uint32_t place_of(uint32_t member) const {
    return !second_ ? member : m_ % 2 == 0 ? m_ - 1 - member : (member + m_ - 1) % m_;
  }
  uint32_t member_at(uint32_t place) const {
    return !second_ ? place : m_ % 2 == 0 ? m_ - 1 - place : (place + 1) % m_;
  }
  uint32_t reach() const { return v_ ? v_ & -v_ : std::bit_ceil(m_); }
  uint32_t parent_place() const {
    const uint32_t above = (v_ ^ reach()) | reach() << 1;
    return above < m_ ? above : v_ ^ reach();
  }

  uint32_t m_;
  bool second_;
  uint32_t v_;
};

// Reduces half `half` of the subtree into `sum`, and gives it to the parent. `rank_of` says which rank a member is.
// The step that did the last of it.
template <typename RankOf>
StepId climb(Lane lane, const Place& place, uint32_t half, uint32_t buffer, uint32_t self, bool ends,
             RankOf&& rank_of) {
  StepId last;
  tutti_span from = in(half);
  const tutti_span sum{buffer, half, 1, 0};
  const auto children = place.children();
  for (uint32_t i = 0; i < 2; ++i) {
    if (children[i] == nobody) continue;
    const uint32_t child = rank_of(children[i]);
    auto step = lane.level(2 * place.height() - (i == 0 ? 1 : 0)).recv_reduce(child, sum, from);
    step.incoming_left(child < self);
    if (ends && (i == 1 || children[1] == nobody)) step.final();
    from = sum;
    last = step;
  }
  if (!place.is_root()) last = lane.level(place.up()).send(rank_of(place.parent()), from);
  return last;
}

// Gets half `half` from the parent and gives it to the children, above level `below`.
template <typename RankOf>
void descend(Lane lane, const Place& place, uint32_t half, uint32_t below, StepId ready, RankOf&& rank_of) {
  if (!place.is_root()) lane.level(below + place.down()).recv(rank_of(place.parent()), out(half));
  lane.level(below + 2 * (place.top() - place.height()) + 1);
  for (const uint32_t child : place.children())
    if (child != nobody) lane.send(rank_of(child), out(half)).after(ready);
}

void all_reduce(const Query& q, Schedule& s) {
  const auto same = [](uint32_t member) { return member; };
  for (uint32_t half = 0; half < 2; ++half) {
    const Place place(q.n, q.rank, half == 1);
    const StepId done = climb(s.lane(half), place, half, TUTTI_BUFFER_OUT, q.rank, place.is_root(), same);
    descend(s.lane(2 + half), place, half, Place::levels(q.n), place.is_root() ? done : StepId(), same);
  }
}

// The members of the trees are the ranks after the root.
void broadcast(const Query& q, Schedule& s) {
  const auto rank_of = [&](uint32_t member) { return q.absolute(member + 1); };
  for (uint32_t half = 0; half < 2; ++half) {
    Lane lane = s.lane(half).level(1);
    const uint32_t top = half == 0 || q.n == 2 ? 0 : (q.n - 1) % 2 == 0 ? q.n - 2 : 1;
    if (q.is_root()) {
      lane.send(rank_of(top), in(half));
      if (!q.in_place) lane.copy(out(half), in(half));
      continue;
    }
    const Place place(q.n - 1, q.relative() - 1, half == 1);
    if (place.is_root()) lane.recv(q.root, out(half));
    descend(lane, place, half, 1, {}, rank_of);
  }
}

void reduce(const Query& q, Schedule& s) {
  const auto rank_of = [&](uint32_t member) { return q.absolute(member + 1); };
  if (!q.is_root()) s.declare_scratch(std::vector<tutti_extent>{{0, 0}, {0, 1}});
  for (uint32_t half = 0; half < 2; ++half) {
    Lane lane = s.lane(half);
    const uint32_t top = half == 0 || q.n == 2 ? 0 : (q.n - 1) % 2 == 0 ? q.n - 2 : 1;
    const uint32_t last = Place::levels(q.n - 1) + 1;
    if (q.is_root()) {
      lane.level(last).recv_reduce(rank_of(top), out(half), in(half)).final();
      continue;
    }
    const Place place(q.n - 1, q.relative() - 1, half == 1);
    climb(lane, place, half, TUTTI_BUFFER_SCRATCH, q.rank, false, rank_of);
    const bool leaf = place.children()[0] == nobody && place.children()[1] == nobody;
    if (place.is_root()) lane.level(last).send(q.root, leaf ? in(half) : scratch(half));
  }
}

struct DoubleTree {
  static constexpr const char* name = "double_tree";
  static constexpr const char* summary =
      "two binary trees, a half of the block each: logarithmic latency, full bandwidth";
  static constexpr uint64_t collectives = mask({TUTTI_BROADCAST, TUTTI_REDUCE, TUTTI_ALL_REDUCE});
  static std::string supports(const Query& q) {
    const uint32_t needed = q.collective == TUTTI_ALL_REDUCE ? 4 : 2;
    if (q.lanes >= needed) return "";
    return "needs " + std::to_string(needed) + " lanes, there " + (q.lanes == 1 ? "is " : "are ") +
           std::to_string(q.lanes);
  }
  static void schedule(const Query& q, Schedule& s) {
    s.sliced(1);  // one message from each rank to each other on a lane
    if (alone(q, s)) return;
    s.cut_equally(2);
    switch (q.collective) {
      case TUTTI_BROADCAST:
        return broadcast(q, s);
      case TUTTI_REDUCE:
        return reduce(q, s);
      case TUTTI_ALL_REDUCE:
        return all_reduce(q, s);
    }
  }
};
}  // namespace

const tutti_algorithm double_tree = make_algorithm<DoubleTree>();

}  // namespace tutti::algorithms
