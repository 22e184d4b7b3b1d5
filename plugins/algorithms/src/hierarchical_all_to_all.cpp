// SPDX-License-Identifier: Apache-2.0
#include "hierarchical_all_to_all.hpp"

#include "hosts.hpp"

namespace tutti::algorithms {
namespace {
using namespace tutti::sdk;

class AllToAll {
 public:
  AllToAll(const Query& q, Schedule& s)
      : q_(q),
        hosts_(q),
        mine_(hosts_.members[hosts_.own]),
        size_(hosts_.size(hosts_.own)),
        me_(hosts_.index[q.rank]),
        lane_(start(s)) {}

  void emit() {
    if (!q_.in_place) lane_.level(1).copy(out(q_.rank), in(q_.rank));
    collect();
    turn();
    for (uint32_t k = 1; k < hosts_.count(); ++k) {
      if (handler(k) != me_) continue;
      lane_.level(hosts_.largest + k);
      lane_.send(handler_rank(host(k), k), scratch(leaving(k), size_ * hosts_.size(host(k))));
      lane_.recv(handler_rank(host(hosts_.count() - k), k), scratch(arriving(k), size_ * from_size(k)));
    }
    hand_out();
  }

 private:
  // Of what a rank handles for the host `k` places behind its own and the one `k` places before it: blocks as they come
  // from this host's ranks, one rank's after the other's; the same ordered by the ranks they go to; those that arrive,
  // ordered by the ranks of this host that they go to. After these, a block of each rank of this host.
  struct Places {
    uint32_t coming = 0, leaving = 0, arriving = 0;
  };

  Lane start(Schedule& s) {
    s.sliced(2 * hosts_.largest + hosts_.count());
    places_.resize(hosts_.count());
    uint32_t used = 0;
    for (uint32_t k = 1; k < hosts_.count(); ++k) {
      if (handler(k) != me_) continue;
      const uint32_t leave = size_ * hosts_.size(host(k));
      places_[k] = {used, used + leave, used + 2 * leave};
      used += 2 * leave + size_ * from_size(k);
    }
    local_ = used;
    s.declare_scratch(used + (q_.in_place ? size_ : 0));
    return s.lane();
  }
  // The host `k` places behind this rank's; which of `size` ranks handles it; how many ranks the one before has.
  uint32_t host(uint32_t k) const { return (hosts_.own + k) % hosts_.count(); }
  uint32_t handler(uint32_t k) const { return (k - 1) % size_; }
  uint32_t handler_rank(uint32_t of, uint32_t k) const { return hosts_.members[of][(k - 1) % hosts_.size(of)]; }
  uint32_t from_size(uint32_t k) const { return hosts_.size(host(hosts_.count() - k)); }
  uint32_t coming(uint32_t k) const { return places_[k].coming; }
  uint32_t leaving(uint32_t k) const { return places_[k].leaving; }
  uint32_t arriving(uint32_t k) const { return places_[k].arriving; }

  // Rank `i` of this host gets this from another of its ranks before anything leaves: spans of IN at the sender. At `i`
  // itself they go to `places`.
  void listed(uint32_t i, uint32_t sender, std::vector<tutti_span>* sent, std::vector<tutti_span>* places) const {
    sent->push_back(in(mine_[i]));
    places->push_back(q_.in_place ? scratch(local_ + sender) : out(mine_[sender]));
    for (uint32_t k = 1; k < hosts_.count(); ++k) {
      if (handler(k) != i) continue;
      uint32_t place = coming(k) + sender * hosts_.size(host(k));
      for (const RankRun& run : runs_of(hosts_.members[host(k)])) {
        sent->push_back(in(run.first, run.count));
        places->push_back(scratch(place, run.count));
        place += run.count;
      }
    }
  }
  // Rank `i` of this host gets this from a handler in the end: spans of OUT. At the handler they are at `sent`.
  void listed_back(uint32_t i, uint32_t sender, std::vector<tutti_span>* sent, std::vector<tutti_span>* places) const {
    for (uint32_t k = 1; k < hosts_.count(); ++k) {
      if (handler(k) != sender) continue;
      uint32_t place = arriving(k) + i * from_size(k);
      for (const RankRun& run : runs_of(hosts_.members[host(hosts_.count() - k)])) {
        sent->push_back(scratch(place, run.count));
        places->push_back(out(run.first, run.count));
        place += run.count;
      }
    }
  }
  // Sends and receives by turns: with two steps in flight no cycle of ranks can wait for each other.
  template <typename List>
  void exchange_inside(uint32_t below, List&& list) {
    for (uint32_t t = 1; t < size_; ++t) {
      const uint32_t to = (me_ + t) % size_, from = (me_ + size_ - t) % size_;
      std::vector<tutti_span> sent, received, elsewhere;
      list(to, me_, &sent, &elsewhere);
      list(me_, from, &elsewhere, &received);
      lane_.level(below + t);
      for (size_t i = 0; i < std::max(sent.size(), received.size()); ++i) {
        if (i < sent.size()) lane_.send(mine_[to], sent[i]);
        if (i < received.size()) lane_.recv(mine_[from], received[i]);
      }
    }
  }

  void collect() {
    exchange_inside(0, [&](auto&&... list) { listed(list...); });
    lane_.level(hosts_.largest);
    for (uint32_t i = 0; q_.in_place && i < size_; ++i)
      if (i != me_) lane_.copy(out(mine_[i]), scratch(local_ + i));
  }
  // Orders what leaves by the ranks that it goes to.
  void turn() {
    for (uint32_t k = 1; k < hosts_.count(); ++k) {
      const std::vector<uint32_t>& ranks = hosts_.members[host(k)];
      for (uint32_t j = 0; handler(k) == me_ && j < ranks.size(); ++j)
        for (uint32_t i = 0; i < size_; ++i)
          lane_.copy(scratch(leaving(k) + j * size_ + i),
                     i == me_ ? in(ranks[j]) : scratch(coming(k) + i * hosts_.size(host(k)) + j));
    }
  }
  void hand_out() {
    const uint32_t below = hosts_.largest + hosts_.count();
    exchange_inside(below, [&](auto&&... list) { listed_back(list...); });
    std::vector<tutti_span> here, places;
    listed_back(me_, me_, &here, &places);
    lane_.level(below + 1);
    for (size_t i = 0; i < here.size(); ++i) lane_.copy(places[i], here[i]);
  }

  const Query& q_;
  const Hosts hosts_;
  const std::vector<uint32_t>& mine_;  // the ranks of this host
  const uint32_t size_, me_;           // how many, and which of them this is
  std::vector<Places> places_;         // by k
  uint32_t local_ = 0;
  Lane lane_;
};

}  // namespace

void hierarchical_all_to_all(const Query& q, Schedule& s) { AllToAll(q, s).emit(); }

}  // namespace tutti::algorithms
