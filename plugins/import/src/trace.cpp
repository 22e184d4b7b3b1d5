// SPDX-License-Identifier: Apache-2.0
#include "trace.hpp"

#include <algorithm>
#include <deque>

#include "clocks.hpp"
#include "values.hpp"

namespace tutti::plans {
namespace {

// Who accessed a cell, and when by its own clock.
struct Access {
  uint32_t thread = nobody, when = 0, op = 0;
};

struct Cell {
  Values::Id value = Values::none;
  Place place;
  Access write;
  std::vector<Access> reads;  // since then
};

// The accesses to a place that later ones must follow.
struct PlaceUse {
  uint32_t writer = nobody;  // an end
  std::vector<uint32_t> readers;
};

struct Sent {
  uint32_t node;
  uint32_t op;  // of thread
  uint32_t thread;
  std::vector<Values::Id> values;
  Clocks::Snapshot clock;
};

class Carrier {
 public:
  Carrier(const Plan& plan, const Carried& how, bool judge_result)
      : plan_(plan),
        how_(how),
        judge_(judge_result),
        values_(plan.ranks),
        clocks_(plan.threads.size()),
        next_(plan.threads.size(), 0) {
    trace_.shape = {plan.collective, plan.ranks, plan.pieces};
    trace_.root = how.root;
    trace_.scratch.resize(plan.ranks);
    trace_.kept.resize(plan.ranks);
    check_size();
    fill();
    for (const Thread& thread : plan.threads)
      for (const Op& op : thread.ops)
        if (op.after_thread != nobody) done_clocks_[{op.after_thread, op.after_op}] = nullptr;
  }

  Trace run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (uint32_t t = 0; t < plan_.threads.size(); ++t)
        if (next_[t] < plan_.threads[t].ops.size() && step(t)) moved = true;
    }
    for (uint32_t t = 0; t < plan_.threads.size(); ++t)
      if (next_[t] < plan_.threads[t].ops.size()) stuck(t);
    for (const auto& [way, queue] : queues_)
      if (!queue.empty()) {
        const Thread& thread = plan_.threads[queue.front().thread];
        throw wrong(plan_, thread, thread.ops[queue.front().op],
                    "sends to gpu {} on channel {} what gpu {} never receives", way.to, way.channel, way.to);
      }
    if (judge_) judge();
    return std::move(trace_);
  }

  // Which rank the results of a collective with a root point at.
  uint32_t guess_root() const {
    std::vector<uint32_t> votes(plan_.ranks, 0);
    const Shape& shape = trace_.shape;
    const bool to_root = plan_.collective == TUTTI_REDUCE || plan_.collective == TUTTI_GATHER;
    for (uint32_t rank = 0; rank < plan_.ranks; ++rank)
      for (uint32_t chunk = 0; chunk < shape.out_chunks(); ++chunk) {
        const Values::Id value = cells_[rank][cell_of(rank, {Buffer::out, chunk})].value;
        if (value == Values::none) continue;
        if (!to_root) {
          votes[values_.first(value)] += values_.first(value) != rank;
          continue;
        }
        const Shape::Result wanted = shape.result(rank, chunk, rank);
        votes[rank] += wanted.rank == Shape::none ? values_.complete(value) : values_.has(value, wanted.rank);
      }
    return static_cast<uint32_t>(std::ranges::max_element(votes) - votes.begin());
  }

 private:
  struct Way {
    uint32_t from, to, channel;
    auto operator<=>(const Way&) const = default;
  };

  void check_size() const {
    uint64_t ops = 0, chunks = 0;
    for (const Thread& thread : plan_.threads)
      for (const Op& op : thread.ops) ++ops, chunks += uint64_t{op.count} * std::max<size_t>(1, op.sources.size());
    if (ops * plan_.threads.size() > Limits::verify_work || chunks > Limits::chunks)
      throw wrong(plan_.file, 1,
                  "is too large to verify: {} operations in {} thread blocks that move {} chunks; at most {} chunks, and "
                  "at most {} for the product of operations and thread blocks",
                  ops, plan_.threads.size(), chunks, uint64_t{Limits::chunks}, uint64_t{Limits::verify_work});
  }

  // The cells of each rank, with the input in place.
  void fill() {
    const Shape& shape = trace_.shape;
    for (uint32_t rank = 0; rank < plan_.ranks; ++rank) {
      cells_.emplace_back(shape.in_chunks() + shape.out_chunks() + plan_.scratch[rank]);
      uses_.emplace_back();
      clones_.emplace_back();
      if (judge_ && !shape.has_in(rank, how_.root)) continue;
      for (uint32_t chunk = 0; chunk < shape.in_chunks(); ++chunk) {
        Cell& cell = cells_[rank][cell_of(rank, {Buffer::in, chunk})];
        cell.value = values_.input(rank, chunk);
        cell.place = {Buffer::in, chunk};
      }
    }
  }

  // A cell's number in its rank. In place the input's chunk stands for the output's that is the same.
  uint32_t cell_of(uint32_t rank, Cells cells) const {
    const Shape& shape = trace_.shape;
    if (cells.buffer == Buffer::in) return cells.first;
    if (cells.buffer == Buffer::scratch) return shape.in_chunks() + shape.out_chunks() + cells.first;
    if (how_.in_place)
      if (const uint32_t in = shape.in_of_out(rank, cells.first); in != Shape::none) return in;
    return shape.in_chunks() + cells.first;
  }

  uint32_t cell_of(uint32_t rank, Cells cells, uint32_t i) const {
    return cell_of(rank, Cells{cells.buffer, cells.first + i});
  }

  // The output's chunk that a cell is, or none.
  uint32_t out_of_cell(uint32_t rank, uint32_t cell) const {
    const Shape& shape = trace_.shape;
    if (!shape.has_out(rank, how_.root)) return Shape::none;
    if (cell >= shape.in_chunks())
      return cell < shape.in_chunks() + shape.out_chunks() ? cell - shape.in_chunks() : Shape::none;
    if (!how_.in_place) return Shape::none;
    if (shape.in_blocks() < shape.out_blocks()) return rank * shape.pieces + cell;
    const uint32_t skipped = shape.in_blocks() > shape.out_blocks() ? rank * shape.pieces : 0;
    return cell >= skipped && cell - skipped < shape.out_chunks() ? cell - skipped : Shape::none;
  }

  // ---- operations

  // Carries out the next operation of a thread block, if it can start.
  bool step(uint32_t t) {
    const Thread& thread = plan_.threads[t];
    const Op& op = thread.ops[next_[t]];
    if (op.after_thread != nobody && next_[op.after_thread] <= op.after_op) return false;
    const bool receives = op.kind == Kind::receive || op.kind == Kind::receive_reduce;
    std::deque<Sent>* queue = receives ? &queues_[{op.peer, thread.rank, op.channel}] : nullptr;
    if (queue && queue->empty()) return false;
    thread_ = t;
    clocks_.tick(t);
    if (op.after_thread != nobody) clocks_.join(t, done_clocks_[{op.after_thread, op.after_op}]);
    switch (op.kind) {
      case Kind::nop:
        break;
      case Kind::send:
        send(op);
        break;
      case Kind::receive:
      case Kind::receive_reduce:
        receive(op, *queue);
        break;
      case Kind::copy:
        copy(op);
        break;
      case Kind::reduce:
        reduce(op);
        break;
    }
    const auto told = done_clocks_.find({t, next_[t]});
    if (told != done_clocks_.end()) told->second = clocks_.take(t);
    ++next_[t];
    return true;
  }

  Node& add_node(const Op& op, Node::Kind kind) {
    Node node;
    node.kind = kind;
    node.from = node.to = rank();
    node.channel = op.channel;
    node.first = static_cast<uint32_t>(trace_.chunks.size());
    node.count = op.count;
    trace_.chunks.resize(trace_.chunks.size() + op.count);
    trace_.nodes.push_back(node);
    return trace_.nodes.back();
  }

  void send(const Op& op) {
    Node& node = add_node(op, Node::Kind::message);
    node.to = op.peer;
    Sent sent{last_node(), next_[thread_], thread_, {}, {}};
    const uint32_t end = sender_end(sent.node);
    for (uint32_t i = 0; i < op.count; ++i) {
      Cell& cell = read(op, op.src, i, end);
      trace_.chunks[node.first + i].src = cell.place;
      sent.values.push_back(cell.value);
    }
    trace_.ends.push_back(end);
    sent.clock = clocks_.take(thread_);
    queues_[{rank(), op.peer, op.channel}].push_back(std::move(sent));
  }

  void receive(const Op& op, std::deque<Sent>& queue) {
    const Sent sent = std::move(queue.front());
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
    std::vector<Values::Id> results = sent.values;
    for (uint32_t i = 0; i < op.count && node.reduced; ++i) {
      const Cell& local = read(op, op.src, i, end);
      Chunk& chunk = trace_.chunks[node.first + i];
      chunk.with = local.place;
      results[i] = reduced(op, local.value, sent.values[i], chunk);
    }
    for (uint32_t i = 0; i < op.count; ++i)
      trace_.chunks[node.first + i].dst = write(op, op.dst, i, results[i], end);
    trace_.ends.push_back(end);
  }

  void copy(const Op& op) {
    if (check_overlap(op, op.src)) return;  // in place it is there already
    Node& node = add_node(op, Node::Kind::copy);
    const uint32_t end = sender_end(last_node());
    std::vector<Values::Id> values;
    for (uint32_t i = 0; i < op.count; ++i) {
      const Cell& cell = read(op, op.src, i, end);
      trace_.chunks[node.first + i].src = cell.place;
      values.push_back(cell.value);
    }
    for (uint32_t i = 0; i < op.count; ++i)
      trace_.chunks[node.first + i].dst = write(op, op.dst, i, values[i], end);
    trace_.ends.push_back(end);
  }

  void reduce(const Op& op) {
    for (const Cells& source : op.sources) check_overlap(op, source);
    Node& node = add_node(op, Node::Kind::reduce);
    node.sources = static_cast<uint32_t>(op.sources.size());
    node.first_source = static_cast<uint32_t>(trace_.sources.size());
    const uint32_t end = sender_end(last_node());
    std::vector<Values::Id> values;
    for (uint32_t i = 0; i < op.count; ++i) {
      Chunk& chunk = trace_.chunks[node.first + i];
      Values::Id sum = Values::none;
      for (const Cells& source : op.sources) {
        const Cell& cell = read(op, source, i, end);
        trace_.sources.push_back(cell.place);
        sum = sum == Values::none ? cell.value : reduced(op, sum, cell.value, chunk);
      }
      values.push_back(sum);
    }
    for (uint32_t i = 0; i < op.count; ++i)
      trace_.chunks[node.first + i].dst = write(op, op.dst, i, values[i], end);
    trace_.ends.push_back(end);
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

  // An operation may write the very cells that it reads, but not others of them. Returns true if it does.
  bool check_overlap(const Op& op, Cells src) const {
    std::vector<uint32_t> from, to;
    for (uint32_t i = 0; i < op.count; ++i) {
      from.push_back(cell_of(rank(), src, i));
      to.push_back(cell_of(rank(), op.dst, i));
    }
    if (from == to) return true;
    std::ranges::sort(from);
    for (const uint32_t cell : to)
      if (std::ranges::binary_search(from, cell))
        fail(op, "its destination {}[{}] overlaps its source {}[{}]", letter(op.dst.buffer), op.dst.first,
             letter(src.buffer), src.first);
    return false;
  }

  // ---- accesses

  uint32_t rank() const { return plan_.threads[thread_].rank; }
  uint32_t last_node() const { return static_cast<uint32_t>(trace_.nodes.size() - 1); }

  Cell& read(const Op& op, Cells cells, uint32_t i, uint32_t end) {
    Cell& cell = cells_[rank()][cell_of(rank(), cells, i)];
    if (cell.value == Values::none)
      fail(op, "reads {}[{}], which nothing has written", letter(cells.buffer), cells.first + i);
    check_order(op, cells, i, cell.write, "writes");
    cell.reads.push_back({thread_, clocks_.now(thread_), next_[thread_]});
    if (cell.place.buffer == Buffer::in) note_input(cell.place.index);
    PlaceUse& use = uses_[rank()][key(cell.place)];
    if (use.writer != nobody) trace_.edges.emplace_back(use.writer, end);
    use.readers.push_back(end);
    return cell;
  }

  // Returns the place of what is written.
  Place write(const Op& op, Cells cells, uint32_t i, Values::Id value, uint32_t end) {
    const uint32_t number = cell_of(rank(), cells, i);
    Cell& cell = cells_[rank()][number];
    check_order(op, cells, i, cell.write, "writes");
    for (const Access& read : cell.reads) check_order(op, cells, i, read, "reads");
    cell.write = {thread_, clocks_.now(thread_), next_[thread_]};
    cell.reads.clear();
    cell.value = value;
    const uint32_t out = out_of_cell(rank(), number), piece = values_.chunk(value) % plan_.pieces;
    if (out != Shape::none && out % plan_.pieces == piece) {
      cell.place = {Buffer::out, out};
    } else {
      const auto [at, fresh] = clones_[rank()].try_emplace({number, piece}, 0);
      if (fresh) {
        at->second = static_cast<uint32_t>(trace_.scratch[rank()].size());
        trace_.scratch[rank()].push_back(piece);
      }
      cell.place = {Buffer::scratch, at->second};
    }
    PlaceUse& use = uses_[rank()][key(cell.place)];
    if (use.writer != nobody && use.writer != end) trace_.edges.emplace_back(use.writer, end);
    for (const uint32_t reader : use.readers)
      if (reader != end) trace_.edges.emplace_back(reader, end);
    use.writer = end;
    use.readers.clear();
    return cell.place;
  }

  void check_order(const Op& op, Cells cells, uint32_t i, const Access& earlier, const char* does) const {
    if (earlier.thread == nobody || clocks_.before(earlier.thread, earlier.when, thread_)) return;
    const Thread& other = plan_.threads[earlier.thread];
    const Op& other_op = other.ops[earlier.op];
    fail(op, "accesses {}[{}], which {} (line {}) {}, and nothing says which of them comes first: a dependency is missing",
         letter(cells.buffer), cells.first + i, place(other, other_op), other_op.line, does);
  }

  // Which places conflict. With one_place the output's chunk that is the input's in place is the same one.
  uint64_t key(Place place) const {
    if (place.buffer == Buffer::out && how_.one_place)
      if (const uint32_t in = trace_.shape.in_of_out(rank(), place.index); in != Shape::none) return in;
    return uint64_t{static_cast<uint32_t>(place.buffer)} << 32 | place.index;
  }

  // The input's first value is read: has the output's chunk that is the same in place been written?
  void note_input(uint32_t in) {
    const Shape& shape = trace_.shape;
    if (how_.in_place || !shape.has_out(rank(), how_.root)) return;
    const uint32_t out = shape.in_blocks() < shape.out_blocks()   ? rank() * shape.pieces + in
                         : shape.in_blocks() == shape.out_blocks() ? in
                                                                   : in - rank() * shape.pieces;
    if (out < shape.out_chunks() && cells_[rank()][cell_of(rank(), {Buffer::out, out})].write.thread != nobody)
      trace_.in_place_as_is = false;
  }

  // ---- verdicts

  template <typename... Args>
  [[noreturn]] void fail(const Op& op, fmt::format_string<const Args&...> format, const Args&... args) const {
    throw wrong(plan_, plan_.threads[thread_], op, "{}", fmt::format(format, args...));
  }

  // Thread blocks wait for ever: says what the first of them waits for that is no wait itself.
  [[noreturn]] void stuck(uint32_t t) const {
    std::vector<bool> seen(plan_.threads.size(), false);
    while (!seen[t]) {
      seen[t] = true;
      const Op& op = plan_.threads[t].ops[next_[t]];
      if (op.after_thread != nobody && next_[op.after_thread] <= op.after_op) {
        t = op.after_thread;
        continue;
      }
      const uint32_t sender = sender_of(plan_.threads[t].rank, op);
      if (sender == nobody)
        throw wrong(plan_, plan_.threads[t], op, "receives from gpu {} on channel {} what gpu {} never sends", op.peer,
                    op.channel, op.peer);
      t = sender;
    }
    const Op& op = plan_.threads[t].ops[next_[t]];
    throw wrong(plan_, plan_.threads[t], op, "waits for ever: it is one of a ring of steps that wait for each other");
  }
  // A thread block that has yet to send what `op` of rank `to` receives.
  uint32_t sender_of(uint32_t to, const Op& op) const {
    for (uint32_t t = 0; t < plan_.threads.size(); ++t) {
      const Thread& thread = plan_.threads[t];
      if (thread.rank != op.peer) continue;
      for (size_t i = next_[t]; i < thread.ops.size(); ++i)
        if (thread.ops[i].kind == Kind::send && thread.ops[i].peer == to && thread.ops[i].channel == op.channel) return t;
    }
    return nobody;
  }

  void judge() {
    const Shape& shape = trace_.shape;
    for (uint32_t rank = 0; rank < plan_.ranks; ++rank) {
      if (!shape.has_out(rank, how_.root)) continue;
      for (uint32_t chunk = 0; chunk < shape.out_chunks(); ++chunk) {
        const Cell& cell = cells_[rank][cell_of(rank, {Buffer::out, chunk})];
        judge_chunk(rank, chunk, cell);
        if (cell.place.buffer == Buffer::in) trace_.kept[rank].push_back(chunk);
      }
    }
  }

  void judge_chunk(uint32_t rank, uint32_t chunk, const Cell& cell) const {
    const Shape::Result wanted = trace_.shape.result(rank, chunk, how_.root);
    const Values::Id value = cell.value;
    const bool right = value != Values::none && values_.chunk(value) == wanted.chunk &&
                       (wanted.rank == Shape::none ? values_.complete(value)
                                                   : values_.count(value) == 1 && values_.has(value, wanted.rank));
    if (right) return;
    const uint32_t line = cell.write.thread == nobody ? plan_.lines[rank]
                                                      : plan_.threads[cell.write.thread].ops[cell.write.op].line;
    const std::string expected = wanted.rank == Shape::none
                                     ? fmt::format("chunk {} of all {} gpus' inputs", wanted.chunk, plan_.ranks)
                                     : fmt::format("chunk {} of gpu {}'s input", wanted.chunk, wanted.rank);
    std::string lacks;
    if (value != Values::none && wanted.rank == Shape::none && values_.chunk(value) == wanted.chunk)
      lacks = fmt::format(": gpu {}'s is missing", values_.missing(value));
    throw wrong(plan_.file, line, "gpu {}: o[{}] holds {} at the end, and should hold {}{}", rank, chunk,
                values_.text(value), expected, lacks);
  }

  const Plan& plan_;
  const Carried how_;
  const bool judge_;
  Trace trace_;
  Values values_;
  Clocks clocks_;
  std::vector<uint32_t> next_;            // by thread block: how many operations have been carried out
  uint32_t thread_ = 0;                   // that is being carried out
  std::vector<std::vector<Cell>> cells_;  // by rank
  std::vector<std::map<uint64_t, PlaceUse>> uses_;                          // by rank
  std::vector<std::map<std::pair<uint32_t, uint32_t>, uint32_t>> clones_;   // by rank: (cell, piece) -> scratch
  std::map<Way, std::deque<Sent>> queues_;
  std::map<std::pair<uint32_t, uint32_t>, Clocks::Snapshot> done_clocks_;  // of operations that others wait for
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
