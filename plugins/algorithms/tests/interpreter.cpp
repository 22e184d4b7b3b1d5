// SPDX-License-Identifier: Apache-2.0
#include "interpreter.hpp"

#include <algorithm>
#include <stdexcept>

namespace tutti::test {
namespace {

constexpr int64_t poison = 0x7ea5ed5eed5eed5e;

bool unequal(const Case& c) { return has_unequal_blocks(c.collective); }

// The collective with equal blocks that moves them alike.
uint32_t form_of(const Case& c) { return equal_form(c.collective); }

// The elements of the block that rank `from` gives to rank `to`, or of all blocks of rank `from` or for rank `to`: some
// of them none, some twice as many as others.
uint64_t length_of(const Case& c, uint32_t number) {
  return unequal(c) ? c.count * ((number * 7 + c.seed) % 5) / 2 : c.count;
}
uint64_t block_length(const Case& c, uint32_t rank, bool input, uint32_t block) {
  switch (form_of(c)) {
    case TUTTI_GATHER:
    case TUTTI_ALL_GATHER:
      return length_of(c, input ? rank : block);
    case TUTTI_SCATTER:
    case TUTTI_REDUCE_SCATTER:
      return length_of(c, input ? block : rank);
    case TUTTI_ALL_TO_ALL:
      return length_of(c, input ? rank * c.n + block : block * c.n + rank);
    default:
      return c.count;
  }
}
// The sum of the lengths of the blocks before this one.
uint64_t block_begin(const Case& c, uint32_t rank, bool input, uint32_t block) {
  uint64_t begin = 0;
  for (uint32_t b = 0; b < block; ++b) begin += block_length(c, rank, input, b);
  return begin;
}

// How many blocks IN and OUT have.
struct Shape {
  uint32_t in, out;
};
Shape shape_of(const Case& c, uint32_t rank) {
  const bool root = rank == c.root;
  switch (form_of(c)) {
    case TUTTI_BROADCAST:
      return {root ? 1u : 0u, 1};
    case TUTTI_REDUCE:
      return {1, root ? 1u : 0u};
    case TUTTI_ALL_REDUCE:
      return {1, 1};
    case TUTTI_GATHER:
      return {1, root ? c.n : 0};
    case TUTTI_ALL_GATHER:
      return {1, c.n};
    case TUTTI_SCATTER:
      return {root ? c.n : 0, 1};
    case TUTTI_REDUCE_SCATTER:
      return {c.n, 1};
    case TUTTI_ALL_TO_ALL:
      return {c.n, c.n};
    case TUTTI_SCAN:
      return {1, 1};
    case TUTTI_EXCLUSIVE_SCAN:
      return {1, rank ? 1u : 0u};
    default:
      return {0, 0};
  }
}

// The user's element `i` of IN block `block` at `rank`: different for all.
int64_t element(uint32_t rank, uint32_t block, uint64_t i) {
  return (int64_t{rank} * 1000 + block) * 1'000'003 + static_cast<int64_t>(i * i) + 17;
}

// The expected value of OUT block `block` at `rank`.
int64_t expected(const Case& c, uint32_t rank, uint32_t block, uint64_t i) {
  int64_t sum = 0;
  switch (form_of(c)) {
    case TUTTI_BROADCAST:
      return element(c.root, 0, i);
    case TUTTI_GATHER:
    case TUTTI_ALL_GATHER:
      return element(block, 0, i);
    case TUTTI_SCATTER:
      return element(c.root, rank, i);
    case TUTTI_ALL_TO_ALL:
      return element(block, rank, i);
    case TUTTI_REDUCE_SCATTER:
      for (uint32_t r = 0; r < c.n; ++r) sum += 3 * element(r, rank, i);
      return 2 * sum + 1;
    case TUTTI_SCAN:
    case TUTTI_EXCLUSIVE_SCAN:
      for (uint32_t r = 0; r < rank + (c.collective == TUTTI_SCAN); ++r) sum += 3 * element(r, 0, i);
      return 2 * sum + 1;
    default:
      for (uint32_t r = 0; r < c.n; ++r) sum += 3 * element(r, 0, i);
      return 2 * sum + 1;
  }
}

struct Sink {
  Schedule schedule;
  static Sink& of(void* self) { return *static_cast<Sink*>(self); }
  tutti_schedule_sink table() {
    tutti_schedule_sink t{};
    t.struct_size = sizeof t;
    t.self = this;
    t.set_cuts = [](void* self, const tutti_cut* cuts, uint32_t n) {
      of(self).schedule.cuts.assign(cuts, cuts + n);
      return tutti_status{TUTTI_OK};
    };
    t.set_scratch = [](void* self, const tutti_extent* chunks, uint32_t n, uint32_t copies) {
      of(self).schedule.scratch.assign(chunks, chunks + n);
      of(self).schedule.scratch_copies = copies;
      return tutti_status{TUTTI_OK};
    };
    t.set_flags = [](void* self, uint64_t flags) {
      of(self).schedule.flags = flags;
      return tutti_status{TUTTI_OK};
    };
    t.add_step = [](void* self, uint32_t lane, const tutti_step* step, const tutti_span* sources) {
      auto& lanes = of(self).schedule.lanes;
      if (lanes.size() <= lane) lanes.resize(lane + 1);
      lanes[lane].push_back({*step, {sources, sources + step->sources}});
      return tutti_status{TUTTI_OK};
    };
    return t;
  }
};

// One contiguous part of memory.
struct Range {
  int64_t* data;
  uint64_t size;
  bool overlaps(const Range& o) const { return size && o.size && data < o.data + o.size && o.data < data + size; }
};

// A step of one slice, bound to memory.
struct Bound {
  tutti_step op;
  std::vector<Range> dst;
  std::vector<std::vector<Range>> sources;  // src, or REDUCE's
  std::vector<bool> loads;                  // per source
  size_t dependency = 0;                    // index into the lane; valid with op.dependency_lane
  bool done = false;
};

struct Rank {
  Schedule schedule;
  std::vector<int64_t> memory;  // IN, OUT and scratch, with poison around each
  int64_t* in = nullptr;
  int64_t* out = nullptr;
  std::vector<int64_t> scratch;
  std::vector<std::vector<Bound>> lanes;
};

class World {
 public:
  World(const tutti_algorithm& algorithm, const Case& c) : c_(c), ranks_(c.n), random_(c.seed) {
    for (uint32_t r = 0; r < c.n; ++r) {
      ranks_[r].schedule = emit(algorithm, c, r);
      place(r);
      bind(r);
    }
  }

  // A barrier: while rank `late` does nothing, no other rank may get through.
  std::string run_without(uint32_t late) {
    late_ = late;
    while (step_somewhere()) {
    }
    for (uint32_t r = 0; r < c_.n; ++r) {
      const auto through = [](const auto& lane) { return first_open(lane) == lane.size(); };
      if (r != late && std::all_of(ranks_[r].lanes.begin(), ranks_[r].lanes.end(), through))
        return at(r) + "got through a barrier that rank " + std::to_string(late) + " had not entered";
    }
    return "";
  }

  std::string run() {
    while (step_somewhere()) {
    }
    for (uint32_t r = 0; r < c_.n; ++r)
      for (size_t l = 0; l < ranks_[r].lanes.size(); ++l)
        for (size_t i = 0; i < ranks_[r].lanes[l].size(); ++i)
          if (!ranks_[r].lanes[l][i].done)
            return at(r) + "deadlock: lane " + std::to_string(l) + " step " + std::to_string(i) + " of kind " +
                   std::to_string(ranks_[r].lanes[l][i].op.kind) + ", peer " +
                   std::to_string(ranks_[r].lanes[l][i].op.peer);
    for (uint32_t r = 0; r < c_.n; ++r)
      if (std::string wrong = check(r); !wrong.empty()) return at(r) + wrong;
    return "";
  }

 private:
  static std::string at(uint32_t rank) { return "rank " + std::to_string(rank) + ": "; }
  bool in_place(uint32_t r) const { return c_.in_place >> (r % 64) & 1; }

  // Lays out a rank's buffers, fills IN, poisons the rest.
  void place(uint32_t r) {
    Rank& rank = ranks_[r];
    const Shape shape = shape_of(c_, r);
    const uint64_t gap = 3;
    const uint64_t in_size = block_begin(c_, r, true, shape.in), out_size = block_begin(c_, r, false, shape.out);
    rank.memory.assign(in_size + out_size + 3 * gap, poison);
    int64_t* first = rank.memory.data() + gap;
    rank.in = first;
    rank.out = first + in_size + gap;
    if (in_place(r) && shape.in && shape.out) {
      if (shape.in < shape.out)
        rank.in = rank.out + block_begin(c_, r, false, r);
      else
        rank.out = rank.in + (shape.in > shape.out ? block_begin(c_, r, true, r) : 0);
    }
    for (uint32_t b = 0; b < shape.in; ++b)
      for (uint64_t i = 0; i < block_length(c_, r, true, b); ++i)
        rank.in[block_begin(c_, r, true, b) + i] = element(r, b, i);
  }

  std::vector<uint64_t> bounds(const Schedule& s, uint64_t length) const {
    std::vector<uint64_t> b{0};
    for (const tutti_cut& cut : s.cuts) {
      uint64_t at = length * cut.p / cut.q;
      if (length >= 4096 * s.cuts.size()) at = at / 64 * 64;
      b.push_back(at);
    }
    b.push_back(length);
    return b;
  }

  void bind(uint32_t number) {
    Rank& rank = ranks_[number];
    const Schedule& s = rank.schedule;
    const uint32_t pieces = s.pieces();
    std::vector<uint64_t> scratch_at{0};
    for (const tutti_extent& e : s.scratch) {
      const std::vector<uint64_t> piece = bounds(s, length_of(c_, e.block_class));
      scratch_at.push_back(scratch_at.back() + piece.at(e.piece + 1) - piece.at(e.piece));
    }
    rank.scratch.assign(scratch_at.back(), poison);
    const uint32_t slices = s.sliced() ? c_.slices : 1;
    const auto resolve = [&](const tutti_span& span, uint32_t slice) {
      std::vector<Range> list;
      for (uint32_t c = span.first; c < span.first + span.chunks; ++c) {
        uint64_t begin = 0, size = 0;
        if (span.buffer == TUTTI_BUFFER_SCRATCH) {
          begin = scratch_at.at(c), size = scratch_at.at(c + 1) - begin;
        } else {
          const bool input = span.buffer == TUTTI_BUFFER_IN;
          const std::vector<uint64_t> piece = bounds(s, block_length(c_, number, input, c / pieces));
          begin = block_begin(c_, number, input, c / pieces) + piece[c % pieces];
          size = piece[c % pieces + 1] - piece[c % pieces];
        }
        const uint64_t from = slice * size / slices, to = (slice + 1) * size / slices;
        int64_t* base = span.buffer == TUTTI_BUFFER_IN    ? rank.in
                        : span.buffer == TUTTI_BUFFER_OUT ? rank.out
                                                          : rank.scratch.data();
        list.push_back({base + begin + from, to - from});
      }
      return list;
    };
    rank.lanes.resize(s.lanes.size());
    for (size_t l = 0; l < s.lanes.size(); ++l)
      for (uint32_t slice = 0; slice < slices; ++slice)
        for (const Step& step : s.lanes[l]) {
          Bound b{step.op, {}, {}, {}, 0, false};
          if (step.op.dst.chunks) b.dst = resolve(step.op.dst, slice);
          std::vector<tutti_span> sources = step.sources;
          if (step.op.src.chunks) sources.push_back(step.op.src);
          for (const tutti_span& src : sources) {
            b.sources.push_back(resolve(src, slice));
            b.loads.push_back(src.buffer == TUTTI_BUFFER_IN && (step.op.flags & TUTTI_STEP_LOAD));
          }
          if (step.op.dependency_lane != TUTTI_NO_DEPENDENCY)
            b.dependency = slice * s.lanes.at(step.op.dependency_lane).size() + step.op.dependency_step;
          rank.lanes[l].push_back(std::move(b));
        }
  }

  static bool conflict(const Bound& a, const Bound& b) {
    const auto touch = [](const std::vector<Range>& x, const std::vector<Range>& y) {
      for (const Range& p : x)
        for (const Range& q : y)
          if (p.overlaps(q)) return true;
      return false;
    };
    if (touch(a.dst, b.dst)) return true;
    for (const auto& s : a.sources)
      if (touch(s, b.dst)) return true;
    for (const auto& s : b.sources)
      if (touch(s, a.dst)) return true;
    return false;
  }

  // May step i start now, where `first` <= i is the first step of its lane that is not done?
  static bool ready(const Rank& rank, const std::vector<Bound>& lane, size_t first, size_t i) {
    const Bound &b = lane[i], &earlier = lane[first];
    if (b.done || i > first + 1) return false;
    if (b.op.dependency_lane != TUTTI_NO_DEPENDENCY && !rank.lanes.at(b.op.dependency_lane).at(b.dependency).done)
      return false;
    const bool same_queue =
        talks(b) && talks(earlier) && receives(b) == receives(earlier) && b.op.peer == earlier.op.peer;
    return i == first || (!same_queue && !conflict(earlier, b));
  }
  static bool talks(const Bound& b) { return b.op.kind <= TUTTI_STEP_RECV_REDUCE || b.op.kind == TUTTI_STEP_SIGNAL; }
  static bool receives(const Bound& b) {
    return b.op.kind == TUTTI_STEP_RECV || b.op.kind == TUTTI_STEP_RECV_REDUCE ||
           (b.op.kind == TUTTI_STEP_SIGNAL && (b.op.flags & TUTTI_STEP_WAIT));
  }

  // Carries out one of the steps that can be; false when there is none. Starts looking at a random place.
  bool step_somewhere() {
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;
    const uint32_t start = static_cast<uint32_t>((random_ >> 33) % c_.n);
    bool any = false;
    for (uint32_t k = 0; k < c_.n; ++k) {
      const uint32_t r = (start + k) % c_.n;
      for (uint32_t l = 0; l < ranks_[r].lanes.size(); ++l) any = advance(r, l) || any;
    }
    return any;
  }

  static size_t first_open(const std::vector<Bound>& lane) {
    return static_cast<size_t>(std::find_if(lane.begin(), lane.end(), [](const Bound& b) { return !b.done; }) -
                               lane.begin());
  }

  bool advance(uint32_t r, uint32_t l) {
    if (r == late_) return false;
    Rank& rank = ranks_[r];
    auto& lane = rank.lanes[l];
    const size_t first = first_open(lane);
    for (size_t i = first; i < lane.size() && i < first + 2; ++i) {
      if (!ready(rank, lane, first, i)) continue;
      Bound& b = lane[i];
      if (!talks(b)) {
        local(b);
        return b.done = true;
      }
      if (receives(b)) continue;  // the sender moves the message
      Bound* other = waiting(b.op.peer, l, r);
      if (!other) continue;
      if ((b.op.kind == TUTTI_STEP_SIGNAL) != (other->op.kind == TUTTI_STEP_SIGNAL))
        throw std::runtime_error("a signal meets data");
      if (b.op.kind != TUTTI_STEP_SIGNAL) transfer(b, *other);
      return b.done = other->done = true;
    }
    return false;
  }

  // The step of `rank`'s lane that would take the next message from `from`, when it is ready.
  Bound* waiting(uint32_t r, uint32_t l, uint32_t from) {
    Rank& rank = ranks_.at(r);
    if (l >= rank.lanes.size() || r == late_) return nullptr;
    auto& lane = rank.lanes[l];
    const size_t first = first_open(lane);
    for (size_t i = first; i < lane.size() && i < first + 2; ++i)
      if (receives(lane[i]) && lane[i].op.peer == from && ready(rank, lane, first, i)) return &lane[i];
    return nullptr;
  }

  static std::vector<int64_t> read(const std::vector<Range>& ranges, bool load) {
    std::vector<int64_t> values;
    for (const Range& range : ranges)
      for (uint64_t i = 0; i < range.size; ++i) values.push_back(range.data[i] * (load ? 3 : 1));
    return values;
  }
  static void write(const Bound& b, const std::vector<int64_t>& values) {
    size_t at = 0;
    for (const Range& range : b.dst)
      for (uint64_t i = 0; i < range.size; ++i, ++at)
        range.data[i] = b.op.flags & TUTTI_STEP_FINAL ? 2 * values.at(at) + 1 : values.at(at);
    if (at != values.size()) throw std::runtime_error("the sizes of source and destination differ");
  }
  static std::vector<int64_t> sum(std::vector<int64_t> a, const std::vector<int64_t>& b) {
    if (a.size() != b.size()) throw std::runtime_error("the sizes of operands differ");
    for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
  }
  static void transfer(const Bound& send, const Bound& receive) {
    std::vector<int64_t> values = read(send.sources.at(0), send.loads[0]);
    if (send.sources[0].size() != receive.dst.size()) throw std::runtime_error("chunk numbers of a message differ");
    for (size_t i = 0; i < receive.dst.size(); ++i)
      if (send.sources[0][i].size != receive.dst[i].size) throw std::runtime_error("chunk sizes of a message differ");
    if (receive.op.kind == TUTTI_STEP_RECV_REDUCE)
      values = sum(std::move(values), read(receive.sources.at(0), receive.loads[0]));
    write(receive, values);
  }
  static void local(const Bound& b) {
    if (b.op.kind == TUTTI_STEP_NOP) return;
    std::vector<int64_t> values = read(b.sources.at(0), b.loads[0]);
    for (size_t i = 1; i < b.sources.size(); ++i) values = sum(std::move(values), read(b.sources[i], b.loads[i]));
    write(b, values);
  }

  std::string check(uint32_t r) {
    Rank& rank = ranks_[r];
    const Shape shape = shape_of(c_, r);
    for (uint32_t b = 0; b < shape.out; ++b)
      for (uint64_t i = 0; i < block_length(c_, r, false, b); ++i) {
        int64_t& value = rank.out[block_begin(c_, r, false, b) + i];
        if (value != expected(c_, r, b, i))
          return "out block " + std::to_string(b) + " element " + std::to_string(i) + " is " + std::to_string(value) +
                 ", expected " + std::to_string(expected(c_, r, b, i));
        value = poison;
      }
    // The rest is IN (where it is no output) and poison.
    for (uint32_t b = 0; b < shape.in; ++b)
      for (uint64_t i = 0; i < block_length(c_, r, true, b); ++i) {
        int64_t& value = rank.in[block_begin(c_, r, true, b) + i];
        if (value != poison && value != element(r, b, i)) return "in block " + std::to_string(b) + " was overwritten";
        if (value == poison && !in_place(r)) return "in block " + std::to_string(b) + " was poisoned";
        value = poison;
      }
    for (const int64_t value : rank.memory)
      if (value != poison) return "a write beside the buffers";
    return "";
  }

  const Case& c_;
  std::vector<Rank> ranks_;
  uint64_t random_;
  uint32_t late_ = UINT32_MAX;  // a rank that does nothing
};

}  // namespace

Schedule emit(const tutti_algorithm& algorithm, const Case& c, uint32_t rank) {
  const std::vector<uint32_t> hosts = c.hosts.empty() ? std::vector<uint32_t>(c.n, 0) : c.hosts;
  tutti_query query{};
  query.struct_size = sizeof query;
  query.collective = c.collective;
  query.nranks = c.n;
  query.rank = rank;
  query.root = c.root;
  query.lanes = c.lanes;
  query.flags = c.in_place >> (rank % 64) & 1 ? TUTTI_QUERY_IN_PLACE : 0;
  query.host_of_rank = hosts.data();
  Sink sink;
  const tutti_schedule_sink table = sink.table();
  if (const tutti_status status = algorithm.schedule(algorithm.self, &query, &table); status != TUTTI_OK)
    throw std::runtime_error(std::string(algorithm.name) + " answered status " + std::to_string(status));
  return std::move(sink.schedule);
}

std::string run(const tutti_algorithm& algorithm, const Case& c) {
  try {
    if (c.collective == TUTTI_BARRIER && c.n > 1)
      if (std::string wrong = World(algorithm, c).run_without(static_cast<uint32_t>(c.seed % c.n)); !wrong.empty())
        return wrong;
    return World(algorithm, c).run();
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace tutti::test
