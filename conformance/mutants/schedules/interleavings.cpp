// SPDX-License-Identifier: Apache-2.0
#include "mutants/schedules/interleavings.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "mutants/schedules/numbers.hpp"
#include "oracle/reference.hpp"

namespace tutti::conformance {
namespace {

constexpr size_t nobody = SIZE_MAX;

bool is_send(const Step& s) {
  return s.op.kind == TUTTI_STEP_SEND || (s.op.kind == TUTTI_STEP_SIGNAL && !(s.op.flags & TUTTI_STEP_WAIT));
}
bool is_message(const Step& s) { return s.op.kind <= TUTTI_STEP_RECV_REDUCE || s.op.kind == TUTTI_STEP_SIGNAL; }

// One step of one slice.
struct Node {
  const Step* step = nullptr;
  uint32_t rank = 0, lane = 0, slice = 0;
  size_t lane_begin = 0;  // the first node of its lane
  std::vector<Chunk> src, dst;
  std::vector<std::vector<Chunk>> sources;
  std::vector<uint32_t> reads, writes;            // locations of all its chunks ...
  std::vector<uint32_t> true_reads, true_writes;  // ... and of those that have elements
  bool empty = false;                             // a data step of no elements
  size_t partner = nobody;
  std::vector<size_t> before;  // what must have happened
};

// For each node the nodes that come after it, as bits.
class Reach {
 public:
  explicit Reach(size_t nodes) : words_((nodes + 63) / 64), bits_(nodes * words_, 0) {}
  bool operator()(size_t a, size_t b) const { return bits_[a * words_ + b / 64] >> (b % 64) & 1; }
  // Everything that reaches `a` (and a itself) now reaches b and what b reaches.
  void add(size_t a, size_t b) {
    const size_t nodes = bits_.size() / words_;
    for (size_t n = 0; n < nodes; ++n) {
      if (n != a && !(*this)(n, a)) continue;
      for (size_t w = 0; w < words_; ++w) bits_[n * words_ + w] |= bits_[b * words_ + w];
      bits_[n * words_ + b / 64] |= uint64_t{1} << (b % 64);
    }
  }

 private:
  size_t words_;
  std::vector<uint64_t> bits_;
};

class Search {
 public:
  Search(const ScheduleSet& set, Sizes sizes) : set_(set), numbers_(set, sizes) {
    for (uint32_t rank = 0; rank < set.problem.nranks; ++rank)
      for (uint32_t lane = 0; lane < set.schedules[rank].lanes.size(); ++lane) add_lane(rank, lane, sizes.slices);
    match();
    for (size_t i = 0; i < nodes_.size(); ++i) order_node(i);
  }

  SearchResult run() {
    result_.wrong = run_strictly();
    if (!result_.wrong.empty()) return result_;
    Reach reach(nodes_.size());
    for (size_t i = 0; i < nodes_.size(); ++i)
      for (const size_t before : nodes_[i].before) {
        if (before == i || reach(i, before)) return fail("its steps wait for each other");
        if (!reach(before, i)) reach.add(before, i);
      }
    for (size_t a = 0; a < nodes_.size(); ++a)
      for (size_t b = a + 1; b < nodes_.size(); ++b)
        if (nodes_[a].rank == nodes_[b].rank && true_conflict(a, b) && !reach(a, b) && !reach(b, a))
          rivals_.push_back({a, b});
    if (set_.problem.collective == TUTTI_BARRIER) check_barrier(reach);
    orient(0, reach);
    return result_;
  }

 private:
  SearchResult fail(std::string text) {
    result_.wrong = std::move(text);
    return result_;
  }

  void add_lane(uint32_t rank, uint32_t lane, uint32_t slices) {
    const size_t begin = nodes_.size();
    lane_begin_[{rank, lane}] = begin;
    for (uint32_t slice = 0; slice < slices; ++slice)
      for (const Step& step : set_.schedules[rank].lanes[lane]) {
        Node& n = nodes_.emplace_back();
        n.step = &step;
        n.rank = rank;
        n.lane = lane;
        n.slice = slice;
        n.lane_begin = begin;
        n.src = numbers_.chunks(rank, step.op.src, slice);
        n.dst = numbers_.chunks(rank, step.op.dst, slice);
        for (const tutti_span& source : step.sources) n.sources.push_back(numbers_.chunks(rank, source, slice));
        note(n.src, n.reads, n.true_reads);
        for (const auto& source : n.sources) note(source, n.reads, n.true_reads);
        note(n.dst, n.writes, n.true_writes);
        const auto has_none = [](const std::vector<Chunk>& list) {
          return std::all_of(list.begin(), list.end(), [](const Chunk& c) { return c.elements == 0; });
        };
        n.empty = step.op.kind < TUTTI_STEP_SIGNAL && has_none(n.src) && has_none(n.dst);
      }
  }

  static void note(const std::vector<Chunk>& chunks, std::vector<uint32_t>& all, std::vector<uint32_t>& with_elements) {
    for (const Chunk& c : chunks) {
      all.push_back(c.location);
      if (c.elements) with_elements.push_back(c.location);
    }
  }

  void match() {
    std::map<std::tuple<uint32_t, uint32_t, uint32_t>, std::vector<size_t>> sent, received;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const Node& n = nodes_[i];
      if (!is_message(*n.step)) continue;
      if (is_send(*n.step))
        sent[{n.rank, n.step->op.peer, n.lane}].push_back(i);
      else
        received[{n.step->op.peer, n.rank, n.lane}].push_back(i);
    }
    for (const auto& [way, list] : sent)
      for (size_t k = 0; k < list.size() && k < received[way].size(); ++k) {
        nodes_[list[k]].partner = received[way][k];
        nodes_[received[way][k]].partner = list[k];
      }
  }

  static bool meet(const std::vector<uint32_t>& x, const std::vector<uint32_t>& y) {
    return std::any_of(x.begin(), x.end(), [&](uint32_t at) { return std::find(y.begin(), y.end(), at) != y.end(); });
  }
  // Do they touch a common chunk, one of them writing? A lane keeps this order even where the chunk is empty.
  bool conflict(size_t a, size_t b) const {
    const Node &x = nodes_[a], &y = nodes_[b];
    return meet(x.writes, y.writes) || meet(x.writes, y.reads) || meet(x.reads, y.writes);
  }
  // And has it elements?
  bool true_conflict(size_t a, size_t b) const {
    const Node &x = nodes_[a], &y = nodes_[b];
    return meet(x.true_writes, y.true_writes) || meet(x.true_writes, y.true_reads) || meet(x.true_reads, y.true_writes);
  }

  void order_node(size_t i) {
    Node& n = nodes_[i];
    if (n.step->op.dependency_lane != TUTTI_NO_DEPENDENCY) {
      const size_t length = set_.schedules[n.rank].lanes[n.step->op.dependency_lane].size();
      n.before.push_back(lane_begin_.at({n.rank, n.step->op.dependency_lane}) + n.slice * length +
                         n.step->op.dependency_step);
    }
    for (size_t earlier = i; earlier-- > n.lane_begin;)  // the latest first: it often implies the others
      if (conflict(earlier, i)) n.before.push_back(earlier);
    if (is_message(*n.step) && !is_send(*n.step) && !n.empty && n.partner != nobody) n.before.push_back(n.partner);
  }

  // Every way to order the rivals from `next` on.
  void orient(size_t next, const Reach& reach) {
    if (!result_.wrong.empty() || !result_.complete) return;
    while (next < rivals_.size() &&
           (reach(rivals_[next].first, rivals_[next].second) || reach(rivals_[next].second, rivals_[next].first)))
      ++next;
    if (next == rivals_.size()) {
      if (result_.orders++ == most_orders) result_.complete = false;
      result_.wrong = run_in_order(reach);
      return;
    }
    const auto [a, b] = rivals_[next];
    for (const auto& [first, second] : {std::pair(a, b), std::pair(b, a)}) {
      Reach one = reach;
      one.add(first, second);
      orient(next + 1, one);
    }
  }

  // One order of all steps that `reach` allows: then only luck-free facts remain.
  std::string run_in_order(const Reach& reach) {
    std::vector<size_t> order(nodes_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::vector<size_t> earlier(nodes_.size(), 0);
    for (size_t a = 0; a < nodes_.size(); ++a)
      for (size_t b = 0; b < nodes_.size(); ++b) earlier[b] += reach(a, b);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return earlier[a] < earlier[b]; });
    Memory memory = numbers_.memory();
    std::vector<std::vector<uint64_t>> messages(nodes_.size());
    for (const size_t i : order) carry_out(i, memory, messages);
    return numbers_.judge(memory);
  }

  void carry_out(size_t i, Memory& memory, std::vector<std::vector<uint64_t>>& messages) const {
    const Node& n = nodes_[i];
    const tutti_step& op = n.step->op;
    if (n.empty || op.kind == TUTTI_STEP_SIGNAL || op.kind == TUTTI_STEP_NOP) return;
    const bool load = op.flags & TUTTI_STEP_LOAD;
    const auto read = [&](const Chunk& c, bool raw) {
      return raw ? Numbers::loaded(memory[c.location]) : memory[c.location];
    };
    if (is_send(*n.step)) {
      for (const Chunk& c : n.src) messages[i].push_back(read(c, load));
      return;
    }
    for (size_t k = 0; k < n.dst.size(); ++k) {
      uint64_t value = 0;
      if (!n.src.empty()) value += read(n.src[k], load);
      for (size_t s = 0; s < n.sources.size(); ++s)
        value += read(n.sources[s][k], load && n.step->sources[s].buffer == TUTTI_BUFFER_IN);
      if (n.partner != nobody) value += messages[n.partner][k];
      if (n.dst[k].elements) memory[n.dst[k].location] = op.flags & TUTTI_STEP_FINAL ? Numbers::finished(value) : value;
    }
  }

  // No rank may leave before all have arrived: a chain of messages leads from every rank to every other.
  void check_barrier(const Reach& reach) {
    for (uint32_t from = 0; from < set_.problem.nranks; ++from)
      for (uint32_t to = 0; to < set_.problem.nranks; ++to) {
        bool chained = from == to;
        for (size_t a = 0; a < nodes_.size() && !chained; ++a)
          for (size_t b = 0; b < nodes_.size() && !chained; ++b)
            chained = nodes_[a].rank == from && nodes_[b].rank == to && reach(a, b);
        if (!chained && result_.wrong.empty())
          result_.wrong = "rank " + std::to_string(to) + " may leave before rank " + std::to_string(from) + " has come";
      }
  }

  // Both ends of a message happen together; of each lane the first two steps that are left may be in flight.
  std::string run_strictly() const {
    std::vector<bool> done(nodes_.size(), false);
    const auto may_start = [&](size_t i) {
      const Node& n = nodes_[i];
      for (const size_t before : n.before)
        if (before != n.partner && !done[before]) return false;
      size_t undone = 0;
      for (size_t earlier = n.lane_begin; earlier < i; ++earlier) undone += !done[earlier];
      return undone < 2;
    };
    // The second in flight needs the first to have started.
    const auto in_flight = [&](size_t i) {
      if (!may_start(i)) return false;
      for (size_t earlier = nodes_[i].lane_begin; earlier < i; ++earlier)
        if (!done[earlier]) return may_start(earlier);
      return true;
    };
    size_t left = nodes_.size();
    for (bool moved = true; moved && left;) {
      moved = false;
      for (size_t i = 0; i < nodes_.size(); ++i) {
        const Node& n = nodes_[i];
        if (done[i] || !in_flight(i)) continue;
        const bool meets = is_message(*n.step) && !n.empty;
        if (meets && (n.partner == nobody || !in_flight(n.partner))) continue;
        done[i] = true;
        --left;
        if (meets) {
          done[n.partner] = true;
          --left;
        }
        moved = true;
      }
    }
    if (!left) return {};
    const auto stuck = static_cast<size_t>(std::find(done.begin(), done.end(), false) - done.begin());
    return "without buffering nothing moves any more: " + std::to_string(left) +
           " steps are left, one of them on rank " + std::to_string(nodes_[stuck].rank) + ": " +
           describe(*nodes_[stuck].step);
  }

  const ScheduleSet& set_;
  Numbers numbers_;
  std::vector<Node> nodes_;
  std::map<std::pair<uint32_t, uint32_t>, size_t> lane_begin_;
  std::vector<std::pair<size_t, size_t>> rivals_;
  SearchResult result_;
};

}  // namespace

SearchResult search_interleavings(const ScheduleSet& set, Sizes sizes) { return Search(set, sizes).run(); }

SearchResult search_all_sizes(const ScheduleSet& set) {
  const Schedule& any = set.schedules.front();
  const uint64_t pieces = any.pieces();
  std::set<uint32_t> slices{1};
  if (any.sliced()) {
    slices.insert(2);
    for (const Schedule& schedule : set.schedules)
      if (!schedule.scratch.empty() && schedule.scratch_copies) slices.insert(2 * schedule.scratch_copies + 1);
  }
  SearchResult all;
  for (const uint32_t s : slices)
    for (const uint64_t length : std::set<uint64_t>{1, 2, pieces - 1, pieces, pieces + 1, 2 * pieces * s}) {
      SearchResult one = search_interleavings(set, {length, s});
      all.orders += one.orders;
      all.complete = all.complete && one.complete;
      if (one.wrong.empty()) continue;
      all.wrong = "blocks of " + std::to_string(length) + " elements in " + std::to_string(s) + " slices: " + one.wrong;
      return all;
    }
  return all;
}

}  // namespace tutti::conformance
