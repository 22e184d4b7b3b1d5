// SPDX-License-Identifier: Apache-2.0
#include "matrix/blame.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "matrix/members.hpp"
#include "oracle/blocks.hpp"
#include "proofs/problems.hpp"
#include "simulation/simulation.hpp"

namespace tutti::conformance {
namespace {

constexpr uint64_t most_candidates = 1'000'000;

// The data step that wrote a chunk of OUT last, by the time at which a simulation ends it.
struct Writer {
  uint32_t lane = 0;
  size_t step = 0;
  double end = -1;
  const Step* what = nullptr;
};

bool writes(const Step& step, uint32_t chunk) {
  const tutti_span& dst = step.op.dst;
  return dst.chunks && dst.buffer == TUTTI_BUFFER_OUT && chunk >= dst.first && chunk < dst.first + dst.chunks;
}

Writer last_writer(const Problem& problem, const std::vector<Schedule>& schedules, uint32_t rank, uint32_t chunk,
                   uint64_t block_bytes, uint32_t element_bytes) {
  const auto times = simulation::step_times(problem, schedules, block_bytes, element_bytes);
  Writer last;
  for (uint32_t lane = 0; lane < schedules[rank].lanes.size(); ++lane) {
    const std::vector<Step>& steps = schedules[rank].lanes[lane];
    for (size_t i = 0; i < steps.size(); ++i) {
      const double end = times.empty() ? static_cast<double>(i) : times[rank][lane][i].end;
      if (writes(steps[i], chunk) && end >= last.end) last = {lane, i, end, &steps[i]};
    }
  }
  return last;
}

// Does `value(k)` equal got[k] for all k?
template <typename Value>
bool fits(const std::vector<uint64_t>& got, Value value) {
  for (size_t k = 0; k < got.size(); ++k)
    if (value(k) != got[k]) return false;
  return true;
}

std::string wrong_operands(const Cell& cell, const Data& data, uint32_t ranks, uint64_t first,
                           const std::vector<uint64_t>& got) {
  for (uint32_t r = 0; r < cell.operation.nranks; ++r) {
    if (fits(got, [&](size_t k) { return data.reduced_without(r, first + k, ranks); }))
      return fmt::format("rank {}'s contribution is missing", r);
    if (fits(got, [&](size_t k) { return data.reduced_twice(r, first + k, ranks); }))
      return fmt::format("rank {}'s contribution is counted twice", r);
    if (fits(got, [&](size_t k) { return data.input(r, first + k); }))
      return fmt::format("it is rank {}'s contribution alone", r);
    if (r + 1 != ranks && fits(got, [&](size_t k) { return data.reduced(first + k, r + 1); }))
      return fmt::format("it is the reduction of ranks 0 to {} instead of 0 to {}", r, ranks - 1);
  }
  return {};
}

}  // namespace

bool by_threads(const Cell& cell, const Mix& mix) {
  return mix.threads || (!cell.on_host() && cell.ranks_as == RanksAs::threads);
}

std::vector<int32_t> numa_of(const Cell& cell, const Mix& mix) {
  const uint32_t n = cell.operation.nranks;
  return by_threads(cell, mix) || !cell.on_host() ? std::vector<int32_t>(n, 0) : nodes_in_turn(n);
}

Problem problem_of(const Cell& cell, const Mix& mix) {
  Problem problem;
  problem.collective = cell.operation.collective;
  problem.nranks = cell.operation.nranks;
  problem.root = cell.operation.root;
  problem.lanes = matrix_lanes;
  problem.hosts = mix.hosts(cell.operation.nranks);
  problem.topology = topology_of_nodes(problem.hosts, numa_of(cell, mix));
  for (uint32_t r = 0; r < cell.operation.nranks; ++r) {
    problem.in_place.push_back(cell.in_place_at(r) && has_both(cell.operation, r));
  }
  // The largest of the size class, as the core asks.
  const uint64_t bytes = cell.type ? cell.operation.count * cell.type->bytes : 0;
  if (bytes && !has_unequal_blocks(problem.collective)) problem.block_bytes = ~uint64_t{0} >> std::countl_zero(bytes);
  return problem;
}

std::vector<Schedule> schedules_of(const Cell& cell, const Mix& mix) {
  std::string error;
  const tutti_algorithm* algorithm = find_algorithm(cell.algorithm, &error);
  std::vector<Schedule> schedules;
  if (!algorithm || build_schedules(*algorithm, problem_of(cell, mix), &schedules, &error) < 0)
    throw std::runtime_error(fmt::format("algorithm {}: {}", cell.algorithm, error));
  return schedules;
}

std::string blame(const Cell& cell, const Mix& mix, uint32_t rank, uint64_t index, uint64_t slices) {
  const Operation& o = cell.operation;
  const std::vector<Schedule> schedules = schedules_of(cell, mix);
  const Schedule& mine = schedules[rank];
  const auto [block, within] = position_of(o, rank, index);
  const uint64_t elements = block_elements(o, rank, false, block);
  const std::vector<uint64_t> bounds = piece_bounds(mine, elements);
  const auto piece = static_cast<uint32_t>(std::upper_bound(bounds.begin(), bounds.end(), within) - bounds.begin() - 1);
  const auto chunk = static_cast<uint32_t>(block * mine.pieces() + piece);
  const uint64_t length = bounds[piece + 1] - bounds[piece], first = index - within + bounds[piece];
  uint64_t slice = 0;
  while (slice + 1 < slices && slice_begin(length, slice + 1, slices) <= within - bounds[piece]) ++slice;
  const Writer writer =
      last_writer(problem_of(cell, mix), schedules, rank, chunk, elements * cell.type->bytes, cell.type->bytes);
  std::string text = fmt::format("chunk {} of OUT (elements {} to {}), slice {} of {}; ", chunk, first,
                                 first + length - 1, slice + 1, slices);
  if (!writer.what) return text + fmt::format("no step of {}'s schedule writes it", cell.algorithm);
  return text + fmt::format("last written by step {} of lane {} of {}'s schedule: {}", writer.step, writer.lane,
                            cell.algorithm, describe(*writer.what));
}

std::string diagnose(const Cell& cell, const Data& data, uint32_t rank, uint64_t index,
                     const std::vector<uint64_t>& got) {
  const Operation& o = cell.operation;
  const uint64_t length = data_length(o);
  const uint64_t base = reduced_begin(o, rank);
  const uint32_t ranks = reduced_ranks(o, rank);
  if (reduces(o.collective)) {
    if (std::string text = wrong_operands(cell, data, ranks, base + index, got); !text.empty()) return text;
    if (length * o.nranks > most_candidates || got.size() < 2) return {};
    for (uint64_t i = 0; i + got.size() <= length; ++i)
      if (fits(got, [&](size_t k) { return data.reduced(i + k, ranks); }))
        return fmt::format("it is the result of element {} of the whole", i);
    return {};
  }
  if (length * o.nranks > most_candidates || got.size() * cell.type->bytes < 4) return {};
  for (uint32_t r = 0; r < o.nranks; ++r)
    for (uint64_t i = 0; i + got.size() <= length; ++i)
      if (fits(got, [&](size_t k) { return data.input(r, i + k); }))
        return fmt::format("it is element {} of rank {}'s input", i, r);
  return {};
}

}  // namespace tutti::conformance
