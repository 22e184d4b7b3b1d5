// SPDX-License-Identifier: Apache-2.0
//
// hierarchical: every rank of a host takes part in what leaves it, each on a rail of its own.
//
// H hosts of s ranks; a, B: latency and bytes per second between hosts, b, C: inside one; N: bytes of a block.
//
// all_reduce      A reduce-scatter inside each host leaves every rank one s-th of the block, summed over the host. The
//                 ranks that hold the same part, one of each host, reduce it among themselves: by halving and doubling
//                 (cyclic.hpp) over H pieces of it. An all-gather inside each host ends it. A host sends
//                 2 (H-1)/H N bytes, the fewest possible, whatever its number of ranks:
//                 2(s-1)(b + N/(s C)) + 2 ceil(log2 H) a + 2 (H-1)/H N/B. (Levels as in BlueConnect, Cho et al. 2019.)
//                 Uneven hosts cut the block at i/s for every size s that occurs. So each interval between two cuts has
//                 one owner on each host, and these ranks reduce it; a rank of a small host owns several intervals.
//                 The parts inside and between hosts are in two lanes: a slice crosses the network while the next one
//                 is summed. Each piece is completed at one rank and copied: equal bits everywhere.
// all_gather      Each rank sends its block to one rank of each other host, the i-th of a host to the i-th there (mod
// s).
//                 Then the ranks of a host hand each other what they got: a host receives each block once.
//                 (H-1)(a + N/B) + (s-1)(b + H N/C).
// reduce_scatter  The same backwards: the blocks of other hosts' ranks are first summed inside the host.
// all_to_all      One message from each host to each other: hierarchical_all_to_all.hpp.
// scans           Inside hosts, over their last ranks, inside hosts: hierarchical_scan.hpp.
//
// Inside hosts exchanges are direct: rank i sends to i+k while it receives from i-k.
#include <numeric>
#include <tutti/sdk/algorithm.hpp>

#include "algorithms.hpp"
#include "cyclic.hpp"
#include "hierarchical_all_to_all.hpp"
#include "hierarchical_scan.hpp"
#include "hosts.hpp"

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
  // Which of `size` ranks owns an interval.
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
  AllReduce(const Query& q, Schedule& s)
      : hosts_(q),
        intervals_(hosts_),
        mine_(hosts_.members[hosts_.own]),
        me_(hosts_.index[q.rank]),
        rounds_(ceil_log2(hosts_.count())),
        two_lanes_(q.lanes > 1),
        inner_(start(s)),
        outer_(s.lane(two_lanes_ ? 1 : 0)) {}

  void emit() {
    reduce_inside();
    uint32_t level = hosts_.largest - 1;  // of the steps so far
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
    s.sliced(std::max(1u, two_lanes_ ? between : between + 2 * hosts_.largest));
    s.cut(intervals_.cuts(hosts_.count()));
    return s.lane();
  }
  // The chunks of the i-th rank of this host.
  uint32_t first_chunk(uint32_t i) const { return intervals_.first(i, size()) * hosts_.count(); }
  tutti_span part(uint32_t buffer, uint32_t i) const {
    return {buffer, first_chunk(i), first_chunk(i + 1) - first_chunk(i), 0};
  }
  uint32_t size() const { return static_cast<uint32_t>(mine_.size()); }

  void reduce_inside() {
    for (uint32_t k = 1; k < size(); ++k) {
      const uint32_t to = (me_ + k) % size(), from = (me_ + size() - k) % size();
      inner_.level(k).send(mine_[to], part(TUTTI_BUFFER_IN, to));
      auto step = inner_.recv_reduce(mine_[from], part(TUTTI_BUFFER_OUT, me_),
                                     part(k == 1 ? TUTTI_BUFFER_IN : TUTTI_BUFFER_OUT, me_));
      if (hosts_.count() == 1 && k + 1 == size()) step.final();
      if (two_lanes_) summed_ = step;  // one lane is in order
    }
  }

  template <typename Do>
  void for_each_interval(Do&& act) {
    for (uint32_t i = intervals_.first(me_, size()); i < intervals_.first(me_ + 1, size()); ++i) act(i);
  }
  // The rank that owns an interval on the host `places` behind this one.
  uint32_t owner(uint32_t interval, uint32_t places) const {
    const uint32_t host = (hosts_.own + places) % hosts_.count();
    return hosts_.members[host][intervals_.owner(interval, hosts_.size(host))];
  }
  CyclicRun pieces(uint32_t from, uint32_t count) const {
    return CyclicRun((hosts_.own + from) % hosts_.count(), count, hosts_.count());
  }

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
    for (uint32_t k = 1; k < size(); ++k) {
      const uint32_t to = (me_ + k) % size(), from = (me_ + size() - k) % size();
      outer_.level(level + k).send(mine_[to], part(TUTTI_BUFFER_OUT, me_)).after(summed_);
      outer_.recv(mine_[from], part(TUTTI_BUFFER_OUT, from));
    }
  }

  const Hosts hosts_;
  const Intervals intervals_;
  const std::vector<uint32_t>& mine_;  // the ranks of this host
  const uint32_t me_;                  // which of them this is
  const uint32_t rounds_;
  const bool two_lanes_;
  Lane inner_, outer_;
  StepId summed_;  // this rank's part is summed over the host
};

// For each rank of this host, the ranks whose blocks it takes care of: itself, and some of each other host.
std::vector<std::vector<uint32_t>> cares(const Hosts& hosts) {
  std::vector<std::vector<uint32_t>> lists(hosts.size(hosts.own));
  for (const auto& members : hosts.members)
    for (uint32_t i = 0; i < members.size(); ++i) lists[i % lists.size()].push_back(members[i]);
  for (auto& list : lists) std::sort(list.begin(), list.end());
  return lists;
}

void all_gather(const Query& q, Schedule& s) {
  const Hosts hosts(q);
  const std::vector<uint32_t>& mine = hosts.members[hosts.own];
  const uint32_t me = hosts.index[q.rank], size = hosts.size(hosts.own), H = hosts.count();
  Lane lane = s.lane().level(1);
  if (!q.in_place) lane.copy(out(q.rank), in());
  for (uint32_t k = 1; k < H; ++k) {
    const uint32_t to = (hosts.own + k) % H, from = (hosts.own + H - k) % H;
    lane.level(k).send(hosts.members[to][me % hosts.size(to)], in());
    for (uint32_t i = me; i < hosts.size(from); i += size)
      lane.recv(hosts.members[from][i], out(hosts.members[from][i]));
  }
  const auto lists = cares(hosts);
  for (uint32_t k = 1; k < size; ++k) {
    const uint32_t to = (me + k) % size, from = (me + size - k) % size;
    const auto leaving = runs_of(lists[me]), coming = runs_of(lists[from]);
    lane.level(H + k);
    for (size_t i = 0; i < std::max(leaving.size(), coming.size()); ++i) {
      if (i < leaving.size()) lane.send(mine[to], out(leaving[i].first, leaving[i].count));
      if (i < coming.size()) lane.recv(mine[from], out(coming[i].first, coming[i].count));
    }
  }
}

void reduce_scatter(const Query& q, Schedule& s) {
  const Hosts hosts(q);
  const std::vector<uint32_t>& mine = hosts.members[hosts.own];
  const uint32_t me = hosts.index[q.rank], size = hosts.size(hosts.own), H = hosts.count();
  auto lists = cares(hosts);
  for (uint32_t i = 0; i < size; ++i) std::erase(lists[i], mine[i]);
  std::vector<tutti_extent> sums;
  for (const uint32_t block : lists[me]) sums.push_back({q.class_of(block), 0});
  if (size > 1) s.declare_scratch(sums);
  Lane lane = s.lane();
  tutti_span sum = in(q.rank);  // of this rank's own block
  uint32_t left = size - 1 + H - 1;
  const auto add = [&](uint32_t from) {
    auto step = lane.recv_reduce(from, out(), sum);
    if (--left == 0) step.final();
    sum = out();
  };
  for (uint32_t k = 1; k < size; ++k) {
    const uint32_t to = (me + k) % size, from = (me + size - k) % size;
    const auto leaving = runs_of(lists[to]), coming = runs_of(lists[me]);
    lane.level(k).send(mine[to], in(mine[to]));
    add(mine[from]);
    uint32_t place = 0;
    for (size_t i = 0; i < std::max(leaving.size(), coming.size()); ++i) {
      if (i < leaving.size()) lane.send(mine[to], in(leaving[i].first, leaving[i].count));
      if (i >= coming.size()) continue;
      const tutti_span partial = scratch(place, coming[i].count);
      lane.recv_reduce(mine[from], partial, k == 1 ? in(coming[i].first, coming[i].count) : partial);
      place += coming[i].count;
    }
  }
  for (uint32_t k = 1; k < H; ++k) {
    const uint32_t to = (hosts.own + k) % H, from = (hosts.own + H - k) % H;
    lane.level(hosts.largest + k);
    for (uint32_t i = me; i < hosts.size(to); i += size) {
      const uint32_t owner = hosts.members[to][i];
      const auto place = std::lower_bound(lists[me].begin(), lists[me].end(), owner) - lists[me].begin();
      lane.send(owner, size == 1 ? in(owner) : scratch(static_cast<uint32_t>(place)));
    }
    add(hosts.members[from][me % hosts.size(from)]);
  }
}

struct Hierarchical {
  static constexpr const char* name = "hierarchical";
  static constexpr const char* summary = "inside hosts, between hosts on a rail for each rank, inside hosts";
  static constexpr uint64_t collectives =
      mask({TUTTI_ALL_REDUCE, TUTTI_ALL_GATHER, TUTTI_REDUCE_SCATTER, TUTTI_ALL_TO_ALL, TUTTI_ALL_GATHER_V,
            TUTTI_REDUCE_SCATTER_V, TUTTI_SCAN, TUTTI_EXCLUSIVE_SCAN});
  static std::string supports(const Query& q) {
    if (q.form() == TUTTI_ALL_GATHER || q.form() == TUTTI_REDUCE_SCATTER) return "";
    if (q.collective == TUTTI_SCAN || q.collective == TUTTI_EXCLUSIVE_SCAN) return refuses_hierarchical_scan(q);
    const Hosts hosts(q);
    if (q.collective == TUTTI_ALL_TO_ALL) return q.n > 1 && hosts.count() == 1 ? "all ranks are on one host" : "";
    const Intervals intervals(hosts);
    const uint64_t pieces = uint64_t{intervals.count()} * hosts.count();
    if (pieces <= most_cuts && intervals.cuts(hosts.count()).size() + 1 == pieces) return "";
    return "its hosts are so uneven that a block would be cut into " + std::to_string(pieces) + " pieces";
  }
  static void schedule(const Query& q, Schedule& s) {
    const bool blocks = q.form() == TUTTI_ALL_GATHER || q.form() == TUTTI_REDUCE_SCATTER;
    if (blocks || q.n == 1) s.sliced(1);  // messages of one rank to another on a lane have one level
    if (alone(q, s)) return;
    switch (q.form()) {
      case TUTTI_ALL_REDUCE:
        return AllReduce(q, s).emit();
      case TUTTI_ALL_GATHER:
        return all_gather(q, s);
      case TUTTI_REDUCE_SCATTER:
        return reduce_scatter(q, s);
      case TUTTI_ALL_TO_ALL:
        return hierarchical_all_to_all(q, s);
      case TUTTI_SCAN:
      case TUTTI_EXCLUSIVE_SCAN:
        return hierarchical_scan(q, s);
    }
  }
};
}  // namespace

const tutti_algorithm hierarchical = make_algorithm<Hierarchical>();

}  // namespace tutti::algorithms
