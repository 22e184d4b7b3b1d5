// SPDX-License-Identifier: Apache-2.0
#include "hierarchical_all_reduce.hpp"

#include <numeric>

#include "cyclic.hpp"

namespace tutti::algorithms {
namespace {
using namespace tutti::sdk;

// The intervals of a block that have one owner on each host: the block is cut at i/s for each size s of a host.
class Intervals {
 public:
  explicit Intervals(const Hosts& hosts) {
    std::vector<bool> sizes(hosts.largest + 1, false);
    for (const auto& members : hosts.members) sizes[members.size()] = true;
    for (uint32_t size = 1; size <= hosts.largest; ++size)
      for (uint32_t i = 0; sizes[size] && i <= size; ++i) points_.push_back({i, size});
    std::sort(points_.begin(), points_.end(), below);
    const auto equal = [](const tutti_cut& a, const tutti_cut& b) { return !below(a, b) && !below(b, a); };
    points_.erase(std::unique(points_.begin(), points_.end(), equal), points_.end());
  }
  uint32_t count() const { return static_cast<uint32_t>(points_.size()) - 1; }
  // The first interval of the i-th of `size` ranks.
  uint32_t first(uint32_t i, uint32_t size) const {
    const tutti_cut point{i, size};
    return static_cast<uint32_t>(std::lower_bound(points_.begin(), points_.end(), point, below) - points_.begin());
  }
  // The one of `size` ranks that owns an interval.
  uint32_t owner(uint32_t interval, uint32_t size) const {
    return static_cast<uint32_t>(uint64_t{points_[interval].p} * size / points_[interval].q);
  }
  // The cuts that divide each interval into `parts` pieces; none where their terms or their number would be too large.
  std::vector<tutti_cut> cuts(uint32_t parts) const {
    std::vector<tutti_cut> cuts;
    for (uint32_t i = 0; i < count(); ++i)
      for (uint32_t part = i == 0; part < parts; ++part) {
        const tutti_cut &a = points_[i], &b = points_[i + 1];
        uint64_t q = uint64_t{a.q} * b.q, p = uint64_t{a.p} * b.q * parts;
        p += (uint64_t{b.p} * a.q - uint64_t{a.p} * b.q) * part;
        q *= parts;
        const uint64_t divisor = std::gcd(p, q);
        if (q / divisor > UINT32_MAX) return {};
        cuts.push_back({static_cast<uint32_t>(p / divisor), static_cast<uint32_t>(q / divisor)});
      }
    return cuts;
  }

 private:
  static bool below(const tutti_cut& a, const tutti_cut& b) { return uint64_t{a.p} * b.q < uint64_t{b.p} * a.q; }
  std::vector<tutti_cut> points_;  // from 0/s to s/s
};

constexpr uint32_t most_cuts = 1u << 20;

// One rank's all_reduce. Chunk i * H + j is piece j of interval i; host j completes it.
class AllReduce {
 public:
  AllReduce(const Query& q, Schedule& s, Nodes::By by)
      : hosts_(by == Nodes::By::numa ? dealt_from_nodes(q) : Hosts(q)),
        nodes_(q, hosts_, by),
        intervals_(hosts_),
        mine_(hosts_.members[hosts_.own]),
        me_(hosts_.index[q.rank]),
        rounds_(ceil_log2(hosts_.count())),
        two_lanes_(q.lanes > 1),
        inner_(start(s)),
        outer_(s.lane(two_lanes_ ? 1 : 0)) {}

  void emit() {
    reduce_inside();
    uint32_t level = inside_levels();  // of the steps so far
    for (uint32_t half = std::bit_ceil(hosts_.count()) / 2; half > 0; half /= 2, level += intervals_.count())
      for_each_interval([&](uint32_t interval) { halve(interval, half, level + 1 + interval); });
    for (uint32_t have = 1; have < hosts_.count(); have *= 2, level += intervals_.count())
      for_each_interval([&](uint32_t interval) { double_up(interval, have, level + 1 + interval); });
    gather_inside(level);
  }

 private:
  Lane start(Schedule& s) const {
    // With two lanes only ranks of different hosts send each other several messages on a lane.
    const uint32_t between = 2 * rounds_ * intervals_.count();
    s.sliced(std::max(1u, two_lanes_ ? between : between + 2 * inside_levels() + 2));
    s.cut(intervals_.cuts(hosts_.count()));
    return s.lane();
  }
  // The number of levels of the steps inside hosts, before those between hosts, and again after them.
  uint32_t inside_levels() const { return nodes_.most_members - 1 + nodes_.most_nodes - 1; }
  // The chunks of the i-th rank of this host.
  uint32_t first_chunk(uint32_t i) const { return intervals_.first(i, size()) * hosts_.count(); }
  tutti_span parts(uint32_t buffer, const RankRun& run) const {
    return {buffer, first_chunk(run.first), first_chunk(run.first + run.count) - first_chunk(run.first), 0};
  }
  tutti_span part(uint32_t buffer, uint32_t i) const { return parts(buffer, {i, 1}); }
  uint32_t size() const { return static_cast<uint32_t>(mine_.size()); }
  uint32_t rank_at(uint32_t place) const { return mine_[nodes_.members[nodes_.own][place]]; }
  std::vector<RunMessage> messages(uint32_t peer, const std::vector<uint32_t>& indices) const {
    std::vector<RunMessage> all;
    add_messages(all, peer, indices);
    return all;
  }

  void reduce_inside() {
    for (uint32_t k = 1; k < nodes_.size(); ++k) {
      inner_.level(k);
      by_turns(
          messages(rank_at(nodes_.next(k)), nodes_.cares(nodes_.next(k))),
          messages(rank_at(nodes_.prev(k)), nodes_.cares(nodes_.place)),
          [&](uint32_t peer, const RankRun& run) { inner_.send(peer, parts(TUTTI_BUFFER_IN, run)); },
          [&](uint32_t peer, const RankRun& run) {
            summed(inner_.recv_reduce(peer, parts(TUTTI_BUFFER_OUT, run),
                                      parts(k == 1 ? TUTTI_BUFFER_IN : TUTTI_BUFFER_OUT, run)),
                   nodes_.count() == 1 && k + 1 == nodes_.size());
          });
    }
    for (uint32_t k = 1; k < nodes_.count(); ++k) {
      const uint32_t result = TUTTI_BUFFER_OUT, sums = nodes_.size() == 1 ? uint32_t{TUTTI_BUFFER_IN} : result;
      inner_.level(nodes_.most_members - 1 + k);
      for (const uint32_t i : nodes_.cares(nodes_.place, nodes_.next_node(k))) inner_.send(mine_[i], part(sums, i));
      summed(inner_.recv_reduce(mine_[nodes_.carer(nodes_.prev_node(k), nodes_.place)], part(result, me_),
                                part(k == 1 ? sums : result, me_)),
             k + 1 == nodes_.count());
    }
  }
  // `step` has summed this rank's part, over the host if it is the last one.
  template <typename Step>
  void summed(Step step, bool last) {
    if (last && hosts_.count() == 1) step.final();
    if (two_lanes_) summed_ = step;  // one lane is in order
  }

  template <typename Do>
  void for_each_interval(Do&& act) {
    for (uint32_t i = intervals_.first(me_, size()); i < intervals_.first(me_ + 1, size()); ++i) act(i);
  }
  // The rank that owns an interval on the host `places` behind this one.
  uint32_t owner(uint32_t interval, uint32_t places) const {
    const uint32_t host = hosts_.next(places);
    return hosts_.members[host][intervals_.owner(interval, hosts_.size(host))];
  }
  CyclicRun pieces(uint32_t from, uint32_t count) const { return CyclicRun(hosts_.next(from), count, hosts_.count()); }

  // The sums of `half` pieces from this host's own on stay here, the others leave: cyclic.hpp, but partial sums are in
  // OUT, and at first in IN where a host has one rank.
  void halve(uint32_t interval, uint32_t half, uint32_t level) {
    const uint32_t hosts = hosts_.count(), base = interval * hosts, leave = std::min(half, hosts - half);
    const bool first = half == std::bit_ceil(hosts) / 2, raw = first && size() == 1;
    const auto sum = [&](const Run& run) {
      return raw ? in(base + run.first, run.count) : out(base + run.first, run.count);
    };
    outer_.level(level);
    exchange(
        pieces(half, leave), pieces(0, leave),
        [&](const Run& run) { outer_.send(owner(interval, half), sum(run)).after(summed_); },
        [&](const Run& run) {
          auto step = outer_.recv_reduce(owner(interval, hosts - half), out(base + run.first, run.count), sum(run));
          step.after(summed_);
          if (half == 1) step.final();
        });
    for (const Run& run : pieces(leave, raw ? half - leave : 0))
      outer_.copy(out(base + run.first, run.count), sum(run));
  }

  void double_up(uint32_t interval, uint32_t have, uint32_t level) {
    const uint32_t hosts = hosts_.count(), base = interval * hosts, more = std::min(have, hosts - have);
    outer_.level(level);
    exchange(
        pieces(0, more), pieces(have, more),
        [&](const Run& run) { outer_.send(owner(interval, hosts - have), out(base + run.first, run.count)); },
        [&](const Run& run) { outer_.recv(owner(interval, have), out(base + run.first, run.count)); });
  }

  // In place a part is received over what this rank had given to the sender, which has long used it.
  void gather_inside(uint32_t level) {
    for (uint32_t k = 1; k < nodes_.count(); ++k) {
      outer_.level(level + k);
      outer_.send(mine_[nodes_.carer(nodes_.next_node(k), nodes_.place)], part(TUTTI_BUFFER_OUT, me_)).after(summed_);
      for (const uint32_t i : nodes_.cares(nodes_.place, nodes_.prev_node(k)))
        outer_.recv(mine_[i], part(TUTTI_BUFFER_OUT, i));
    }
    level += nodes_.most_nodes - 1;
    for (uint32_t k = 1; k < nodes_.size(); ++k) {
      outer_.level(level + k);
      by_turns(
          messages(rank_at(nodes_.next(k)), nodes_.cares(nodes_.place)),
          messages(rank_at(nodes_.prev(k)), nodes_.cares(nodes_.prev(k))),
          [&](uint32_t peer, const RankRun& run) { outer_.send(peer, parts(TUTTI_BUFFER_OUT, run)).after(summed_); },
          [&](uint32_t peer, const RankRun& run) { outer_.recv(peer, parts(TUTTI_BUFFER_OUT, run)); });
    }
  }

  const Hosts hosts_;
  const Nodes nodes_;
  const Intervals intervals_;
  const std::vector<uint32_t>& mine_;  // the ranks of this host
  const uint32_t me_;                  // which of them this is
  const uint32_t rounds_;
  const bool two_lanes_;
  Lane inner_, outer_;
  StepId summed_;  // this rank's part is summed over the host
};
}  // namespace

std::string refuses_hierarchical_all_reduce(const Hosts& hosts) {
  const Intervals intervals(hosts);
  const uint64_t pieces = uint64_t{intervals.count()} * hosts.count();
  if (pieces <= most_cuts && intervals.cuts(hosts.count()).size() + 1 == pieces) return "";
  return "its hosts are so uneven that a block would be cut into " + std::to_string(pieces) + " pieces";
}

void hierarchical_all_reduce(const Query& q, Schedule& s, Nodes::By by) { AllReduce(q, s, by).emit(); }

}  // namespace tutti::algorithms
