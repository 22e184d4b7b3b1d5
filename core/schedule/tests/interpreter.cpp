// SPDX-License-Identifier: Apache-2.0
#include "interpreter.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <tuple>

namespace tutti::hand {
namespace {

// LOAD and FINAL multiply; the numbers are odd and large, so that no wrong combination comes out right.
constexpr uint64_t load_factor = 0x9e3779b97f4a7c15u, final_factor = 0xc2b2ae3d27d4eb4fu;

struct Place {
  uint32_t rank, buffer, chunk, slice;
  auto operator<=>(const Place&) const = default;
};

class Interpreter {
 public:
  Interpreter(const Case& c, uint32_t slices, Pace pace, uint64_t seed)
      : case_(c), slices_(slices), pace_(pace), random_(seed) {
    for (uint32_t rank = 0; rank < c.problem.nranks; ++rank)
      for (uint32_t lane = 0; lane < c.schedules[rank].lanes.size(); ++lane) add_lane(rank, lane);
    match();
    fill();
  }

  std::string run() {
    size_t left = steps_.size();
    while (left) {
      std::vector<size_t> ready;
      for (size_t i = 0; i < steps_.size(); ++i)
        if (!steps_[i].done && may_run(i)) ready.push_back(i);
      if (ready.empty()) return "no step can run: " + std::to_string(left) + " are left";
      left -= execute(ready[random_() % ready.size()]);
    }
    return check();
  }

 private:
  struct Running {
    const Step* step;
    uint32_t rank, lane, slice, place;  // place: in the lane, over all slices
    size_t lane_begin;
    size_t partner = SIZE_MAX;
    bool done = false;
    std::vector<Place> reads, writes;
    std::vector<uint64_t> message;
  };

  uint32_t blocks(uint32_t rank, uint32_t buffer) const {
    return block_count(case_.problem.collective, case_.problem.nranks, case_.problem.root, rank, buffer);
  }

  // The one name of a place that in-place gives two.
  Place place(uint32_t rank, uint32_t buffer, uint32_t chunk, uint32_t slice) const {
    const Schedule& s = case_.schedules[rank];
    if (buffer == TUTTI_BUFFER_SCRATCH)
      return {rank, buffer, chunk, s.scratch_copies ? slice % s.scratch_copies : slice};
    const uint32_t ins = blocks(rank, TUTTI_BUFFER_IN), outs = blocks(rank, TUTTI_BUFFER_OUT);
    if (!case_.problem.in_place[rank] || !ins || !outs) return {rank, buffer, chunk, slice};
    if (ins < outs && buffer == TUTTI_BUFFER_IN) return {rank, TUTTI_BUFFER_OUT, rank * s.pieces() + chunk, slice};
    if (outs < ins && buffer == TUTTI_BUFFER_OUT) return {rank, TUTTI_BUFFER_IN, rank * s.pieces() + chunk, slice};
    return {rank, ins == outs ? uint32_t{TUTTI_BUFFER_OUT} : buffer, chunk, slice};
  }

  void add_lane(uint32_t rank, uint32_t lane) {
    const size_t begin = steps_.size();
    lane_begin_[{rank, lane}] = begin;
    uint32_t at = 0;
    for (uint32_t slice = 0; slice < slices_; ++slice)
      for (const Step& step : case_.schedules[rank].lanes[lane]) {
        Running r{&step, rank, lane, slice, at++, begin};
        const auto places = [&](const tutti_span& span, std::vector<Place>& list) {
          for (uint32_t i = 0; span.buffer && i < span.chunks; ++i)
            list.push_back(place(rank, span.buffer, span.first + i, slice));
        };
        places(step.op.src, r.reads);
        for (const tutti_span& source : step.sources) places(source, r.reads);
        places(step.op.dst, r.writes);
        steps_.push_back(std::move(r));
      }
  }

  static bool is_send(const Step& s) {
    return s.op.kind == TUTTI_STEP_SEND || (s.op.kind == TUTTI_STEP_SIGNAL && !(s.op.flags & TUTTI_STEP_WAIT));
  }
  static bool is_message(const Step& s) {
    return s.op.kind <= TUTTI_STEP_RECV_REDUCE || s.op.kind == TUTTI_STEP_SIGNAL;
  }

  void match() {
    std::map<std::tuple<uint32_t, uint32_t, uint32_t>, std::vector<size_t>> sends, receives;
    for (size_t i = 0; i < steps_.size(); ++i) {
      const Running& r = steps_[i];
      if (!is_message(*r.step)) continue;
      if (is_send(*r.step))
        sends[{r.rank, r.step->op.peer, r.lane}].push_back(i);
      else
        receives[{r.step->op.peer, r.rank, r.lane}].push_back(i);
    }
    for (const auto& [key, list] : sends)
      for (size_t k = 0; k < list.size() && k < receives[key].size(); ++k) {
        steps_[list[k]].partner = receives[key][k];
        steps_[receives[key][k]].partner = list[k];
      }
  }

  uint64_t input(uint32_t rank, uint32_t chunk, uint32_t slice) const {
    uint64_t x = (uint64_t{rank} << 40 | uint64_t{chunk} << 16 | slice) + 0x1234567;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }

  void fill() {
    for (uint32_t rank = 0; rank < case_.problem.nranks; ++rank)
      for (uint32_t slice = 0; slice < slices_; ++slice)
        for (uint32_t chunk = 0; chunk < blocks(rank, TUTTI_BUFFER_IN) * case_.schedules[rank].pieces(); ++chunk)
          memory_[place(rank, TUTTI_BUFFER_IN, chunk, slice)] = input(rank, chunk, slice);
  }

  bool conflicts(const Running& a, const Running& b) const {
    const auto meet = [](const std::vector<Place>& x, const std::vector<Place>& y) {
      return std::ranges::any_of(x, [&](const Place& p) { return std::ranges::find(y, p) != y.end(); });
    };
    return meet(a.writes, b.writes) || meet(a.writes, b.reads) || meet(a.reads, b.writes);
  }

  // Own conditions, without those of the other end of a message.
  bool may_start(size_t i) const {
    const Running& r = steps_[i];
    if (r.step->op.dependency_lane != TUTTI_NO_DEPENDENCY) {
      const uint32_t lane = r.step->op.dependency_lane;
      const size_t length = case_.schedules[r.rank].lanes[lane].size();
      if (!steps_[lane_begin_.at({r.rank, lane}) + r.slice * length + r.step->op.dependency_step].done) return false;
    }
    for (size_t before = r.lane_begin; before < i; ++before) {
      if (steps_[before].done) continue;
      if (conflicts(steps_[before], r)) return false;
      if (pace_ == Pace::strict && (before + 1 < i || !may_start(before))) return false;
    }
    return true;
  }
  bool may_run(size_t i) const {
    if (!may_start(i)) return false;
    const Running& r = steps_[i];
    if (!is_message(*r.step)) return true;
    if (r.partner == SIZE_MAX) return false;
    if (pace_ == Pace::strict) return may_start(r.partner);
    return is_send(*r.step) || steps_[r.partner].done;
  }

  uint64_t read(const Place& p) {
    const auto found = memory_.find(p);
    return found != memory_.end() ? found->second : random_();
  }

  size_t execute(size_t i) {
    Running& r = steps_[i];
    if (pace_ == Pace::strict && is_message(*r.step)) {
      Running& other = steps_[r.partner];
      carry_out(is_send(*r.step) ? r : other);
      carry_out(is_send(*r.step) ? other : r);
      return 2;
    }
    carry_out(r);
    return 1;
  }

  void carry_out(Running& r) {
    const tutti_step& op = r.step->op;
    const auto scaled = [&](uint64_t value, bool load) { return load ? value * load_factor : value; };
    const bool load = op.flags & TUTTI_STEP_LOAD;
    r.done = true;
    if (is_send(*r.step)) {
      for (const Place& p : r.reads) r.message.push_back(scaled(read(p), load));
      return;
    }
    if (op.kind == TUTTI_STEP_SIGNAL || op.kind == TUTTI_STEP_NOP) return;
    std::vector<uint64_t> values(r.writes.size(), 0);
    for (size_t k = 0; k < r.reads.size(); ++k) {
      const size_t source = k / values.size();
      const bool raw = op.kind != TUTTI_STEP_REDUCE || r.step->sources[source].buffer == TUTTI_BUFFER_IN;
      values[k % values.size()] += scaled(read(r.reads[k]), load && raw);
    }
    for (size_t k = 0; k < values.size(); ++k) {
      if (is_message(*r.step)) values[k] += steps_[r.partner].message[k];
      memory_[r.writes[k]] = op.flags & TUTTI_STEP_FINAL ? values[k] * final_factor : values[k];
    }
  }

  uint64_t expected(uint32_t rank, uint32_t block, uint32_t piece, uint32_t slice) const {
    const uint32_t pieces = case_.schedules[rank].pieces();
    const uint32_t mine = rank * pieces + piece;
    const uint32_t ranks = contributors(case_.problem.collective, case_.problem.nranks, rank);
    const auto sum = [&](uint32_t chunk) {
      uint64_t total = 0;
      for (uint32_t r = 0; r < ranks; ++r) total += input(r, chunk, slice) * load_factor;
      return total * final_factor;
    };
    switch (case_.problem.collective) {
      case TUTTI_BROADCAST:
        return input(case_.problem.root, piece, slice);
      case TUTTI_SCATTER:
        return input(case_.problem.root, mine, slice);
      case TUTTI_ALL_TO_ALL:
        return input(block, mine, slice);
      case TUTTI_REDUCE:
      case TUTTI_ALL_REDUCE:
      case TUTTI_SCAN:
      case TUTTI_EXCLUSIVE_SCAN:
        return sum(piece);
      case TUTTI_REDUCE_SCATTER:
        return sum(mine);
      default:
        return input(block, piece, slice);
    }
  }

  std::string check() {
    for (uint32_t rank = 0; rank < case_.problem.nranks; ++rank) {
      const uint32_t pieces = case_.schedules[rank].pieces();
      for (uint32_t slice = 0; slice < slices_; ++slice) {
        for (uint32_t chunk = 0; chunk < blocks(rank, TUTTI_BUFFER_OUT) * pieces; ++chunk)
          if (read(place(rank, TUTTI_BUFFER_OUT, chunk, slice)) !=
              expected(rank, chunk / pieces, chunk % pieces, slice))
            return "rank " + std::to_string(rank) + ": out[" + std::to_string(chunk) + "] is wrong";
        if (case_.problem.in_place[rank]) continue;
        for (uint32_t chunk = 0; chunk < blocks(rank, TUTTI_BUFFER_IN) * pieces; ++chunk)
          if (read(place(rank, TUTTI_BUFFER_IN, chunk, slice)) != input(rank, chunk, slice))
            return "rank " + std::to_string(rank) + ": in[" + std::to_string(chunk) + "] was written";
      }
    }
    return {};
  }

  const Case& case_;
  uint32_t slices_;
  Pace pace_;
  std::mt19937_64 random_;
  std::vector<Running> steps_;
  std::map<std::pair<uint32_t, uint32_t>, size_t> lane_begin_;
  std::map<Place, uint64_t> memory_;
};

}  // namespace

std::string interpret(const Case& c, uint32_t slices, Pace pace, uint64_t seed) {
  return Interpreter(c, slices, pace, seed).run();
}

}  // namespace tutti::hand
