// SPDX-License-Identifier: Apache-2.0
#include "matrix/cells.hpp"

#include <tutti/registry.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <initializer_list>
#include <set>
#include <stdexcept>

#include "filters.hpp"
#include "matrix/blame.hpp"
#include "matrix/members.hpp"
#include "matrix/pairwise.hpp"

namespace tutti::conformance {
namespace {

// Above so many bytes in all buffers of all ranks a count is replaced by a smaller one.
constexpr uint64_t most_bytes_smoke = 8 << 20, most_bytes = 48 << 20;
// Elements of a block of an exact sum: the oracle takes microseconds for one.
constexpr uint64_t most_exact_smoke = 300, most_exact = 10'000;

struct Served {
  uint32_t collective;
  const tutti_algorithm* algorithm;
};

// The values of each coordinate that a selection and a level leave.
struct Axes {
  std::vector<Served> operations;
  std::vector<const ElementType*> types;
  std::vector<uint32_t> ops, ranks;
  uint32_t counts = 0;                   // by number, since the values depend on ranks and type
  std::vector<uint32_t> roots{0, 1, 2};  // first, last, one in the middle
  std::vector<InPlace> places{InPlace::out, InPlace::in, InPlace::some};
  std::vector<Memory> memories{Memory::heap, Memory::alloc, Memory::memfd, Memory::some, Memory::window};
  std::vector<Alignment> alignments{Alignment::aligned, Alignment::odd, Alignment::mixed};
  std::vector<Calls> calls{Calls::block, Calls::request, Calls::overlap};
  Layouts layouts;
};

// The order of factors in a covering array.
enum Factor : uint32_t {
  f_operation,
  f_type,
  f_op,
  f_ranks,
  f_count,
  f_root,
  f_place,
  f_memory,
  f_alignment,
  f_calls,
  f_layout
};

std::vector<const ElementType*> known_types(const Selection& s) {
  const std::set<std::string> few{"float32", "bfloat16",    "int64",      "uint8",
                                  "bool",    "float8_e4m3", "complex128", "float32_int32"};
  std::vector<const ElementType*> types;
  for (const uint32_t d : all_dtypes()) {
    const std::string name = dtype_name(d);
    if (s.types.empty() ? s.level == Level::smoke && !few.contains(name) : !wants(s.types, name)) continue;
    const ElementType* type = element_type(name);
    if (!type)
      throw std::runtime_error("the oracle does not know the type " + name + " (conformance/oracle/element.cpp)");
    types.push_back(type);
  }
  return types;
}

Axes axes_of(const Selection& s, const Mix& mix, const Device& device, const Layouts& layouts) {
  Axes axes;
  axes.layouts = layouts;
  // Where transports carry everything, windows of device memory are staged: as without them.
  if (!device.host()) axes.memories = {Memory::device};
  if (mix.mapped) axes.memories.push_back(Memory::window);
  for (uint32_t c = TUTTI_BROADCAST; c <= last_collective; ++c) {
    for (const tutti_algorithm* a : list_algorithms())
      if ((a->collectives >> c & 1) && wants(s.collectives, collective_name(c)) && wants(s.algorithms, a->name))
        axes.operations.push_back({c, a});
  }
  axes.types = known_types(s);
  axes.ops = all_ops();
  if (!s.ranks.empty())
    axes.ranks = s.ranks;
  else if (s.level == Level::smoke)
    axes.ranks = device.host() ? std::vector<uint32_t>{1, 2, 3, 5} : std::vector<uint32_t>{1, 2, 3, 8};
  else if (!device.host() && s.level == Level::quick)
    axes.ranks = {1, 2, 3, 4, 5, 8};
  else
    axes.ranks = {1, 2, 3, 5, 7, 8, 9, 13, 16, 17};
  if (!axes.types.empty()) axes.counts = static_cast<uint32_t>(counts_for(s.level, mix, 3, *axes.types.front()).size());
  return axes;
}

bool supported(const Served& served, uint32_t nranks, const Mix& mix, const Device& device) {
  Cell cell;
  cell.device = device.name;
  cell.operation = {served.collective, nranks, 0, 1};
  const Problem problem = problem_of(cell, mix);
  const tutti_query query = make_query(problem, 0);
  take_plugin_error();
  return served.algorithm->supports(served.algorithm->self, &query) >= 0;
}

// Row -> cell. Arguments that an operation does not use (operator, root, type and count of a barrier) get their
// defaults.
class Cells {
 public:
  Cells(const Selection& selection, const Mix& mix, const Device& device, const Layouts& layouts)
      : level_(selection.level), mix_(mix), device_(device), axes_(axes_of(selection, mix, device, layouts)) {
    const std::vector<uint32_t> usual = axes_.ranks;
    for (const Served& served : axes_.operations) {
      uint32_t telling = 0;  // numbers of ranks that exchange something
      for (const uint32_t n : usual) telling += serve(served, n) && n > 1;
      // An algorithm for even numbers, or for several hosts, gets numbers of its own.
      for (uint32_t n = 2; selection.ranks.empty() && telling < least_telling && n <= most_own_ranks; ++n) {
        if (std::ranges::find(usual, n) != usual.end() || !serve(served, n)) continue;
        if (std::ranges::find(axes_.ranks, n) == axes_.ranks.end()) axes_.ranks.push_back(n);
        ++telling;
      }
    }
    std::ranges::sort(axes_.ranks);
  }

  Factors factors() const {
    const auto size = [](const auto& values) { return static_cast<uint32_t>(values.size()); };
    return {size(axes_.operations), size(axes_.types),      size(axes_.ops) + 1,  // the last: none
            size(axes_.ranks),      axes_.counts,           size(axes_.roots),   size(axes_.places),
            size(axes_.memories),   size(axes_.alignments), size(axes_.calls),   size(axes_.layouts)};
  }

  // The operation binds others; operators have their types; there are no more devices than ranks; windows have a rule
  // for being in place.
  bool allowed(uint32_t factor_a, uint32_t value_a, uint32_t factor_b, uint32_t value_b) const {
    if (factor_a == f_type && factor_b == f_op)
      return value_b == axes_.ops.size() ||
             op_is_defined(axes_.ops[value_b], dtype_from_name(axes_.types[value_a]->name));
    if (factor_a == f_ranks && factor_b == f_layout) return axes_.layouts[value_b].devices <= axes_.ranks[value_a];
    if (factor_a == f_place && factor_b == f_memory)
      return axes_.places[value_a] != InPlace::some || axes_.memories[value_b] != Memory::window;
    if (factor_a != f_operation) return true;
    const Served& served = axes_.operations[value_a];
    switch (factor_b) {
      case f_op:
        return reduces(served.collective) == (value_b < axes_.ops.size());
      case f_root:
        return rooted(served.collective) || value_b == 0;
      case f_ranks:
        return supports(served, axes_.ranks[value_b]);
      case f_place:
        if (served.collective == TUTTI_ALL_TO_ALL_V) return value_b == 0;
        [[fallthrough]];
      case f_type:
      case f_count:
      case f_memory:
      case f_alignment:
        return served.collective != TUTTI_BARRIER || value_b == 0;
      default:
        return true;
    }
  }

  // `op`, of the oracle's own, takes the place of the row's operator. Says whether there is such a cell.
  bool add(const std::vector<uint32_t>& row, uint32_t op = 0) {
    const Served& served = axes_.operations[row[f_operation]];
    Cell cell;
    const uint32_t n = axes_.ranks[row[f_ranks]];
    cell.algorithm = served.algorithm->name;
    cell.mix = mix_.name;
    cell.type = axes_.types[row[f_type]];
    cell.op = op ? op : row[f_op] < axes_.ops.size() ? axes_.ops[row[f_op]] : 0;
    const uint32_t roots[] = {0, n - 1, n / 2};
    cell.operation = {served.collective, n, roots[axes_.roots[row[f_root]]], 0};
    cell.place = axes_.places[row[f_place]];
    cell.memory = axes_.memories[row[f_memory]];
    cell.alignment = axes_.alignments[row[f_alignment]];
    cell.calls = axes_.calls[row[f_calls]];
    cell.device = device_.name;
    cell.ranks_as = axes_.layouts[row[f_layout]].ranks_as;
    cell.devices = axes_.layouts[row[f_layout]].devices;
    if (served.collective != TUTTI_BARRIER) {
      cell.operation.count = counts_for(level_, mix_, n, *cell.type)[row[f_count]];
      shrink(cell);
    }
    if (op && (!combines(*cell.type, op) || !serves(cell))) return false;
    cells_.push_back(std::move(cell));
    return true;
  }

  // The whole product of some factors; the others take their values in turns.
  void add_plane(const std::vector<Factor>& plane) {
    const Factors sizes = factors();
    std::vector<uint32_t> row(sizes.size(), 0);
    for (;;) {
      bool legal = true;
      for (const Factor f : plane) legal &= f == f_operation || allowed(f_operation, row[f_operation], f, row[f]);
      if (legal) add_with_turns(row, plane, sizes);
      size_t at = 0;
      while (at < plane.size() && ++row[plane[at]] == sizes[plane[at]]) row[plane[at++]] = 0;
      if (at == plane.size()) return;
    }
  }

  // With few values, most pairs have few ranks or few elements, which exercise little of an algorithm. So each
  // operation gets two more cells with the most of both.
  void add_telling() {
    for (uint32_t operation = 0; operation < axes_.operations.size(); ++operation) {
      auto ranks = static_cast<uint32_t>(axes_.ranks.size());
      for (uint32_t k = 0; k < 2; ++k) {
        do --ranks;
        while (ranks > 0 && !allowed(f_operation, operation, f_ranks, ranks));
        if (!allowed(f_operation, operation, f_ranks, ranks)) break;
        std::vector<uint32_t> row(factors().size(), 0);
        row[f_operation] = operation;
        row[f_ranks] = ranks;
        row[f_count] = axes_.operations[operation].collective == TUTTI_BARRIER ? 0 : axes_.counts - 2 + k;
        add_with_turns(row, {f_operation, f_ranks, f_count}, factors());
        if (ranks == 0) break;
      }
    }
  }

  // Operators of the oracle's own: each reducing operation gets a cell with each of them for most ranks, and for fewer.
  void add_operators(std::initializer_list<uint32_t> ops) {
    for (uint32_t operation = 0; operation < axes_.operations.size(); ++operation) {
      if (!reduces(axes_.operations[operation].collective)) continue;
      for (const uint32_t op : ops) {
        uint32_t made = 0;
        for (auto ranks = static_cast<uint32_t>(axes_.ranks.size()); ranks-- > 0 && made < 2;) {
          if (axes_.ranks[ranks] < 2 || !allowed(f_operation, operation, f_ranks, ranks)) continue;
          std::vector<uint32_t> row(factors().size(), 0);
          row[f_operation] = operation;
          row[f_ranks] = ranks;
          made += add_with_turns(row, {f_operation, f_ranks}, factors(), op);
        }
      }
    }
  }

  // Moves of 2^31 bytes and around, in one buffer each.
  void add_giants() {
    for (uint32_t i = 0; i < axes_.operations.size(); ++i) {
      const uint32_t c = axes_.operations[i].collective;
      if (c != TUTTI_BROADCAST && c != TUTTI_ALL_REDUCE && c != TUTTI_ALL_GATHER) continue;
      if (!supports(axes_.operations[i], 2) || !wants(axes_.ranks, 2u)) continue;
      for (const ElementType* type : axes_.types) {
        if (type->bytes != 1 || type->kind != ElementType::Kind::unsigned_integer) continue;
        for (const uint64_t count : {(uint64_t{1} << 31) - 1, uint64_t{1} << 31, (uint64_t{1} << 31) + 1}) {
          Cell cell;
          cell.operation = {c, 2, 0, count};
          cell.algorithm = axes_.operations[i].algorithm->name;
          cell.mix = mix_.name;
          cell.type = type;
          cell.op = reduces(c) ? uint32_t{TUTTI_SUM} : 0;
          cell.place = InPlace::in;
          cells_.push_back(std::move(cell));
        }
      }
    }
  }

  bool empty() const {
    return axes_.operations.empty() || axes_.types.empty() || axes_.ranks.empty() || axes_.layouts.empty();
  }
  std::vector<Cell> take() { return std::move(cells_); }

 private:
  // An operation whose usual numbers of ranks are fewer than this, beside 1, gets more of them, up to most_own_ranks.
  static constexpr uint32_t least_telling = 2, most_own_ranks = 17;
  // Notes whether the operation is for so many ranks.
  bool serve(const Served& served, uint32_t n) {
    const bool yes = supported(served, n, mix_, device_);
    if (yes) supports_.insert({served.collective, served.algorithm->name, n});
    return yes;
  }
  bool supports(const Served& served, uint32_t n) const {
    return supports_.contains({served.collective, served.algorithm->name, n});
  }
  // An operator that does not commute is for schedules whose operands stand in the order of ranks, exact sums are for
  // flat ones.
  bool serves(Cell& cell) const {
    if (cell.op == app_sum) return true;
    if (is_exact(cell.op)) {
      if (!(device_.exact_dtypes >> dtype_from_name(cell.type->name) & 1)) return false;
      cell.operation.count = std::min(cell.operation.count, level_ == Level::smoke ? most_exact_smoke : most_exact);
      Problem problem = problem_of(cell, mix_);
      problem.in_place.clear();  // the core wants a schedule that is flat in every form
      std::string error;
      return verify_algorithm(*find_algorithm(cell.algorithm, &error), problem).flat;
    }
    const Proof proof = verify(problem_of(cell, mix_), schedules_of(cell, mix_));
    return proof.error.empty() && proof.rank_order;
  }
  void shrink(Cell& cell) const {
    const uint64_t limit = level_ == Level::smoke ? most_bytes_smoke : most_bytes;
    while (cell.bytes() > limit) cell.operation.count = cell.operation.count / 2 + 1;
  }
  // May factor f have its value in the row, of which the factors before it are settled?
  bool fits(const std::vector<uint32_t>& row, uint32_t f) const {
    return allowed(f_operation, row[f_operation], f, row[f]) &&
           (f <= f_type || allowed(f_type, row[f_type], f, row[f])) &&
           (f <= f_ranks || allowed(f_ranks, row[f_ranks], f, row[f])) &&
           (f <= f_place || allowed(f_place, row[f_place], f, row[f]));
  }
  // The factors of the plane as `row` has them; each other one takes the next of its values that is allowed.
  // `op` as in `add`.
  bool add_with_turns(std::vector<uint32_t> row, const std::vector<Factor>& plane, const Factors& sizes,
                      uint32_t op = 0) {
    for (uint32_t f = 1; f < sizes.size(); ++f) {
      if (std::find(plane.begin(), plane.end(), f) != plane.end()) continue;
      for (uint32_t tries = 0; tries < sizes[f]; ++tries) {
        row[f] = static_cast<uint32_t>((turn_ / (f + 1) + turn_ + tries) % sizes[f]);
        if (fits(row, f) && (f != f_type || !op || combines(*axes_.types[row[f]], op))) break;
      }
      if (!fits(row, f)) return false;
    }
    ++turn_;
    return add(row, op);
  }

  Level level_;
  const Mix& mix_;
  const Device& device_;
  Axes axes_;
  std::set<std::tuple<uint32_t, std::string, uint32_t>> supports_;
  std::vector<Cell> cells_;
  uint64_t turn_ = 0;
};

}  // namespace

std::vector<uint64_t> counts_for(Level level, const Mix& mix, uint32_t n, const ElementType& type) {
  const uint64_t fragment = mix.fragment_bytes / type.bytes, small = mix.inline_bytes / type.bytes;
  const uint64_t cut = 4096 * uint64_t{std::max(n, 2u) - 1};
  const uint64_t page = 4096 / type.bytes;
  if (level == Level::smoke) return {0, 1, n + uint64_t{1}, 1009, fragment + 1};
  std::vector<uint64_t> counts{0,         1,    n - uint64_t{1}, n,        n + uint64_t{1}, 97,       small,
                               small + 1, 1009, page - 1,        page + 1, fragment - 1,    fragment, fragment + 1,
                               cut - 1,   cut};
  if (level == Level::quick) return counts;
  for (const uint64_t more : {page, n * fragment - 1, n * fragment + 1, uint64_t{100'003}, cut + 1})
    counts.push_back(more);
  if (level == Level::full) counts.push_back(1'000'003);
  return counts;
}

Layouts layouts_of(const Device& device, bool processes, bool threads) {
  if (device.host()) return {{}};
  Layouts layouts;
  for (const bool as_threads : {false, true})
    for (uint32_t n = 1; (as_threads ? threads : processes) && n <= device.devices; n *= 2)
      layouts.push_back({as_threads ? RanksAs::threads : RanksAs::processes, n});
  return layouts;
}

std::vector<Cell> cells_of(const Selection& selection, const Mix& mix, const Device& device, const Layouts& layouts) {
  Cells cells(selection, mix, device, layouts);
  if (cells.empty()) return {};
  const Factors factors = cells.factors();
  const Allowed allowed = [&](uint32_t a, uint32_t va, uint32_t b, uint32_t vb) { return cells.allowed(a, va, b, vb); };
  for (const auto& row : cover_pairs(factors, allowed, std::hash<std::string>()(mix.name))) cells.add(row);
  if (selection.level == Level::smoke) cells.add_telling();
  if (device.host()) cells.add_operators({app_sum, app_compose});
  cells.add_operators({sum_exactly, avg_exactly});
  if (selection.level == Level::standard) {
    cells.add_plane({f_operation, f_type, f_op});
    cells.add_plane({f_operation, f_ranks, f_count});
    cells.add_plane({f_operation, f_ranks, f_root, f_place});
  }
  if (selection.level == Level::full) {
    cells.add_plane({f_operation, f_type, f_op, f_count});
    cells.add_plane({f_operation, f_type, f_ranks, f_count});
    cells.add_plane({f_operation, f_ranks, f_root, f_place, f_memory});
    if (device.host()) cells.add_giants();
  }
  return cells.take();
}

}  // namespace tutti::conformance
