// SPDX-License-Identifier: Apache-2.0
#include "sequence.hpp"

#include <fmt/format.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace trace {
namespace {

using Process = std::pair<std::string, uint32_t>;  // host and process id

Process process_of(const RankTrace& rank) { return {rank.host, rank.pid}; }

bool is_barrier(const Call& call) { return call.collective == TUTTI_BARRIER; }

size_t barriers_of(const Group& group) {
  return group.ranks.empty() ? 0 : size_t(std::ranges::count_if(group.ranks.front().calls, is_barrier));
}

// Of equally large communicators the one with barriers: a duplicate has none.
const Group& largest_of(const Timeline& timeline) {
  return *std::ranges::max_element(timeline.groups, {},
                                   [](const Group& group) { return std::pair(group.nranks, barriers_of(group)); });
}

// An event that has no place yet.
struct Waiting {
  Event event;
  const Group* group = nullptr;
  uint64_t ticks = 0;  // its order among the rank's; all communicators of a process have one counter
  size_t number = 0;   // which message it is of its way
};

// A message's way: its communicator, from and to (ranks of the largest one), its tag.
using Way = std::tuple<const Group*, uint32_t, uint32_t, uint32_t>;

class Sorter {
 public:
  Sorter(const Timeline& timeline, size_t barrier) : world_(largest_of(timeline)) {
    for (const RankTrace& rank : world_.ranks) {
      if (!rows_.emplace(process_of(rank), ranks_.size()).second)
        throw std::runtime_error(
            fmt::format("ranks of {} are threads of one process (process {} on {}), and a sequence "
                        "is one of processes: start them with tuttirun",
                        world_.name, rank.pid, rank.host));
      ranks_.push_back(&rank);
    }
    waiting_.resize(ranks_.size());
    for (size_t row = 0; row < ranks_.size(); ++row) windows_.push_back(window_of(*ranks_[row], barrier));
    for (const Group& group : timeline.groups)
      for (const RankTrace& rank : group.ranks)
        if (const auto row = rows_.find(process_of(rank)); row != rows_.end()) take(group, rank, row->second);
    for (auto& row : waiting_) std::ranges::stable_sort(row, {}, &Waiting::ticks);
    number_messages();
  }

  Sequence sort() {
    place_all();
    Sequence sequence{ranks_.empty() ? "" : ranks_.front()->program, {}, {}, places_};
    for (size_t row = 0; row < ranks_.size(); ++row) {
      sequence.ranks.push_back(ranks_[row]->rank);
      auto& events = sequence.events.emplace_back();
      for (Waiting& waiting : waiting_[row]) {
        Event& event = events.emplace_back(std::move(waiting.event));
        if (event.kind != Event::Kind::send) continue;
        const Way way{waiting.group, ranks_[row]->rank, event.peer, event.tag};
        if (const auto receive = receives_.find({way, waiting.number}); receive != receives_.end())
          event.place_of_receive = receive->second;
      }
    }
    return sequence;
  }

 private:
  using Window = std::pair<uint64_t, uint64_t>;  // ticks

  Window window_of(const RankTrace& rank, size_t barrier) const {
    if (barrier == 0) return {0, UINT64_MAX};
    std::vector<const Call*> barriers;
    for (const Call& call : rank.calls)
      if (is_barrier(call)) barriers.push_back(&call);
    if (barriers.size() <= barrier)
      throw std::runtime_error(
          fmt::format("rank {} of {} has {} barriers, expected at least {}: --barrier {} is what "
                      "lies between that one and the next",
                      rank.rank, world_.name, barriers.size(), barrier + 1, barrier));
    return {barriers[barrier - 1]->end_ticks, barriers[barrier]->begin_ticks};
  }

  // The rank of the largest communicator that is rank `rank` of `group`.
  std::optional<uint32_t> rank_in_world(const Group& group, uint32_t rank) const {
    const RankTrace* trace = group.find(rank);
    const auto row = trace ? rows_.find(process_of(*trace)) : rows_.end();
    if (row == rows_.end()) return std::nullopt;
    return ranks_[row->second]->rank;
  }

  void take(const Group& group, const RankTrace& rank, size_t row) {
    const auto& [begin, end] = windows_[row];
    const std::string name = &group == &world_ ? "" : group.name;
    std::vector<uint32_t> members;
    for (uint32_t member = 0; member < group.nranks; ++member)
      if (const auto in_world = rank_in_world(group, member)) members.push_back(*in_world);
    std::ranges::sort(members);
    for (const Call& call : rank.calls)
      if (call.begin_ticks >= begin && call.begin_ticks < end)
        waiting_[row].push_back({{.communicator = name, .call = call, .ranks = members}, &group, call.begin_ticks});
    for (const Transfer& transfer : rank.transfers) {
      const uint64_t ticks = transfer.sending ? transfer.begin_ticks : transfer.end_ticks;
      const auto peer = rank_in_world(group, transfer.peer);
      if (ticks < begin || ticks >= end || !peer) continue;
      const Event::Kind kind = transfer.sending ? Event::Kind::send : Event::Kind::receive;
      waiting_[row].push_back(
          {{.kind = kind, .communicator = name, .bytes = transfer.bytes, .peer = *peer, .tag = transfer.tag},
           &group,
           ticks});
    }
  }

  Way way_of(size_t row, const Waiting& waiting) const {
    const uint32_t self = ranks_[row]->rank, peer = waiting.event.peer;
    const bool sends = waiting.event.kind == Event::Kind::send;
    return {waiting.group, sends ? self : peer, sends ? peer : self, waiting.event.tag};
  }

  // The k-th send of a way is what its k-th receive gets.
  void number_messages() {
    std::map<std::pair<Way, Event::Kind>, size_t> counts;
    for (size_t row = 0; row < waiting_.size(); ++row)
      for (Waiting& waiting : waiting_[row]) {
        if (waiting.event.kind == Event::Kind::call) {
          callers_[{waiting.group, waiting.event.call.sequence}].push_back(row);
          continue;
        }
        waiting.number = counts[{way_of(row, waiting), waiting.event.kind}]++;
        if (waiting.event.kind == Event::Kind::send) sends_[{way_of(row, waiting), waiting.number}] = std::nullopt;
      }
  }

  // The least place that the event of a row may have now; nothing while it must wait for another rank.
  std::optional<size_t> place_for(size_t row) const {
    const Waiting& waiting = waiting_[row][next_[row]];
    size_t place = free_[row];
    if (waiting.event.kind == Event::Kind::receive) {
      const auto send = sends_.find({way_of(row, waiting), waiting.number});
      if (send == sends_.end()) return place;  // it is not in the window
      return send->second ? std::optional(std::max(place, *send->second + 1)) : std::nullopt;
    }
    if (waiting.event.kind == Event::Kind::call)
      for (const size_t other : callers_.at({waiting.group, waiting.event.call.sequence})) {
        if (next_[other] == waiting_[other].size()) return std::nullopt;
        const Waiting& its = waiting_[other][next_[other]];
        if (its.event.kind != Event::Kind::call || its.group != waiting.group ||
            its.event.call.sequence != waiting.event.call.sequence)
          return std::nullopt;
        place = std::max(place, free_[other]);
      }
    return place;
  }

  void put(size_t row, size_t place) {
    Waiting& waiting = waiting_[row][next_[row]++];
    waiting.event.place = place;
    if (waiting.event.kind == Event::Kind::call)
      std::erase(callers_[{waiting.group, waiting.event.call.sequence}], row);
    if (waiting.event.kind == Event::Kind::send) sends_[{way_of(row, waiting), waiting.number}] = place;
    if (waiting.event.kind == Event::Kind::receive) receives_[{way_of(row, waiting), waiting.number}] = place;
    free_[row] = place + 1;
    places_ = std::max(places_, place + 1);
  }

  void place_all() {
    next_.assign(waiting_.size(), 0);
    free_.assign(waiting_.size(), 0);
    for (;;) {
      bool placed = false, left = false;
      for (size_t row = 0; row < waiting_.size(); ++row)
        while (next_[row] < waiting_[row].size()) {
          left = true;
          const std::optional<size_t> place = place_for(row);
          if (!place) break;
          placed = true;
          const Waiting& waiting = waiting_[row][next_[row]];
          if (waiting.event.kind == Event::Kind::call)
            for (const size_t other : std::vector(callers_.at({waiting.group, waiting.event.call.sequence})))
              put(other, *place);
          else
            put(row, *place);
        }
      if (!left) return;
      if (placed) continue;
      // Operations that overlap: their order at one rank is not that of another. One goes first.
      size_t row = 0;
      while (next_[row] == waiting_[row].size()) ++row;
      put(row, free_[row]);
    }
  }

  const Group& world_;
  std::map<Process, size_t> rows_;
  std::vector<const RankTrace*> ranks_;
  std::vector<Window> windows_;
  std::vector<std::vector<Waiting>> waiting_;  // of each row
  std::vector<size_t> next_, free_;            // of each row: the event that comes next, and its first free place
  std::map<std::pair<const Group*, uint64_t>, std::vector<size_t>> callers_;  // the rows that make a call
  std::map<std::pair<Way, size_t>, std::optional<size_t>> sends_;             // their places
  std::map<std::pair<Way, size_t>, size_t> receives_;
  size_t places_ = 0;
};

}  // namespace

Sequence sequence_of(const Timeline& timeline, size_t barrier) { return Sorter(timeline, barrier).sort(); }

}  // namespace trace
