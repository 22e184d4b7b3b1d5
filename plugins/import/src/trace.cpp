// SPDX-License-Identifier: Apache-2.0
#include "trace.hpp"

#include <algorithm>
#include <deque>

#include "clocks.hpp"
#include "memory.hpp"
#include "stuck.hpp"
#include "values.hpp"

namespace tutti::plans {
namespace {

struct Sent {
  uint32_t node;
  uint32_t thread, op;
  std::vector<Values::Id> values;
  Clocks::Snapshot clock;
};

// One count of a signal or a semaphore.
struct Told {
  Clocks::Snapshot clock;  // none: it was there at first
  uint32_t thread = nobody, op = 0;
};

class Carrier {
 public:
  Carrier(const Plan& plan, const Carried& how, bool judged)
      : plan_(plan),
        judged_(judged),
        trace_(begin(plan, how)),
        values_(plan.ranks),
        clocks_(plan.threads.size()),
        memory_(plan, how, !judged, values_, clocks_, trace_),
        next_(plan.threads.size(), 0),
        passed_(plan.threads.size(), false) {
    for (const Thread& thread : plan.threads)
      for (const Op& op : thread.ops)
        if (op.after_thread != nobody) done_clocks_[{op.after_thread, op.after_op}] = nullptr;
    for (uint32_t rank = 0; rank < plan.semaphores.size(); ++rank)
      for (uint32_t id = 0; id < plan.semaphores[rank].size(); ++id)
        counts_[{rank, rank, id, true}].resize(plan.semaphores[rank][id]);
  }

  Trace run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (thread_ = 0; thread_ < plan_.threads.size(); ++thread_)
        if (next_[thread_] < plan_.threads[thread_].ops.size() && step()) moved = true;
    }
    report_stuck(plan_, next_, memory_);
    for (const auto& [way, queue] : queues_)
      if (!queue.empty()) {
        const Thread& thread = plan_.threads[queue.front().thread];
        throw wrong(plan_, thread, thread.ops[queue.front().op],
                    "sends to gpu {} on channel {} what gpu {} never receives", way.to, way.channel, way.to);
      }
    for (const auto& [way, count] : counts_)
      if (!way.semaphore && !count.empty()) {
        const Thread& thread = plan_.threads[count.front().thread];
        throw wrong(plan_, thread, thread.ops[count.front().op], "signals gpu {}, which never waits for it", way.to);
      }
    if (judged_) memory_.judge();
    return std::move(trace_);
  }
  uint32_t guess_root() const { return memory_.guess_root(); }

 private:
  struct Way {
    uint32_t from, to, channel;
    bool semaphore = false;  // of rank `from`
    auto operator<=>(const Way&) const = default;
  };

  static Trace begin(const Plan& plan, const Carried& how) {
    uint64_t ops = 0, chunks = 0;
    for (const Thread& thread : plan.threads)
      for (const Op& op : thread.ops) ++ops, chunks += uint64_t{op.count} * std::max<size_t>(1, op.sources.size());
    if (ops * plan.threads.size() > Limits::verify_work || chunks > Limits::chunks)
      throw wrong(
          plan.file, 1,
          "is too large to prove: {} operations in {} thread blocks move {} chunks; expected at most {} chunks, "
          "and at most {} for the product of operations and thread blocks",
          ops, plan.threads.size(), chunks, uint64_t{Limits::chunks}, uint64_t{Limits::verify_work});
    Trace trace;
    trace.shape = {plan.collective, plan.ranks, plan.pieces};
    uint64_t cells = uint64_t{plan.ranks} * (uint64_t{trace.shape.in_chunks()} + trace.shape.out_chunks());
    for (const uint32_t scratch : plan.scratch) cells += scratch;
    if (cells > Limits::all_cells)
      throw wrong(plan.file, 1, "is too large to prove: its buffers have {} chunks, expected at most {}", cells,
                  uint64_t{Limits::all_cells});
    trace.root = how.root;
    trace.scratch.resize(plan.ranks);
    trace.kept.resize(plan.ranks);
    return trace;
  }

  const Thread& thread() const { return plan_.threads[thread_]; }
  uint32_t rank() const { return thread().rank; }
  uint32_t last_node() const { return static_cast<uint32_t>(trace_.nodes.size() - 1); }
  template <typename... Args>
  [[noreturn]] void fail(const Op& op, fmt::format_string<const Args&...> format, const Args&... args) const {
    throw wrong(plan_, thread(), op, "{}", fmt::format(format, args...));
  }

  // Carries out the next operation of the thread block, if it can start.
  bool step() {
    const Op& op = thread().ops[next_[thread_]];
    if (op.after_thread != nobody && next_[op.after_thread] <= op.after_op) return false;
    if (op.reads_packets && !packets_are_there(op)) return false;
    std::deque<Sent>* queue = nullptr;
    std::deque<Told>* count = nullptr;
    if (op.kind == Kind::receive || op.kind == Kind::receive_reduce) queue = &queues_[{op.peer, rank(), op.channel}];
    if (op.kind == Kind::wait) count = &counts_[{op.peer, rank(), op.object}];
    if (op.kind == Kind::acquire) count = &counts_[{rank(), rank(), op.object, true}];
    if ((queue && queue->empty()) || (count && count->empty())) return false;
    if (op.kind == Kind::barrier && !pass_barrier(op)) return false;
    clocks_.tick(thread_);
    if (op.after_thread != nobody) clocks_.join(thread_, done_clocks_[{op.after_thread, op.after_op}]);
    if (op.reads_packets) join_packets(op);
    if (count) {
      if (count->front().clock) clocks_.join(thread_, count->front().clock);
      count->pop_front();
    }
    carry_out(op, queue);
    const auto awaited = done_clocks_.find({thread_, next_[thread_]});
    if (awaited != done_clocks_.end()) awaited->second = clocks_.take(thread_);
    ++next_[thread_];
    return true;
  }

  void carry_out(const Op& op, std::deque<Sent>* queue) {
    switch (op.kind) {
      case Kind::send:
        return send(op);
      case Kind::receive:
      case Kind::receive_reduce:
        return receive(op, *queue);
      case Kind::put:
        return move(op, rank(), op.peer);
      case Kind::get:
      case Kind::get_reduce:
        return move(op, op.peer, rank());
      case Kind::copy:
        return copy(op);
      case Kind::reduce:
        return reduce(op);
      case Kind::signal:
        return counts_[{rank(), op.peer, op.object}].push_back(told());
      case Kind::release:
        return counts_[{rank(), rank(), op.object, true}].push_back(told());
      default:
        return;
    }
  }

  // ---- order

  Told told() const { return {clocks_.take(thread_), thread_, next_[thread_]}; }

  template <typename Visit>
  void each_packet(const Op& op, Visit&& visit) const {
    for (uint32_t i = 0; i < op.count; ++i) {
      if (op.kind != Kind::reduce) visit(memory_.at(rank(), op.src, i));
      for (size_t k = 1; k < op.sources.size(); ++k) visit(memory_.at(rank(), op.sources[k], i));
    }
  }
  bool packets_are_there(const Op& op) const {
    bool there = true;
    each_packet(op, [&](const Memory::Cell& cell) { there = there && cell.packets; });
    return there;
  }
  void join_packets(const Op& op) {
    each_packet(op, [&](const Memory::Cell& cell) { clocks_.join(thread_, cell.packets); });
  }

  // The last thread block that comes lets all of them pass.
  bool pass_barrier(const Op& op) {
    if (passed_[thread_]) {
      passed_[thread_] = false;
      return true;
    }
    std::vector<uint32_t>& there = barriers_[{rank(), op.object}];
    if (std::ranges::find(there, thread_) == there.end()) there.push_back(thread_);
    const Thread& first = plan_.threads[there.front()];
    if (const Op& other = first.ops[next_[there.front()]]; other.count != op.count)
      fail(op, "meets {} thread blocks at barrier {}, and {} (line {}) meets {}", op.count, op.object,
           place(first, other), other.line, other.count);
    if (there.size() < op.count) return false;
    std::vector<Clocks::Snapshot> known;
    for (const uint32_t t : there) known.push_back(clocks_.take(t));
    for (const uint32_t t : there) {
      for (const Clocks::Snapshot& clock : known) clocks_.join(t, clock);
      passed_[t] = t != thread_;
    }
    there.clear();
    return true;
  }

  // ---- data

  Node& add_node(const Op& op, Node::Kind kind, uint32_t from, uint32_t to) {
    Node node;
    node.kind = kind;
    node.from = from;
    node.to = to;
    node.channel = op.channel;
    node.first = static_cast<uint32_t>(trace_.chunks.size());
    node.count = op.count;
    trace_.chunks.resize(trace_.chunks.size() + op.count);
    trace_.nodes.push_back(node);
    return trace_.nodes.back();
  }

  const Memory::Cell& read(uint32_t rank, Cells cells, uint32_t i, uint32_t end) {
    return memory_.read(thread_, next_[thread_], rank, cells, i, end);
  }
  void write(const Op& op, uint32_t rank, uint32_t first, const std::vector<Values::Id>& values, uint32_t end) {
    for (uint32_t i = 0; i < op.count; ++i)
      trace_.chunks[first + i].dst = memory_.write(thread_, next_[thread_], rank, op.dst, i, values[i], end);
    trace_.ends.push_back(end);
  }
  // The sender's end of a message, or all that a copy reads.
  std::vector<Values::Id> read_src(const Op& op, uint32_t rank, uint32_t first, uint32_t end) {
    std::vector<Values::Id> values;
    for (uint32_t i = 0; i < op.count; ++i) {
      const Memory::Cell& cell = read(rank, op.src, i, end);
      trace_.chunks[first + i].src = cell.place;
      values.push_back(cell.value);
    }
    return values;
  }
  // The receiver's end of a message that is reduced with `local`.
  void reduce_with(const Op& op, Cells local, uint32_t first, std::vector<Values::Id>& values, uint32_t end) {
    for (uint32_t i = 0; i < op.count; ++i) {
      const Memory::Cell& cell = read(rank(), local, i, end);
      Chunk& chunk = trace_.chunks[first + i];
      chunk.with = cell.place;
      values[i] = reduced(op, cell.value, values[i], chunk);
    }
  }

  void send(const Op& op) {
    const uint32_t first = add_node(op, Node::Kind::message, rank(), op.peer).first;
    const uint32_t end = sender_end(last_node());
    Sent sent{last_node(), thread_, next_[thread_], read_src(op, rank(), first, end), {}};
    trace_.ends.push_back(end);
    sent.clock = clocks_.take(thread_);
    queues_[{rank(), op.peer, op.channel}].push_back(std::move(sent));
  }

  void receive(const Op& op, std::deque<Sent>& queue) {
    Sent sent = std::move(queue.front());
    queue.pop_front();
    const Thread& sender = plan_.threads[sent.thread];
    const Op& send_op = sender.ops[sent.op];
    if (send_op.count != op.count)
      fail(op, "receives {} chunks, but gpu {} sends {} (line {}: {})", op.count, op.peer, send_op.count, send_op.line,
           place(sender, send_op));
    clocks_.join(thread_, sent.clock);
    const uint32_t end = receiver_end(sent.node);
    Node& node = trace_.nodes[sent.node];
    node.reduced = op.kind == Kind::receive_reduce;
    if (node.reduced) reduce_with(op, op.src, node.first, sent.values, end);
    write(op, rank(), node.first, sent.values, end);
  }

  // put, get, get_reduce: both ends of a message at once.
  void move(const Op& op, uint32_t from, uint32_t to) {
    Node& node = add_node(op, Node::Kind::message, from, to);
    const uint32_t first = node.first, end = sender_end(last_node());
    node.reduced = op.kind == Kind::get_reduce;
    std::vector<Values::Id> values = read_src(op, from, first, end);
    trace_.ends.push_back(end);
    if (op.kind == Kind::get_reduce) reduce_with(op, op.sources[0], first, values, receiver_end(last_node()));
    write(op, to, first, values, receiver_end(last_node()));
  }

  void copy(const Op& op) {
    if (memory_.check_overlap(thread(), op, op.src)) return;  // in place it is there already
    const uint32_t first = add_node(op, Node::Kind::copy, rank(), rank()).first;
    const uint32_t end = sender_end(last_node());
    write(op, rank(), first, read_src(op, rank(), first, end), end);
  }

  void reduce(const Op& op) {
    for (const Cells& source : op.sources) memory_.check_overlap(thread(), op, source);
    Node& node = add_node(op, Node::Kind::reduce, rank(), rank());
    node.sources = static_cast<uint32_t>(op.sources.size());
    node.first_source = static_cast<uint32_t>(trace_.sources.size());
    const uint32_t end = sender_end(last_node());
    std::vector<Values::Id> values;
    for (uint32_t i = 0; i < op.count; ++i) {
      Values::Id sum = Values::none;
      for (const Cells& source : op.sources) {
        const Memory::Cell& cell = read(rank(), source, i, end);
        trace_.sources.push_back(cell.place);
        sum = sum == Values::none ? cell.value : reduced(op, sum, cell.value, trace_.chunks[node.first + i]);
      }
      values.push_back(sum);
    }
    write(op, rank(), node.first, values, end);
  }

  Values::Id reduced(const Op& op, Values::Id a, Values::Id b, Chunk& chunk) {
    if (!trace_.shape.reducing()) fail(op, "reduces, but the collective moves data only");
    const auto result = values_.reduce(a, b);
    if (!result && values_.chunk(a) != values_.chunk(b))
      fail(op, "reduces {} with {}", values_.text(a), values_.text(b));
    if (!result) fail(op, "adds gpu {}'s contribution to chunk {} twice", values_.common(a, b), values_.chunk(a));
    chunk.final = values_.complete(*result);
    chunk.left = values_.last(b) < values_.first(a);
    return *result;
  }

  const Plan& plan_;
  const bool judged_;
  Trace trace_;
  Values values_;
  Clocks clocks_;
  Memory memory_;
  std::vector<uint32_t> next_;  // by thread block: how many operations have been carried out
  std::vector<bool> passed_;    // by thread block: it may leave the barrier that it waits at
  uint32_t thread_ = 0;         // whose turn it is
  std::map<Way, std::deque<Sent>> queues_;
  std::map<Way, std::deque<Told>> counts_;                                   // of signals and semaphores
  std::map<std::pair<uint32_t, uint32_t>, std::vector<uint32_t>> barriers_;  // (rank, object): who waits there
  std::map<std::pair<uint32_t, uint32_t>, Clocks::Snapshot> done_clocks_;    // of operations that others wait for
};

}  // namespace

Trace carry_out(const Plan& plan, const Carried& how) { return Carrier(plan, how, true).run(); }

uint32_t find_root(const Plan& plan) {
  if (!Shape{plan.collective, plan.ranks, plan.pieces}.rooted()) return 0;
  Carrier carrier(plan, {.in_place = plan.in_place}, false);
  carrier.run();
  return carrier.guess_root();
}

}  // namespace tutti::plans
