// SPDX-License-Identifier: Apache-2.0
#include "hierarchical_scan.hpp"

#include "hosts.hpp"

namespace tutti::algorithms {
namespace {
using namespace tutti::sdk;

class Scan {
 public:
  Scan(const Query& q, Schedule& s)
      : hosts_(q),
        mine_(hosts_.members[hosts_.own]),
        size_(hosts_.size(hosts_.own)),
        me_(hosts_.index[q.rank]),
        exclusive_(q.collective == TUTTI_EXCLUSIVE_SCAN),
        lane_(start(s)) {}

  void emit() {
    inside();
    if (me_ + 1 == size_) between();
    hand_out();
    finish();
  }

 private:
  Lane start(Schedule& s) const {
    s.sliced(last_level());
    s.declare_scratch(exclusive_ ? 4 : 3);
    return s.lane();
  }
  uint32_t rounds_inside() const { return ceil_log2(hosts_.largest); }
  uint32_t rounds_between() const { return ceil_log2(hosts_.count()); }
  uint32_t between_level() const { return 3 + 2 * rounds_inside(); }
  uint32_t down_level() const { return between_level() + 2 * rounds_between(); }
  uint32_t last_level() const { return down_level() + rounds_inside() + 1; }

  // Leaves the sum of this host's ranks up to this one, or before it, in `sum_`, unless there are none.
  void inside() {
    const uint32_t skipped = exclusive_ ? 1 : 0;
    if (exclusive_) {
      lane_.level(1);
      if (me_ + 1 < size_) lane_.send(mine_[me_ + 1], in());
      if (me_ == 0) return;
      lane_.recv(mine_[me_ - 1], own_);
      sum_ = own_;
    }
    uint32_t level = 2;
    for (uint32_t distance = 1; distance + skipped < size_; distance *= 2, level += 2) {
      const bool hears = me_ >= distance + skipped;
      lane_.level(level);
      if (me_ + distance < size_) lane_.send(mine_[me_ + distance], sum_);
      if (!hears) continue;
      lane_.recv(mine_[me_ - distance], came_);
      const tutti_span next = exclusive_ ? own_ : out();
      lane_.level(level + 1).reduce(next, {came_, sum_});
      sum_ = next;
    }
  }

  // The last ranks of the hosts scan their hosts' sums. Leaves the sum of the hosts before this one in `before_`.
  void between() {
    const auto last_of = [&](uint32_t host) { return hosts_.members[host].back(); };
    const uint32_t h = hosts_.own;
    tutti_span total = sum_;
    uint32_t level = between_level();
    if (exclusive_) total = in();
    if (exclusive_ && me_ > 0) {
      lane_.level(level - 1).reduce(total_, {sum_, in()});
      total = total_;
    }
    for (uint32_t distance = 1; distance < hosts_.count(); distance *= 2, level += 2) {
      lane_.level(level);
      if (h + distance < hosts_.count()) lane_.send(last_of(h + distance), total);
      if (h < distance) continue;
      lane_.recv(last_of(h - distance), came_);
      lane_.level(level + 1);
      if (distance == 1)
        lane_.copy(before_, came_);
      else
        lane_.reduce(before_, {came_, before_});
      if (h + 2 * distance >= hosts_.count()) continue;
      lane_.reduce(total_, {came_, total});
      total = total_;
    }
  }

  // A binomial tree inside the host, of which the last rank is the root (tree.cpp explains the numbers).
  void hand_out() {
    if (hosts_.own == 0) return;
    const uint32_t v = size_ - 1 - me_, limit = v ? v & -v : std::bit_ceil(size_);
    const auto depth = static_cast<uint32_t>(std::popcount(v));
    if (v > 0) lane_.level(down_level() + depth - 1).recv(mine_[size_ - 1 - (v & (v - 1))], before_);
    lane_.level(down_level() + depth);
    for (uint32_t m = std::bit_floor(std::min(limit, size_ - v) - 1); m > 0; m /= 2)
      lane_.send(mine_[size_ - 1 - v - m], before_);
  }

  void finish() {
    const bool has_sum = !exclusive_ || me_ > 0, has_before = hosts_.own > 0;
    lane_.level(last_level());
    if (has_sum && has_before)
      lane_.reduce(out(), {before_, sum_}).final();
    else if (has_sum || has_before)
      lane_.copy(out(), has_sum ? sum_ : before_).final();
  }

  const Hosts hosts_;
  const std::vector<uint32_t>& mine_;  // the ranks of this host
  const uint32_t size_, me_;           // how many, and which of them this is
  const bool exclusive_;
  Lane lane_;
  tutti_span sum_ = in();
  // The sum that came; this host's sum and what is in front of it; the sum of the hosts before; an exclusive scan's own
  // sum.
  const tutti_span came_ = scratch(0), total_ = scratch(1), before_ = scratch(2), own_ = scratch(3);
};

}  // namespace

std::string refuses_hierarchical_scan(const Query& q) {
  const Hosts hosts(q);
  if (q.n > 1 && hosts.count() == 1) return "all ranks are on one host";
  for (uint32_t host = 0; host < hosts.count(); ++host)
    if (runs_of(hosts.members[host]).size() > 1)
      return "the ranks of host " + std::to_string(host) + " do not follow each other";
  return "";
}

void hierarchical_scan(const Query& q, Schedule& s) { Scan(q, s).emit(); }

}  // namespace tutti::algorithms
