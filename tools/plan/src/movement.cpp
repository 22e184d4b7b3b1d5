// SPDX-License-Identifier: Apache-2.0
#include "movement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <stdexcept>
#include <tuple>

namespace tutti::plan {
namespace {

bool sends(const tutti_step& op) {
  return op.kind == TUTTI_STEP_SEND || (op.kind == TUTTI_STEP_SIGNAL && !(op.flags & TUTTI_STEP_WAIT));
}
bool receives(const tutti_step& op) {
  return op.kind == TUTTI_STEP_RECV || op.kind == TUTTI_STEP_RECV_REDUCE ||
         (op.kind == TUTTI_STEP_SIGNAL && (op.flags & TUTTI_STEP_WAIT));
}

// The size of each piece of a block.
std::vector<double> pieces_of(const Schedule& schedule) {
  std::vector<double> pieces;
  double before = 0;
  for (const tutti_cut& cut : schedule.cuts) {
    const double at = double(cut.p) / cut.q;
    pieces.push_back(at - before);
    before = at;
  }
  pieces.push_back(1 - before);
  return pieces;
}

double size_of(const Schedule& schedule, const std::vector<double>& pieces, const tutti_span& span) {
  double size = 0;
  for (uint32_t i = span.first; i < span.first + span.chunks; ++i)
    size += pieces[span.buffer == TUTTI_BUFFER_SCRATCH ? schedule.scratch[i].piece : i % pieces.size()];
  return size;
}

// A chunk of some rank's buffer, as the steps so far have left it.
struct Chunk {
  uint32_t depth = 0;  // messages in a chain before its last change
  uint32_t read = 0;   // the same of what has read it since
  bool followed = false;
};

// Goes through the steps in an order in which they could be carried out.
class Walk {
 public:
  Walk(const Problem& problem, const std::vector<Schedule>& schedules, const StepTimes& times)
      : schedules_(schedules), times_(times), pieces_(pieces_of(schedules[0])), chunks_(schedules.size()) {
    in_place_ = problem.in_place;
    in_place_.resize(schedules.size(), false);
    for (uint32_t rank = 0; rank < schedules.size(); ++rank) {
      const auto blocks = [&](uint32_t buffer) {
        return block_count(problem.collective, problem.nranks, problem.root, rank, buffer);
      };
      chunks_[rank][TUTTI_BUFFER_IN].resize(blocks(TUTTI_BUFFER_IN) * pieces_.size());
      chunks_[rank][TUTTI_BUFFER_OUT].resize(blocks(TUTTI_BUFFER_OUT) * pieces_.size());
      chunks_[rank][TUTTI_BUFFER_SCRATCH].resize(schedules[rank].scratch.size());
      auto& rounds = movement_.step_round.emplace_back();
      auto& followed = movement_.followed.emplace_back();
      auto& depths = depths_.emplace_back();
      for (const auto& lane : schedules[rank].lanes) {
        rounds.emplace_back(lane.size(), 1);
        followed.emplace_back(lane.size(), false);
        depths.emplace_back(lane.size(), 0);
      }
    }
  }

  void follow(const Follow& follow) {
    bool found = false;
    for (uint32_t rank = 0; rank < chunks_.size(); ++rank) {
      if ((follow.rank && *follow.rank != rank) || follow.chunk >= chunks_[rank][TUTTI_BUFFER_IN].size()) continue;
      chunk_at(rank, TUTTI_BUFFER_IN, follow.chunk).followed = found = true;
    }
    if (!found)
      throw std::invalid_argument(
          fmt::format("there is no chunk {} to be followed{}: IN of rank {} has {}", follow.chunk,
                      follow.rank ? fmt::format(" at rank {}", *follow.rank) : "", follow.rank.value_or(0),
                      chunks_[std::min<size_t>(follow.rank.value_or(0), chunks_.size() - 1)][TUTTI_BUFFER_IN].size()));
  }

  Movement run() {
    for (const Place& place : in_order()) carry_out(place);
    // In a lane the rounds of steps do not decrease, so that a drawing can go from left to right.
    for (auto& rank : movement_.step_round)
      for (auto& lane : rank)
        for (size_t i = 1; i < lane.size(); ++i) lane[i] = std::max(lane[i], lane[i - 1]);
    std::stable_sort(movement_.messages.begin(), movement_.messages.end(),
                     [](const Message& a, const Message& b) { return a.round < b.round; });
    return std::move(movement_);
  }

 private:
  struct Place {
    double end;
    bool receives;
    uint32_t rank, lane, step;
  };
  std::vector<Place> in_order() const {
    std::vector<Place> places;
    for (uint32_t rank = 0; rank < times_.size(); ++rank)
      for (uint32_t lane = 0; lane < times_[rank].size(); ++lane)
        for (uint32_t step = 0; step < times_[rank][lane].size(); ++step)
          places.push_back(
              {times_[rank][lane][step].end, receives(schedules_[rank].lanes[lane][step].op), rank, lane, step});
    std::stable_sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
      return a.end != b.end ? a.end < b.end : a.receives != b.receives ? b.receives : a.step < b.step;
    });
    return places;
  }

  // In place IN is OUT, or the rank's block of the larger one.
  Chunk& chunk_at(uint32_t rank, uint32_t buffer, uint32_t chunk) {
    auto& of = chunks_[rank];
    const size_t in = of[TUTTI_BUFFER_IN].size(), out = of[TUTTI_BUFFER_OUT].size();
    if (in_place_[rank] && buffer == TUTTI_BUFFER_IN && in && in <= out)
      return of[TUTTI_BUFFER_OUT][chunk + (in < out ? rank * in : 0)];
    if (in_place_[rank] && buffer == TUTTI_BUFFER_OUT && out && out < in)
      return of[TUTTI_BUFFER_IN][chunk + rank * out];
    return of[buffer][chunk];
  }

  // Reads and writes of a step: how deep they make it, and whether they touch the chunk that is followed.
  struct Access {
    uint32_t depth = 0;
    std::vector<bool> followed;  // by chunk of the span
  };
  void read(uint32_t rank, const tutti_span& span, Access& access) {
    access.followed.resize(std::max<size_t>(access.followed.size(), span.chunks));
    for (uint32_t i = 0; i < span.chunks; ++i) {
      const Chunk& chunk = chunk_at(rank, span.buffer, span.first + i);
      access.depth = std::max(access.depth, chunk.depth);
      if (chunk.followed) access.followed[i] = true;
    }
  }
  void note_read(uint32_t rank, const tutti_span& span, uint32_t depth) {
    for (uint32_t i = 0; i < span.chunks; ++i) {
      uint32_t& read = chunk_at(rank, span.buffer, span.first + i).read;
      read = std::max(read, depth);
    }
  }
  void before_write(uint32_t rank, const tutti_span& span, Access& access) {
    for (uint32_t i = 0; i < span.chunks; ++i) {
      const Chunk& chunk = chunk_at(rank, span.buffer, span.first + i);
      access.depth = std::max({access.depth, chunk.depth, chunk.read});
    }
  }
  void write(uint32_t rank, const tutti_span& span, const Access& access) {
    for (uint32_t i = 0; i < span.chunks; ++i)
      chunk_at(rank, span.buffer, span.first + i) = {access.depth, 0, i < access.followed.size() && access.followed[i]};
  }

  void carry_out(const Place& at) {
    const Step& step = schedules_[at.rank].lanes[at.lane][at.step];
    const tutti_step& op = step.op;
    Access access;
    if (op.dependency_lane != TUTTI_NO_DEPENDENCY)
      access.depth = depths_[at.rank][op.dependency_lane][op.dependency_step];
    if (op.src.buffer) read(at.rank, op.src, access);
    for (const tutti_span& source : step.sources) read(at.rank, source, access);
    const uint32_t partner = times_[at.rank][at.lane][at.step].partner_step;
    if (at.receives && partner != TUTTI_NO_DEPENDENCY) receive(at, op, partner, access);
    if (op.dst.buffer) before_write(at.rank, op.dst, access);
    if (op.src.buffer) note_read(at.rank, op.src, access.depth);
    for (const tutti_span& source : step.sources) note_read(at.rank, source, access.depth);
    if (op.dst.buffer) write(at.rank, op.dst, access);
    depths_[at.rank][at.lane][at.step] = access.depth;
    const bool followed = std::find(access.followed.begin(), access.followed.end(), true) != access.followed.end();
    movement_.followed[at.rank][at.lane][at.step] = followed;
    if (sends(op) && partner != TUTTI_NO_DEPENDENCY)
      send(at, op, partner, access, followed);
    else if (!at.receives)
      movement_.step_round[at.rank][at.lane][at.step] = std::max(1u, access.depth);
  }

  void send(const Place& at, const tutti_step& op, uint32_t partner, const Access& access, bool followed) {
    Message message;
    message.from = at.rank;
    message.to = op.peer;
    message.lane = at.lane;
    message.send = at.step;
    message.receive = partner;
    message.round = access.depth + 1;
    message.blocks = op.src.buffer ? size_of(schedules_[at.rank], pieces_, op.src) : 0;
    message.reduces = schedules_[op.peer].lanes[at.lane][partner].op.kind == TUTTI_STEP_RECV_REDUCE;
    message.followed = followed;
    movement_.rounds = std::max(movement_.rounds, message.round);
    movement_.step_round[at.rank][at.lane][at.step] = message.round;
    movement_.messages.push_back(message);
    in_flight_[{at.rank, at.lane, at.step}] = access.followed;
  }

  void receive(const Place& at, const tutti_step& op, uint32_t partner, Access& access) {
    const uint32_t sent = depths_[op.peer][at.lane][partner];
    access.depth = std::max(access.depth, sent + 1);
    movement_.step_round[at.rank][at.lane][at.step] = sent + 1;
    const auto found = in_flight_.find({op.peer, at.lane, partner});
    if (found == in_flight_.end()) return;  // a receive that ends before its send, which no simulation has
    const std::vector<bool>& followed = found->second;
    access.followed.resize(std::max(access.followed.size(), followed.size()));
    for (size_t i = 0; i < followed.size(); ++i)
      if (followed[i]) access.followed[i] = true;
    in_flight_.erase(found);
  }

  const std::vector<Schedule>& schedules_;
  const StepTimes& times_;
  const std::vector<double> pieces_;
  std::vector<bool> in_place_;
  std::vector<std::array<std::vector<Chunk>, 4>> chunks_;  // [rank][TUTTI_BUFFER_*]
  std::vector<std::vector<std::vector<uint32_t>>> depths_;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, std::vector<bool>> in_flight_;  // by rank, lane, step
  Movement movement_;
};

}  // namespace

Movement find_movement(const Problem& problem, const std::vector<Schedule>& schedules, const StepTimes& times,
                       const std::optional<Follow>& follow) {
  Walk walk(problem, schedules, times);
  if (follow) walk.follow(*follow);
  return walk.run();
}

std::string blocks_text(double blocks) {
  constexpr int most = 128;
  for (int q = 1; q <= most; ++q) {
    const double p = blocks * q;
    if (std::abs(p - std::round(p)) < 1e-9) return q == 1 ? fmt::format("{:.0f}", p) : fmt::format("{:.0f}/{}", p, q);
  }
  return fmt::format("{:.3g}", blocks);
}

}  // namespace tutti::plan
