// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include <algorithm>

namespace tutti::plans {

Memory::Memory(const Plan& plan, const Carried& how, bool everywhere, Values& values, const Clocks& clocks,
               Trace& trace)
    : plan_(plan), how_(how), values_(values), clocks_(clocks), trace_(trace) {
  const Shape& shape = trace.shape;
  uses_.resize(plan.ranks);
  clones_.resize(plan.ranks);
  spoiled_.assign(plan.ranks, std::vector<bool>(shape.out_chunks(), false));
  for (uint32_t rank = 0; rank < plan.ranks; ++rank) {
    first_input_.push_back(Values::none);
    cells_.emplace_back(shape.in_chunks() + shape.out_chunks() + plan.scratch[rank]);
    if (!everywhere && !shape.has_in(rank, how.root)) continue;
    for (uint32_t chunk = 0; chunk < shape.in_chunks(); ++chunk) {
      Cell& cell = cells_[rank][chunk];
      cell.value = values.input(rank, chunk);
      if (chunk == 0) first_input_[rank] = cell.value;
      cell.place = {Buffer::in, chunk};
    }
  }
}

// In place the input's cell stands for the output's that is the same.
uint32_t Memory::cell_of(uint32_t rank, Cells cells, uint32_t i) const {
  const Shape& shape = trace_.shape;
  const uint32_t number = cells.first + i;
  if (cells.buffer == Buffer::in) return number;
  if (cells.buffer == Buffer::scratch) return shape.in_chunks() + shape.out_chunks() + number;
  if (how_.in_place)
    if (const uint32_t in = shape.in_of_out(rank, number); in != Shape::none) return in;
  return shape.in_chunks() + number;
}

// The output's chunk that a cell is, or none.
uint32_t Memory::out_of_cell(uint32_t rank, uint32_t cell) const {
  const Shape& shape = trace_.shape;
  if (!shape.has_out(rank, how_.root)) return Shape::none;
  if (cell >= shape.in_chunks())
    return cell < shape.in_chunks() + shape.out_chunks() ? cell - shape.in_chunks() : Shape::none;
  return how_.in_place ? shape.out_of_in(rank, cell) : Shape::none;
}

const Memory::Cell& Memory::read(uint32_t thread, uint32_t op, uint32_t rank, Cells cells, uint32_t i, uint32_t end) {
  Cell& cell = cells_[rank][cell_of(rank, cells, i)];
  if (cell.value == Values::none) {
    const std::string whose = rank == plan_.threads[thread].rank ? std::string() : fmt::format(" of gpu {}", rank);
    throw wrong(plan_, plan_.threads[thread], plan_.threads[thread].ops[op],
                "reads {}[{}]{}, which nothing has written", letter(cells.buffer), cells.first + i, whose);
  }
  check_order(thread, op, cells, i, cell.write, "writes");
  cell.reads.push_back({thread, clocks_.now(thread), op});
  if (cell.place.buffer == Buffer::in) note_input(rank, cell.place.index);
  Use& use = uses_[rank][key(rank, cell.place)];
  if (use.writer != nobody) trace_.edges.emplace_back(use.writer, end);
  use.readers.push_back(end);
  return cell;
}

Place Memory::write(uint32_t thread, uint32_t op, uint32_t rank, Cells cells, uint32_t i, Values::Id value,
                    uint32_t end) {
  const uint32_t number = cell_of(rank, cells, i);
  Cell& cell = cells_[rank][number];
  check_order(thread, op, cells, i, cell.write, "writes");
  for (const Access& read : cell.reads) check_order(thread, op, cells, i, read, "reads");
  cell.write = {thread, clocks_.now(thread), op};
  cell.reads.clear();
  cell.value = value;
  cell.packets = plan_.threads[thread].ops[op].writes_packets ? clocks_.take(thread) : nullptr;
  const uint32_t out = out_of_cell(rank, number), piece = values_.chunk(value) % plan_.pieces;
  if (out != Shape::none && out % plan_.pieces == piece) {
    cell.place = {Buffer::out, out};
    const uint32_t in = trace_.shape.in_of_out(rank, out);
    if (trace_.shape.reducing() || in == Shape::none || value != first_input_[rank] + in) spoiled_[rank][out] = true;
  } else {
    const auto next = static_cast<uint32_t>(trace_.scratch[rank].size());
    const auto [at, fresh] = clones_[rank].try_emplace({number, piece}, next);
    if (fresh) trace_.scratch[rank].push_back(piece);
    cell.place = {Buffer::scratch, at->second};
  }
  Use& use = uses_[rank][key(rank, cell.place)];
  if (use.writer != nobody && use.writer != end) trace_.edges.emplace_back(use.writer, end);
  for (const uint32_t reader : use.readers)
    if (reader != end) trace_.edges.emplace_back(reader, end);
  use.writer = end;
  use.readers.clear();
  return cell.place;
}

bool Memory::check_overlap(const Thread& thread, const Op& op, Cells src) const {
  std::vector<uint32_t> from, to;
  for (uint32_t i = 0; i < op.count; ++i) {
    from.push_back(cell_of(thread.rank, src, i));
    to.push_back(cell_of(thread.rank, op.dst, i));
  }
  if (from == to) return true;
  std::ranges::sort(from);
  for (const uint32_t cell : to)
    if (std::ranges::binary_search(from, cell))
      throw wrong(plan_, thread, op, "its destination {}[{}] overlaps its source {}[{}]", letter(op.dst.buffer),
                  op.dst.first, letter(src.buffer), src.first);
  return false;
}

void Memory::check_order(uint32_t thread, uint32_t op, Cells cells, uint32_t i, const Access& earlier,
                         const char* does) const {
  if (earlier.thread == nobody || clocks_.before(earlier.thread, earlier.when, thread)) return;
  const Thread &mine = plan_.threads[thread], &other = plan_.threads[earlier.thread];
  const Op& other_op = other.ops[earlier.op];
  throw wrong(plan_, mine, mine.ops[op],
              "accesses {}[{}], which {} (line {}) {}, and nothing says which of them comes first: a dependency is "
              "missing",
              letter(cells.buffer), cells.first + i, place(other, other_op), other_op.line, does);
}

// Which places conflict. With one_place the output's chunk that is the input's in place is the same one.
uint64_t Memory::key(uint32_t rank, Place place) const {
  if (place.buffer == Buffer::out && how_.one_place)
    if (const uint32_t in = trace_.shape.in_of_out(rank, place.index); in != Shape::none) return in;
  return uint64_t{static_cast<uint32_t>(place.buffer)} << 32 | place.index;
}

// The input's first value is read. In place it is spoiled if the output's chunk that is the same one was written
// before, unless with that value. (Where values are reduced the copy of one may differ from it.)
void Memory::note_input(uint32_t rank, uint32_t in) {
  const Shape& shape = trace_.shape;
  if (how_.in_place || !shape.has_out(rank, how_.root)) return;
  const uint32_t out = shape.out_of_in(rank, in);
  if (out != Shape::none && spoiled_[rank][out]) trace_.in_place_as_is = false;
}

void Memory::judge() {
  const Shape& shape = trace_.shape;
  for (uint32_t rank = 0; rank < plan_.ranks; ++rank) {
    if (!shape.has_out(rank, how_.root)) continue;
    for (uint32_t chunk = 0; chunk < shape.out_chunks(); ++chunk) {
      const Cell& cell = at(rank, {Buffer::out, chunk}, 0);
      judge_chunk(rank, chunk, cell);
      if (cell.write.thread != nobody && !is_known(rank, cell.write)) {
        const Thread& writer = plan_.threads[cell.write.thread];
        const Op& op = writer.ops[cell.write.op];
        throw wrong(plan_, writer, op, "writes o[{}] of gpu {}, and no step of gpu {} waits for that", chunk, rank,
                    rank);
      }
      if (cell.place.buffer == Buffer::in) trace_.kept[rank].push_back(chunk);
    }
  }
}

// Does a thread block of the rank know at its end that something was done?
bool Memory::is_known(uint32_t rank, const Access& access) const {
  for (uint32_t t = 0; t < plan_.threads.size(); ++t)
    if (plan_.threads[t].rank == rank && clocks_.before(access.thread, access.when, t)) return true;
  return false;
}

void Memory::judge_chunk(uint32_t rank, uint32_t chunk, const Cell& cell) const {
  const Shape::Result wanted = trace_.shape.result(rank, chunk, how_.root);
  const Values::Id value = cell.value;
  const bool of_all = wanted.rank == Shape::none;
  const bool right = value != Values::none && values_.chunk(value) == wanted.chunk &&
                     (of_all ? values_.complete(value) : values_.count(value) == 1 && values_.has(value, wanted.rank));
  if (right) return;
  const Access& write = cell.write;
  const uint32_t line = write.thread == nobody ? plan_.lines[rank] : plan_.threads[write.thread].ops[write.op].line;
  const std::string expected = of_all ? fmt::format("chunk {} of all {} gpus' inputs", wanted.chunk, plan_.ranks)
                                      : fmt::format("chunk {} of gpu {}'s input", wanted.chunk, wanted.rank);
  std::string lacks;
  if (value != Values::none && of_all && values_.chunk(value) == wanted.chunk)
    lacks = fmt::format(": gpu {}'s is missing", values_.missing(value));
  throw wrong(plan_.file, line, "gpu {}: o[{}] holds {} at the end, and should hold {}{}", rank, chunk,
              values_.text(value), expected, lacks);
}

// The rank that the results of a collective with a root point at.
uint32_t Memory::guess_root() const {
  std::vector<uint32_t> votes(plan_.ranks, 0);
  const Shape& shape = trace_.shape;
  const bool to_root = plan_.collective == TUTTI_REDUCE || plan_.collective == TUTTI_GATHER;
  for (uint32_t rank = 0; rank < plan_.ranks; ++rank)
    for (uint32_t chunk = 0; chunk < shape.out_chunks(); ++chunk) {
      const Values::Id value = at(rank, {Buffer::out, chunk}, 0).value;
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

}  // namespace tutti::plans
