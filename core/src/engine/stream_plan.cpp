// SPDX-License-Identifier: Apache-2.0
#include "engine/stream_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <tuple>

#include "bootstrap/failure.hpp"
#include "engine/host.hpp"

namespace tutti::core {

StreamPlan bind_stream_plan(const Problem& problem, const std::vector<Schedule> (&forms)[2], const Shape& shape,
                            uint64_t slices, uint32_t rank, std::vector<Link>& links,
                            const std::function<StreamWay(uint32_t from, uint32_t to)>& way) {
  StreamPlan made;
  made.plan = bind_plan(forms[shape.in_place != 0][rank], shape, slices, problem.nranks, rank, links);
  const StreamShape order{shape.count, made.plan.element_bytes, slices, way};
  if (const std::string error = order_for_stream(problem, forms, shape.in_place != 0, rank, order, &made.steps);
      !error.empty())
    throw Failure(TUTTI_INTERNAL, error);
  std::map<std::tuple<uint32_t, uint32_t, bool>, std::vector<uint64_t>> sizes;
  for (const StreamStep& step : made.steps) {
    const BoundStep& bound = made.plan.lanes[step.lane][step.step];
    const Link* link = bound.out ? bound.out : bound.in;
    if (!link) {
      made.bytes += piece_of(made.plan, bound.dst, step.slice).bytes * std::max<uint64_t>(1, bound.sources);
      continue;
    }
    made.bytes += step.bytes * (bound.kind == TUTTI_STEP_RECV_REDUCE ? 2 : 1);
    const bool outgoing = bound.out != nullptr;
    const StreamWay kind = outgoing ? way(rank, link->peer) : way(link->peer, rank);
    if (kind.slots) sizes[{link->peer, step.lane, outgoing}].push_back(step.bytes);
  }
  for (auto& [key, list] : sizes)
    made.traffic.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), std::move(list)});
  return made;
}

namespace {

// Bytes of a rank that another rank of the process reads.
struct Read {
  const std::byte* begin;
  const std::byte* end;
  size_t reader;
};

// Bytes of a rank that another process reads where they are, and the word that tells when it has.
struct Lent {
  const std::byte* begin;
  const std::byte* end;
  uint32_t* returned;
};

// One rank's stream while it is being filled.
struct Filling {
  StreamLaunch* launch = nullptr;
  std::vector<tutti_command> commands;           // not yet enqueued
  std::deque<std::vector<const void*>> sources;  // of those
  std::vector<Read> reads;                       // that may still be going on
  std::vector<Lent> lent;                        // likewise
  tutti_mark* here = nullptr;                    // the end of the stream, where a mark was set there
  size_t marks_used = 0;
  uint64_t noted = 0;  // of launch->commands: those before the newest stretch
};

// Commands that were put into streams one after the other, and the marks behind them.
struct Stretch {
  std::vector<tutti_mark*> ends;
  uint64_t commands = 0;
};

class Issue {
 public:
  Issue(const DeviceTables& device, const std::vector<StreamLaunch*>& launches, const std::function<void()>& meanwhile)
      : device_(device), meanwhile_(meanwhile) {
    for (StreamLaunch* launch : launches) {
      bounded_ |= !launch->plan->traffic.empty() && !launch->recorded;
      by_rank_[launch->rank] = ranks_.size();
      ranks_.emplace_back().launch = launch;
    }
  }

  void run() {
    struct Turn {
      uint64_t level;
      size_t rank;
      const StreamStep* step;
    };
    std::vector<Turn> turns;
    for (size_t r = 0; r < ranks_.size(); ++r)
      for (const StreamStep& step : ranks_[r].launch->plan->steps) turns.push_back({step.level, r, &step});
    std::stable_sort(turns.begin(), turns.end(), [](const Turn& a, const Turn& b) { return a.level < b.level; });
    for (size_t r = 0; r < ranks_.size(); ++r) begin(r);
    for (const Turn& turn : turns) {
      if (turn.rank != filling_) flush(filling_);
      filling_ = turn.rank;
      carry_out(turn.rank, *turn.step);
      if (bounded_ && !fusing()) keep_short();
    }
    if (fusing()) fuse(ranks_[0]);
    for (size_t r = 0; r < ranks_.size(); ++r) end(r);
  }

 private:
  const Plan& plan(size_t r) const { return ranks_[r].launch->plan->plan; }

  // Its commands are kept together until the end.
  bool fusing() const { return ranks_.size() == 1 && ranks_[0].launch->fuse; }

  // What the device does not take as one launch goes the ordinary way.
  void fuse(Filling& rank) {
    if (rank.commands.empty()) return;
    const tutti_executor* executor = device_.executor;
    const tutti_status status = executor->enqueue_fused(executor->self, rank.launch->stream, rank.commands.data(),
                                                        static_cast<uint32_t>(rank.commands.size()));
    if (status == TUTTI_NOT_SUPPORTED)
      return log(TUTTI_LOG_INFO, device_.memory->name,
                 fmt::format("rank {}: not in one launch: {}", rank.launch->rank, take_plugin_error()));
    if (status < 0) refuse(rank, status);
    rank.launch->fused = true;
    rank.launch->commands += 1;
    rank.commands.clear();
    rank.sources.clear();
  }

  [[noreturn]] void refuse(const Filling& rank, tutti_status status) const {
    throw Failure(status, fmt::format("device {}: the stream of rank {} refuses work: {}", device_.memory->name,
                                      rank.launch->rank, take_plugin_error()));
  }

  void begin(size_t r) {
    const StreamLaunch& launch = *ranks_[r].launch;
    if (launch.after) add_mark(r, TUTTI_COMMAND_AFTER, launch.after);
    if (launch.begin) add_mark(r, TUTTI_COMMAND_MARK, launch.begin);
    flush(r);
  }
  void end(size_t r) {
    wait_for_readers(r, nullptr, nullptr);
    if (ranks_[r].launch->end) add_mark(r, TUTTI_COMMAND_MARK, ranks_[r].launch->end);
    flush(r);
  }

  void carry_out(size_t r, const StreamStep& step) {
    const BoundStep& bound = plan(r).lanes[step.lane][step.step];
    if (bound.out) return put(r, bound, step);
    if (bound.in) return fetch(r, bound, step);
    uint64_t bytes = 0;
    std::byte* dst = address(r, bound.dst, step.slice, &bytes);
    std::vector<const void*> sources;
    if (bound.kind == TUTTI_STEP_COPY) {
      sources.push_back(address(r, bound.src, step.slice, &bytes));
      if (sources[0] == dst && !bound.divisor) return;
    } else {
      for (uint32_t i = 0; i < bound.sources; ++i)
        sources.push_back(address(r, plan(r).sources[bound.first_source + i], step.slice, &bytes));
    }
    compute(r, bound.divisor, dst, std::move(sources), bytes);
  }

  void put(size_t r, const BoundStep& bound, const StreamStep& step) {
    const std::byte* from = nullptr;
    if (step.bytes) from = address(r, bound.src, step.slice, nullptr) + step.offset;
    const uint32_t peer = bound.out->peer;
    if (by_rank_.contains(peer)) {
      ready_[{ranks_[r].launch->rank, peer, step.lane, step.number}] = {mark_here(r), from};
      return;
    }
    const StreamSlot slot = ranks_[r].launch->slot(peer, step.lane, true, step.number);
    if (!slot.data) {
      add_word(r, TUTTI_COMMAND_WRITE, slot.awaited, 0);
      add_word(r, TUTTI_COMMAND_WRITE, slot.told, 1);
      ranks_[r].lent.push_back({from, from + step.bytes, slot.awaited});
      return;
    }
    await_slot(r, slot);
    if (step.bytes) add_copy(r, static_cast<std::byte*>(slot.data), from, step.bytes);
    add_word(r, TUTTI_COMMAND_WRITE, slot.told, 1);
  }

  void fetch(size_t r, const BoundStep& bound, const StreamStep& step) {
    const uint32_t peer = bound.in->peer;
    const auto local = by_rank_.find(peer);
    StreamSlot slot;
    const std::byte* incoming = nullptr;
    if (local != by_rank_.end()) {
      const auto found = ready_.find({peer, ranks_[r].launch->rank, step.lane, step.number});
      if (found == ready_.end()) throw Failure(TUTTI_INTERNAL, "a stream fetches what was not put: levels are wrong");
      incoming = found->second.from;
      wait_for(r, local->second, found->second.mark);
      ready_.erase(found);
    } else {
      slot = ranks_[r].launch->slot(peer, step.lane, false, step.number);
      incoming = static_cast<const std::byte*>(slot.data);
      await_slot(r, slot);
    }
    if (step.bytes) {
      std::byte* dst = address(r, bound.dst, step.slice, nullptr) + step.offset;
      std::vector<const void*> sources{incoming};
      if (bound.kind == TUTTI_STEP_RECV_REDUCE) {
        const std::byte* own = address(r, bound.src, step.slice, nullptr) + step.offset;
        sources.insert(bound.incoming_left ? sources.end() : sources.begin(), own);
      }
      compute(r, bound.kind == TUTTI_STEP_RECV ? 0 : bound.divisor, dst, std::move(sources), step.bytes);
      if (local != by_rank_.end() && !same_stream(r, local->second))
        ranks_[local->second].reads.push_back({incoming, incoming + step.bytes, r});
    }
    if (slot.told) add_word(r, TUTTI_COMMAND_WRITE, slot.told, 1);
  }

  // dst = fold of the sources, divided unless `divisor` is 0.
  void compute(size_t r, uint64_t divisor, std::byte* dst, std::vector<const void*> sources, uint64_t bytes) {
    if (!bytes) return;
    wait_for_readers(r, dst, dst + bytes);
    if (sources.size() == 1 && !divisor) return add_copy(r, dst, static_cast<const std::byte*>(sources[0]), bytes);
    const Shape& shape = plan(r).shape;
    tutti_command command{};
    command.kind = TUTTI_COMMAND_REDUCE;
    command.dtype = shape.dtype;
    command.op = shape.op == TUTTI_AVG ? uint32_t{TUTTI_SUM} : shape.op;
    command.dst = dst;
    command.count = bytes / plan(r).element_bytes;
    command.divisor = divisor;
    add(r, command, std::move(sources));
  }

  // Before rank r overwrites [begin, end): whoever reads it has to be done. begin == nullptr: all of it.
  void wait_for_readers(size_t r, const std::byte* begin, const std::byte* end) {
    std::set<size_t> readers;
    for (const Read& read : ranks_[r].reads)
      if (!begin || (read.begin < end && begin < read.end)) readers.insert(read.reader);
    for (const size_t reader : readers) {
      wait_for(r, reader, mark_here(reader));
      std::erase_if(ranks_[r].reads, [reader](const Read& read) { return read.reader == reader; });
    }
    std::erase_if(ranks_[r].lent, [&](const Lent& lent) {
      if (begin && (lent.begin >= end || begin >= lent.end)) return false;
      add_word(r, TUTTI_COMMAND_WAIT, lent.returned, 1);
      return true;
    });
  }

  // Waits for the oldest commands of this operation while there are too many.
  void keep_short() {
    constexpr uint64_t stretch = most_queued / 4;
    uint64_t fresh = 0;
    for (const Filling& rank : ranks_) fresh += rank.launch->commands + rank.commands.size() - rank.noted;
    if (fresh < stretch) return;
    Stretch made;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].launch->commands + ranks_[r].commands.size() == ranks_[r].noted) continue;
      made.ends.push_back(mark_here(r));
      made.commands += ranks_[r].launch->commands - ranks_[r].noted;
      ranks_[r].noted = ranks_[r].launch->commands;
    }
    queued_ += made.commands;
    stretches_.push_back(std::move(made));
    while (queued_ > most_queued - stretch) {
      for (tutti_mark* end : stretches_.front().ends) await(end);
      queued_ -= stretches_.front().commands;
      stretches_.pop_front();
    }
  }
  void await(tutti_mark* mark) const {
    const tutti_executor* executor = device_.executor;
    for (;;) {
      const tutti_status status = executor->poll_mark(executor->self, mark);
      if (status == TUTTI_OK) return;
      if (status != TUTTI_AGAIN)
        throw Failure(status, fmt::format("device {}: {}", device_.memory->name, take_plugin_error()));
      meanwhile_();
    }
  }

  bool same_stream(size_t a, size_t b) const {
    return ranks_[a].launch->stream == ranks_[b].launch->stream && ranks_[a].launch->device == ranks_[b].launch->device;
  }
  void wait_for(size_t r, size_t other, tutti_mark* mark) {
    if (!same_stream(r, other)) add_mark(r, TUTTI_COMMAND_AFTER, mark);
  }

  // A mark at the present end of a rank's stream, enqueued.
  tutti_mark* mark_here(size_t r) {
    Filling& rank = ranks_[r];
    if (!rank.here) {
      std::vector<tutti_mark*>& spare = *rank.launch->spare;
      if (rank.marks_used == spare.size()) {
        tutti_mark* made = nullptr;
        if (const tutti_status status =
                device_.executor->create_mark(device_.executor->self, rank.launch->device, &made);
            status < 0)
          throw Failure(status, fmt::format("device {}: no mark: {}", device_.memory->name, take_plugin_error()));
        spare.push_back(made);
      }
      tutti_mark* mark = spare[rank.marks_used++];
      add_mark(r, TUTTI_COMMAND_MARK, mark);
      rank.here = mark;
    }
    flush(r);
    return rank.here;
  }

  std::byte* address(size_t r, const Operand& operand, uint64_t slice, uint64_t* bytes) const {
    const StreamLaunch& launch = *ranks_[r].launch;
    const Piece piece = piece_of(plan(r), operand, slice);
    if (bytes) *bytes = piece.bytes;
    std::byte* base = operand.buffer == TUTTI_BUFFER_IN    ? launch.in
                      : operand.buffer == TUTTI_BUFFER_OUT ? launch.out
                                                           : launch.scratch;
    return base + piece.offset;
  }

  void add_copy(size_t r, std::byte* dst, const std::byte* src, uint64_t bytes) {
    tutti_command command{};
    command.kind = TUTTI_COMMAND_COPY;
    command.dst = dst;
    command.count = bytes;
    add(r, command, {src});
  }
  void await_slot(size_t r, const StreamSlot& slot) {
    add_word(r, TUTTI_COMMAND_WAIT, slot.awaited, 1);
    add_word(r, TUTTI_COMMAND_WRITE, slot.awaited, 0);
  }
  void add_word(size_t r, uint32_t kind, uint32_t* word, uint32_t value) {
    tutti_command command{};
    command.kind = kind;
    command.word = word;
    command.value = value;
    add(r, command, {});
  }
  void add_mark(size_t r, uint32_t kind, tutti_mark* mark) {
    tutti_command command{};
    command.kind = kind;
    command.mark = mark;
    add(r, command, {});
  }
  void add(size_t r, tutti_command command, std::vector<const void*> sources) {
    Filling& rank = ranks_[r];
    rank.here = nullptr;
    if (!sources.empty()) {
      rank.sources.push_back(std::move(sources));
      command.src = rank.sources.back().data();
      command.sources = static_cast<uint32_t>(rank.sources.back().size());
    }
    rank.commands.push_back(command);
  }
  void flush(size_t r) {
    Filling& rank = ranks_[r];
    if (rank.commands.empty()) return;
    const tutti_status status = device_.executor->enqueue(
        device_.executor->self, rank.launch->stream, rank.commands.data(), static_cast<uint32_t>(rank.commands.size()));
    if (status < 0) refuse(rank, status);
    rank.launch->commands += rank.commands.size();
    rank.commands.clear();
    rank.sources.clear();
  }

  struct Ready {
    tutti_mark* mark;
    const std::byte* from;
  };
  const DeviceTables& device_;
  const std::function<void()>& meanwhile_;
  bool bounded_ = false;  // the device waits for what this process does meanwhile
  std::deque<Stretch> stretches_;
  uint64_t queued_ = 0;  // commands in them
  std::vector<Filling> ranks_;
  std::map<uint32_t, size_t> by_rank_;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t, uint64_t>, Ready> ready_;  // from, to, lane, number
  size_t filling_ = 0;
};

}  // namespace

void issue(const DeviceTables& device, const std::vector<StreamLaunch*>& launches,
           const std::function<void()>& meanwhile) {
  Issue(device, launches, meanwhile).run();
}

}  // namespace tutti::core
