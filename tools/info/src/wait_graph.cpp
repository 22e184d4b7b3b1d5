// SPDX-License-Identifier: Apache-2.0
#include "wait_graph.hpp"

#include <tutti/flight_record.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>

namespace info {
namespace {

// What waits: a process, or a thread of one whose threads are the ranks.
struct Waiter {
  uint64_t host = 0, pid = 0, start = 0, thread = 0;
  auto operator<=>(const Waiter&) const = default;
};

Waiter process_of(const FlightRecord& record) { return {record.host, record.pid, record.process_start, 0}; }

// `from` waits in a call of a communicator for `to`; both are ranks of it.
struct Wait {
  Waiter from, to;
  size_t communicator = 0;
  uint32_t from_rank = 0, to_rank = 0;
  std::string call;  // "all_reduce #1 of world.1 (at train.py:14)"
  bool transfer = false;
  bool from_any = false;  // it is one of the waits of a receive that any of the ranks can end
  double begin_ns = 0;
};
using Waits = std::vector<const Wait*>;

class WaitGraph {
 public:
  explicit WaitGraph(const std::vector<JudgedCommunicator>& all) : all_(all) {
    for (const auto& [view, verdict] : all) {
      std::set<Waiter> seen;
      for (const RankView& r : view.ranks)
        if (!seen.insert(process_of(r.record)).second) threads_are_ranks_.insert(process_of(r.record));
    }
    for (size_t i = 0; i < all.size(); ++i)
      if (counts(all[i].verdict.finding)) add_waits(i);
    drop_those_that_end();
    for (const Wait& wait : waits_) leaving_[wait.from].push_back(&wait);
  }

  // The shortest cycle through each process that is in one.
  std::vector<Waits> cycles() const {
    std::vector<Waits> found;
    for (const auto& [from, leaving] : leaving_)
      if (Waits cycle = shortest_from(from); !cycle.empty()) found.push_back(std::move(cycle));
    std::stable_sort(found.begin(), found.end(), [](const Waits& a, const Waits& b) { return a.size() < b.size(); });
    return found;
  }

  std::string text(Waits cycle) const;

 private:
  // Only communicators of which no rank is known to be lost, and that are in use.
  static bool counts(Finding finding) {
    return finding == Finding::none || finding == Finding::missing || finding == Finding::stuck;
  }

  Waiter waiter_of(const FlightRecord& record) const {
    Waiter waiter = process_of(record);
    if (threads_are_ranks_.count(waiter)) waiter.thread = record.thread;
    return waiter;
  }

  void add(size_t communicator, const RankView& from, const RankView& to, const std::string& call,
           const std::string& site, bool transfer, double begin_ns, bool from_any = false) {
    if (waiter_of(from.record) == waiter_of(to.record)) return;
    waits_.push_back({waiter_of(from.record), waiter_of(to.record), communicator, from.record.rank, to.record.rank,
                      call + " of " + all_[communicator].view.name + site, transfer, from_any, begin_ns});
  }

  void add_waits(size_t communicator) {
    const CommunicatorView& view = all_[communicator].view;
    for (const RankView& r : view.ranks) {
      if (r.moved || r.process == ProcessState::gone) continue;
      if (r.record.phase == TUTTI_FLIGHT_ENDING) add_destroy(communicator, r);
      if (r.record.phase != TUTTI_FLIGHT_READY) continue;
      if (const Operation* o = r.record.awaited_operation()) {
        for (const RankView& other : view.ranks)
          if (other.record.phase == TUTTI_FLIGHT_READY && other.record.issued() <= o->sequence)
            add(communicator, r, other, o->name(), r.record.site_text(), false, o->begin_ns);
      } else if (const TransferRecord* t = r.record.awaited_transfer()) {
        add_transfer(communicator, r, *t);
      }
    }
  }

  // A receive from any rank waits for all others, each of which can end it. So it counts only where all are known.
  void add_transfer(size_t communicator, const RankView& r, const TransferRecord& t) {
    const CommunicatorView& view = all_[communicator].view;
    const bool from_any = t.peer == UINT32_MAX;
    std::vector<const RankView*> others;
    for (const RankView& other : view.ranks)
      if (from_any ? other.record.rank != r.record.rank : other.record.rank == t.peer) others.push_back(&other);
    if (others.size() != (from_any ? view.nranks - 1 : 1)) return;
    for (const RankView* other : others)
      if (other->record.phase != TUTTI_FLIGHT_READY || is_met(*other, r.record.rank, t)) return;
    for (const RankView* other : others)
      add(communicator, r, *other,
          std::string(t.sending  ? "a send"
                      : from_any ? "a receive from any rank"
                                 : "a receive") +
              " with " + t.tag_text(),
          r.record.site_text(), true, t.begin_ns, from_any);
  }

  // Ranks that wait within this communicator for one that destroys it have a verdict of their own.
  void add_destroy(size_t communicator, const RankView& r) {
    for (const RankView& other : all_[communicator].view.ranks)
      if (other.record.phase == TUTTI_FLIGHT_READY && !other.record.awaited_operation() &&
          !other.record.awaited_transfer())
        add(communicator, r, other, "tutti_comm_destroy", {}, false, r.record.phase_ns);
  }

  // A receive from any rank, or with any tag, may be the other side.
  static bool is_met(const RankView& other, uint32_t rank, const TransferRecord& t) {
    return std::any_of(other.record.transfers.begin(), other.record.transfers.end(), [&](const TransferRecord& o) {
      return !o.complete && o.sending != t.sending && (o.peer == UINT32_MAX || o.peer == rank) &&
             (o.any_tag || t.any_tag || o.tag == t.tag);
    });
  }

  // A rank that waits for nobody goes on, and ends the waits for it. A receive from any rank ends with the first of its waits.
  void drop_those_that_end() {
    for (;;) {
      std::set<Waiter> waiting;
      for (const Wait& wait : waits_) waiting.insert(wait.from);
      std::set<std::tuple<Waiter, size_t, std::string>> ended;  // receives
      const size_t before = waits_.size();
      std::erase_if(waits_, [&](const Wait& wait) {
        const bool ends = !waiting.count(wait.to);
        if (ends && wait.from_any) ended.insert({wait.from, wait.communicator, wait.call});
        return ends;
      });
      if (waits_.size() == before) return;
      std::erase_if(waits_, [&](const Wait& wait) {
        return wait.from_any && ended.count({wait.from, wait.communicator, wait.call});
      });
    }
  }

  Waits shortest_from(const Waiter& start) const {
    std::map<Waiter, const Wait*> reached_by;
    for (std::deque<Waiter> next{start}; !next.empty(); next.pop_front()) {
      const auto leaving = leaving_.find(next.front());
      if (leaving == leaving_.end()) continue;
      for (const Wait* wait : leaving->second) {
        if (!reached_by.emplace(wait->to, wait).second) continue;
        next.push_back(wait->to);
        if (wait->to != start) continue;
        Waits cycle{wait};
        while (cycle.front()->from != start) cycle.insert(cycle.begin(), reached_by.at(cycle.front()->from));
        return cycle;
      }
    }
    return {};
  }

  // A communicator that has all of them: the largest, and of several the one with the shortest name, from which the
  // others were split.
  const CommunicatorView* common(const Waits& cycle) const {
    const auto order = [](const CommunicatorView& view) {
      return std::tuple(UINT32_MAX - view.nranks, view.name.size(), std::string_view(view.name));
    };
    const CommunicatorView* best = nullptr;
    for (const auto& [view, verdict] : all_) {
      const bool has_all = std::all_of(
          cycle.begin(), cycle.end(), [&, v = &view](const Wait* wait) { return rank_in(*v, wait->from).has_value(); });
      if (has_all && (!best || order(view) < order(*best))) best = &view;
    }
    return best;
  }

  std::optional<uint32_t> rank_in(const CommunicatorView& view, const Waiter& waiter) const {
    for (const RankView& r : view.ranks)
      if (waiter_of(r.record) == waiter) return r.record.rank;
    return std::nullopt;
  }

  const std::vector<JudgedCommunicator>& all_;
  std::set<Waiter> threads_are_ranks_;
  std::vector<Wait> waits_;
  std::map<Waiter, Waits> leaving_;
};

// "rank 0 waits in all_reduce #1 of world.2 for rank 1, which waits in all_reduce #1 of world.1 for rank 0, since 14 s:
// a cycle; use ..." A rank's number is the one that it has in all communicators of the cycle, else in the largest that
// has all of its ranks, which is then named, else in the communicator beside it.
std::string WaitGraph::text(Waits cycle) const {
  const CommunicatorView* names = common(cycle);
  const auto number = [&](const Waiter& waiter, uint32_t otherwise) {
    return names ? rank_in(*names, waiter).value_or(otherwise) : otherwise;
  };
  std::rotate(cycle.begin(),
              std::min_element(cycle.begin(), cycle.end(),
                               [&](const Wait* a, const Wait* b) {
                                 return number(a->from, a->from_rank) < number(b->from, b->from_rank);
                               }),
              cycle.end());
  const bool alike = std::all_of(cycle.begin(), cycle.end(), [&](const Wait* wait) {
    return number(wait->from, UINT32_MAX) == wait->from_rank && number(wait->to, UINT32_MAX) == wait->to_rank;
  });
  const auto rank = [&](const Waiter& waiter, uint32_t own, size_t communicator) {
    std::string text = "rank " + std::to_string(number(waiter, own));
    return names ? text : text + " of " + all_[communicator].view.name;
  };
  std::string text = rank(cycle.front()->from, cycle.front()->from_rank, cycle.front()->communicator);
  double since = 0, now = 0;
  bool one_communicator = true;
  for (const Wait* wait : cycle) {
    text += (wait == cycle.front() ? " waits in " : ", which waits in ") + wait->call + " for " +
            rank(wait->to, wait->to_rank, wait->communicator);
    since = std::max(since, wait->begin_ns);
    now = std::max(now, all_[wait->communicator].view.now_ns);
    one_communicator &= wait->communicator == cycle.front()->communicator;
  }
  if (names && !alike) text += " (ranks of " + names->name + ")";
  const bool one_clock = std::all_of(cycle.begin(), cycle.end(),
                                     [&](const Wait* wait) { return wait->from.host == cycle.front()->from.host; });
  if (one_clock) text += ", since " + age_text(now - since);
  return text + (one_communicator
                     ? ": a cycle; bring the calls into the same order on these ranks, or put the sends and "
                       "receives into one group (tutti_exchange)"
                     : ": a cycle; use the communicators in the same order on every rank");
}

}  // namespace

std::vector<WaitCycle> find_cycles(const std::vector<JudgedCommunicator>& communicators) {
  const WaitGraph graph(communicators);
  std::vector<WaitCycle> cycles;
  std::set<size_t> covered;
  for (const Waits& waits : graph.cycles()) {
    WaitCycle cycle;
    bool is_new = false;
    for (const Wait* wait : waits) {
      is_new |= covered.insert(wait->communicator).second;
      cycle.ranks[wait->communicator].push_back(wait->from_rank);
      cycle.ranks[wait->communicator].push_back(wait->to_rank);
    }
    if (!is_new) continue;
    for (auto& [communicator, ranks] : cycle.ranks) {
      std::sort(ranks.begin(), ranks.end());
      ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    }
    cycle.text = graph.text(waits);
    cycles.push_back(std::move(cycle));
  }
  return cycles;
}

std::vector<size_t> jobs_of(const std::vector<JudgedCommunicator>& communicators) {
  std::vector<size_t> job(communicators.size());
  std::iota(job.begin(), job.end(), size_t{0});
  std::map<Waiter, size_t> first_with;
  for (size_t i = 0; i < communicators.size(); ++i)
    for (const RankView& r : communicators[i].view.ranks) {
      const size_t other = job[first_with.emplace(process_of(r.record), i).first->second], own = job[i];
      if (other == own) continue;
      for (size_t& j : job)
        if (j == std::max(own, other)) j = std::min(own, other);
    }
  return job;
}

}  // namespace info
