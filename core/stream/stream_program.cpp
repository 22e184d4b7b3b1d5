// SPDX-License-Identifier: Apache-2.0
#include "stream/stream_program.hpp"

#include <fmt/format.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/failure.hpp"
#include "stream/stream_plan.hpp"

namespace tutti::core {
namespace {

constexpr uint32_t buffers = 3;
uint32_t number_of(uint32_t buffer) { return buffer == TUTTI_BUFFER_IN ? 0 : buffer == TUTTI_BUFFER_OUT ? 1 : 2; }

// Bytes of one rank's buffers.
struct Bytes {
  uint32_t buffer = 0;
  int64_t begin = 0, end = 0;
  bool overlaps(const Bytes& other) const { return buffer == other.buffer && begin < other.end && other.begin < end; }
};

}  // namespace

// Carries out the plans of all ranks by rising level, on paper.
class StreamCompiler {
 public:
  StreamCompiler(StreamProgram& program, const std::vector<StreamLaunch*>& launches)
      : program_(program), launches_(launches), states_(launches.size()) {
    program_.ranks_.resize(launches.size());
    for (size_t r = 0; r < launches.size(); ++r) {
      program_.plans_.push_back(launches[r]->plan->id);
      by_rank_[launches[r]->rank] = r;
      const auto& traffic = launches[r]->plan->traffic;
      for (uint32_t way = 0; way < traffic.size(); ++way)
        states_[r].ways[{traffic[way].peer, traffic[way].lane, traffic[way].outgoing}] = way;
    }
  }

  void run() {
    struct Turn {
      uint64_t level;
      size_t rank;
      const StreamStep* step;
    };
    std::vector<Turn> turns;
    for (size_t r = 0; r < launches_.size(); ++r)
      for (const StreamStep& step : launches_[r]->plan->steps) turns.push_back({step.level, r, &step});
    std::ranges::stable_sort(turns, {}, &Turn::level);
    count();
    for (const Turn& turn : turns) carry_out(turn.rank, *turn.step);
    if (!ready_.empty()) {
      const auto& [message, sent] = *ready_.begin();
      require_equal(std::get<0>(message), std::get<1>(message), sent.bytes, 0);
    }
    for (size_t r = 0; r < launches_.size(); ++r) wait_for_readers(r, nullptr);
    count();
    for (StreamProgram::Rank& rank : program_.ranks_)
      for (size_t i = 0; i < rank.commands.size(); ++i)
        if (rank.commands[i].sources) rank.commands[i].src = rank.sources.data() + rank.first_source[i];
  }

 private:
  // Where something lies: in a buffer of a rank of this process, or in a slot.
  struct Location {
    size_t rank = 0;
    uint32_t buffer = 0;
    uint64_t offset = 0;
    bool in_slot = false;
    uint32_t way = 0;
    uint64_t number = 0;
  };
  // Bytes of a rank that another rank of the process reads.
  struct Reading {
    Bytes range;
    size_t read;  // of the program's
  };
  // Bytes of a rank that another process reads where they are, until it returns the message.
  struct Lent {
    Bytes range;
    uint32_t way;
    uint64_t number;
  };
  struct RankState {
    std::vector<Reading> readings;        // that the rank has not waited for
    std::vector<Lent> lent;               // likewise
    uint32_t here = StreamProgram::none;  // the event at the end of the commands, where one is there
    std::map<StreamWayKey, uint32_t> ways;
  };
  struct Ready {
    uint32_t event;
    Location from;
    uint64_t bytes;
  };

  const Plan& plan(size_t r) const { return launches_[r]->plan->plan; }

  void count() {
    for (size_t r = 0; program_.counts_ && r < launches_.size(); ++r) add(r, {});
  }

  void carry_out(size_t r, const StreamStep& step) {
    const BoundStep& bound = plan(r).lanes[step.lane][step.step];
    if (bound.out) return put(r, bound, step);
    if (bound.in) return fetch(r, bound, step);
    uint64_t bytes = 0;
    const Location dst = locate(r, bound.dst, step, &bytes);
    std::vector<Location> sources;
    if (bound.kind == TUTTI_STEP_COPY) {
      sources.push_back(locate(r, bound.src, step, &bytes));
      const Bytes from = range(sources[0], bytes), to = range(dst, bytes);
      if (from.buffer == to.buffer && from.begin == to.begin && !bound.divisor) return;
    } else {
      for (uint32_t i = 0; i < bound.sources; ++i)
        sources.push_back(locate(r, plan(r).sources[bound.first_source + i], step, &bytes));
    }
    compute(r, bound.divisor, dst, sources, bytes);
  }

  void put(size_t r, const BoundStep& bound, const StreamStep& step) {
    Location from;
    if (step.bytes) from = locate(r, bound.src, step, nullptr, step.offset);
    const uint32_t peer = bound.out->peer;
    if (by_rank_.contains(peer)) {
      ready_[{launches_[r]->rank, peer, step.lane, step.number}] = {event_here(r), from, step.bytes};
      return;
    }
    const uint32_t way = states_[r].ways.at({peer, step.lane, true});
    if (launches_[r]->plan->windows) {
      add_flag(r, TUTTI_COMMAND_WRITE, StreamProgram::CommandField::awaited, way, step.number, 0);
      add_flag(r, TUTTI_COMMAND_WRITE, StreamProgram::CommandField::notified, way, step.number, 1);
      states_[r].lent.push_back({range(from, step.bytes), way, step.number});
      return;
    }
    await_slot(r, way, step.number);
    if (step.bytes) add_copy(r, slot(way, step.number), from, step.bytes);
    add_flag(r, TUTTI_COMMAND_WRITE, StreamProgram::CommandField::notified, way, step.number, 1);
  }

  void fetch(size_t r, const BoundStep& bound, const StreamStep& step) {
    const uint32_t peer = bound.in->peer;
    const auto local = by_rank_.find(peer);
    const bool near = local != by_rank_.end();
    const uint32_t way = near ? 0 : states_[r].ways.at({peer, step.lane, false});
    Location incoming = slot(way, step.number);
    if (near) {
      const auto found = ready_.find({peer, launches_[r]->rank, step.lane, step.number});
      require_equal(peer, launches_[r]->rank, found == ready_.end() ? 0 : found->second.bytes, step.bytes);
      if (found == ready_.end()) throw Failure(TUTTI_INTERNAL, "a stream fetches what was not put: levels are wrong");
      incoming = found->second.from;
      add_event(r, TUTTI_COMMAND_AFTER, local->second, found->second.event);
      ready_.erase(found);
    } else {
      await_slot(r, way, step.number);
    }
    if (step.bytes) {
      const Location dst = locate(r, bound.dst, step, nullptr, step.offset);
      std::vector<Location> sources{incoming};
      if (bound.kind == TUTTI_STEP_RECV_REDUCE)
        sources.insert(bound.incoming_left ? sources.end() : sources.begin(),
                       locate(r, bound.src, step, nullptr, step.offset));
      compute(r, bound.kind == TUTTI_STEP_RECV ? 0 : bound.divisor, dst, sources, step.bytes);
      if (near) {
        states_[local->second].readings.push_back({range(incoming, step.bytes), program_.reads_.size()});
        program_.reads_.push_back({local->second, r, program_.ranks_[r].commands.size() - 1, UINT64_MAX});
      }
    }
    if (!near) add_flag(r, TUTTI_COMMAND_WRITE, StreamProgram::CommandField::notified, way, step.number, 1);
  }

  // A rank of the process sends as many bytes as the other one expects. Where blocks are unequal the application sees
  // to that.
  void require_equal(uint32_t from, uint32_t to, uint64_t sent, uint64_t expected) const {
    if (sent == expected) return;
    const Plan& any = plan(0);
    const auto elements = [&](uint64_t bytes) { return bytes / any.element_bytes; };
    if (!has_unequal_blocks(any.shape.collective))
      throw Failure(TUTTI_INTERNAL, "streams fetch other messages than were put: levels are wrong");
    throw Failure(
        TUTTI_MISMATCH,
        fmt::format("rank {} expects {} elements from rank {} in {}, but rank {} sends {}: the two ends of a "
                    "block must have the same count",
                    to, elements(expected), from, collective_name(any.shape.collective), from, elements(sent)));
  }

  // dst = fold of the sources, divided unless `divisor` is 0.
  void compute(size_t r, uint64_t divisor, const Location& dst, const std::vector<Location>& sources, uint64_t bytes) {
    if (!bytes) return;
    const Bytes written = range(dst, bytes);
    wait_for_readers(r, &written);
    if (sources.size() == 1 && !divisor) return add_copy(r, dst, sources[0], bytes);
    const Shape& shape = plan(r).shape;
    tutti_command command{};
    command.kind = TUTTI_COMMAND_REDUCE, command.dtype = shape.dtype;
    command.op = shape.op == TUTTI_AVG ? uint32_t{TUTTI_SUM} : shape.op;
    command.count = bytes / plan(r).element_bytes;
    command.divisor = divisor;
    if (shape.order == Order::exact) command.flags = TUTTI_COMMAND_EXACT;
    add_work(r, command, dst, sources);
  }

  // Before rank r overwrites `written`: all that read it have to be done. nullptr: all of the rank's memory.
  void wait_for_readers(size_t r, const Bytes* written) {
    RankState& state = states_[r];
    std::set<size_t> readers;
    for (const Reading& reading : state.readings)
      if (!written || written->overlaps(reading.range)) readers.insert(program_.reads_[reading.read].reader);
    for (const size_t reader : readers) {
      add_event(r, TUTTI_COMMAND_AFTER, reader, event_here(reader));
      const uint64_t cover = program_.ranks_[r].commands.size() - 1;
      std::erase_if(state.readings, [&](const Reading& reading) {
        StreamProgram::PeerRead& read = program_.reads_[reading.read];
        if (read.reader == reader) read.cover = cover;
        return read.reader == reader;
      });
    }
    std::erase_if(state.lent, [&](const Lent& lent) {
      if (written && !written->overlaps(lent.range)) return false;
      add_flag(r, TUTTI_COMMAND_WAIT, StreamProgram::CommandField::awaited, lent.way, lent.number, 1);
      return true;
    });
  }

  // An event at the present end of a rank's commands.
  uint32_t event_here(size_t r) {
    RankState& state = states_[r];
    if (state.here == StreamProgram::none) {
      const uint32_t event = program_.ranks_[r].events++;
      add_event(r, TUTTI_COMMAND_RECORD, r, event);
      state.here = event;
    }
    return state.here;
  }

  Location locate(size_t r, const Operand& operand, const StreamStep& step, uint64_t* bytes,
                  uint64_t further = 0) const {
    const Piece piece = piece_of(plan(r), part_of(plan(r), operand, step.part), step.slice);
    if (bytes) *bytes = piece.bytes;
    Location made;
    made.rank = r;
    made.buffer = number_of(operand.buffer);
    made.offset = piece.offset + further;
    return made;
  }
  static Location slot(uint32_t way, uint64_t number) {
    Location made;
    made.in_slot = true;
    made.way = way;
    made.number = number;
    return made;
  }
  // In place, IN is a part of OUT or the other way round.
  Bytes range(const Location& at, uint64_t bytes) const {
    const StreamLaunch& launch = *launches_[at.rank];
    Bytes made{at.buffer, static_cast<int64_t>(at.offset), static_cast<int64_t>(at.offset + bytes)};
    if (at.buffer == 0 && plan(at.rank).shape.in_place) {
      const int64_t apart = launch.in - launch.out;
      made = {1, made.begin + apart, made.end + apart};
    }
    return made;
  }

  void add_copy(size_t r, const Location& dst, const Location& src, uint64_t bytes) {
    add_work(r, {.kind = TUTTI_COMMAND_COPY, .count = bytes}, dst, {src});
  }
  void add_work(size_t r, tutti_command command, const Location& dst, const std::vector<Location>& sources) {
    StreamProgram::Rank& rank = program_.ranks_[r];
    command.sources = static_cast<uint32_t>(sources.size());
    const uint32_t at = add(r, command);
    add_relocation(rank, at, StreamProgram::none, dst);
    for (const Location& source : sources) {
      add_relocation(rank, at, static_cast<uint32_t>(rank.sources.size()), source);
      rank.sources.push_back(nullptr);
    }
  }
  static void add_relocation(StreamProgram::Rank& rank, uint32_t command, uint32_t source, const Location& location) {
    if (location.in_slot) {
      const auto part = source == StreamProgram::none ? StreamProgram::CommandField::destination
                                                      : StreamProgram::CommandField::source;
      rank.slots.push_back({command, part, source, location.way, location.number});
    } else {
      rank.addresses.push_back(
          {command, source, static_cast<uint32_t>(location.rank) * buffers + location.buffer, location.offset});
    }
  }
  void await_slot(size_t r, uint32_t way, uint64_t number) {
    add_flag(r, TUTTI_COMMAND_WAIT, StreamProgram::CommandField::awaited, way, number, 1);
    add_flag(r, TUTTI_COMMAND_WRITE, StreamProgram::CommandField::awaited, way, number, 0);
  }
  void add_flag(size_t r, uint32_t kind, StreamProgram::CommandField part, uint32_t way, uint64_t number,
                uint32_t value) {
    const tutti_command command{.kind = kind, .value = value};
    program_.ranks_[r].slots.push_back({add(r, command), part, StreamProgram::none, way, number});
  }
  void add_event(size_t r, uint32_t kind, size_t of, uint32_t event) {
    const tutti_command command{.kind = kind};
    program_.ranks_[r].event_uses.push_back({add(r, command), static_cast<uint32_t>(of), event});
  }
  uint32_t add(size_t r, const tutti_command& command) {
    StreamProgram::Rank& rank = program_.ranks_[r];
    states_[r].here = StreamProgram::none;
    rank.first_source.push_back(static_cast<uint32_t>(rank.sources.size()));
    rank.commands.push_back(command);
    auto& runs = program_.runs_;
    if (runs.empty() || runs.back().rank != r) runs.push_back({r, rank.commands.size() - 1, 0});
    runs.back().to = rank.commands.size();
    return static_cast<uint32_t>(rank.commands.size() - 1);
  }

  StreamProgram& program_;
  const std::vector<StreamLaunch*>& launches_;
  std::vector<RankState> states_;
  std::map<uint32_t, size_t> by_rank_;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t, uint64_t>, Ready> ready_;  // from, to, lane, number
};

StreamProgram::StreamProgram(const std::vector<StreamLaunch*>& launches)
    : counts_(launches.front()->counter), bases_(launches.size() * buffers) {
  StreamCompiler(*this, launches).run();
}

bool StreamProgram::serves(const std::vector<StreamLaunch*>& launches) const {
  return counts_ == (launches.front()->counter != nullptr) &&
         std::ranges::equal(plans_, launches, {}, {}, [](const StreamLaunch* launch) { return launch->plan->id; });
}

void StreamProgram::relocate(const std::vector<StreamLaunch*>& launches, const StreamWriter& writer) {
  for (size_t r = 0; r < launches.size(); ++r) {
    bases_[r * buffers] = launches[r]->in;
    bases_[r * buffers + 1] = launches[r]->out;
    bases_[r * buffers + 2] = launches[r]->scratch;
  }
  for (size_t r = 0; r < launches.size(); ++r) {
    Rank& rank = ranks_[r];
    for (const Address& address : rank.addresses) {
      std::byte* const at = bases_[address.base] + address.offset;
      if (address.source == none)
        rank.commands[address.command].dst = at;
      else
        rank.sources[address.source] = at;
    }
    const SlotUse* last = nullptr;
    StreamSlot slot;
    for (const SlotUse& use : rank.slots) {
      if (!last || last->way != use.way || last->number != use.number) slot = launches[r]->slot(use.way, use.number);
      last = &use;
      tutti_command& command = rank.commands[use.command];
      switch (use.part) {
        case CommandField::destination:
          command.dst = slot.data;
          break;
        case CommandField::source:
          rank.sources[use.source] = slot.data;
          break;
        case CommandField::awaited:
          command.flag = slot.awaited;
          break;
        case CommandField::notified:
          command.flag = slot.notified;
          break;
      }
    }
    if (counts_) {
      rank.commands.front() = launches[r]->counter->store(launches[r]->first);
      rank.commands.back() = launches[r]->counter->store(launches[r]->last);
    }
    for (const EventUse& use : rank.event_uses)
      rank.commands[use.command].event = writer.event_of(use.rank, use.number);
  }
}

bool StreamProgram::reads(size_t owner, uint64_t owners_commands, size_t reader, uint64_t readers_commands) const {
  return std::ranges::any_of(reads_, [&](const PeerRead& read) {
    return read.owner == owner && read.reader == reader && read.at < readers_commands && read.cover >= owners_commands;
  });
}

}  // namespace tutti::core
