// SPDX-License-Identifier: Apache-2.0
//
// Collectives as shapes (names, and which rank has which blocks), and where a schedule's cut points fall.
#include <tutti/schedule.h>

#include <memory>
#include <mutex>

namespace tutti {
namespace {

enum class Blocks { none, one, one_at_root, one_behind_first, all, all_at_root };

struct CollectiveTraits {
  const char* name;
  Blocks in, out;
  bool reducing, rooted;
};

constexpr CollectiveTraits table[] = {
    // by TUTTI_BROADCAST and so on; no collective has number 0
    {"unknown", Blocks::none, Blocks::none, false, false},
    {"broadcast", Blocks::one_at_root, Blocks::one, false, true},
    {"reduce", Blocks::one, Blocks::one_at_root, true, true},
    {"all_reduce", Blocks::one, Blocks::one, true, false},
    {"gather", Blocks::one, Blocks::all_at_root, false, true},
    {"all_gather", Blocks::one, Blocks::all, false, false},
    {"scatter", Blocks::all_at_root, Blocks::one, false, true},
    {"reduce_scatter", Blocks::all, Blocks::one, true, false},
    {"all_to_all", Blocks::all, Blocks::all, false, false},
    {"barrier", Blocks::none, Blocks::none, false, false},
    {"gather_v", Blocks::one, Blocks::all_at_root, false, true},
    {"all_gather_v", Blocks::one, Blocks::all, false, false},
    {"scatter_v", Blocks::all_at_root, Blocks::one, false, true},
    {"reduce_scatter_v", Blocks::all, Blocks::one, true, false},
    {"all_to_all_v", Blocks::all, Blocks::all, false, false},
    {"scan", Blocks::one, Blocks::one, true, false},
    {"exclusive_scan", Blocks::one, Blocks::one_behind_first, true, false},
};
static_assert(std::size(table) == last_collective + 1);

const CollectiveTraits& traits_of(uint32_t collective) { return table[collective < std::size(table) ? collective : 0]; }

// `n` zeros that live as long as the process: the hosts of a problem whose ranks are all on one.
const uint32_t* zeros(uint32_t n) {
  static std::mutex mutex;
  static std::vector<std::pair<uint32_t, std::unique_ptr<uint32_t[]>>> tables;
  const std::lock_guard lock(mutex);
  // Each table is at least twice as long as the one before it, so all together stay below twice the longest.
  if (tables.empty() || tables.back().first < n) {
    uint32_t length = tables.empty() ? 64 : tables.back().first;
    while (length < n) length = length > UINT32_MAX / 2 ? n : length * 2;
    tables.emplace_back(length, std::make_unique<uint32_t[]>(length));
  }
  return tables.back().second.get();
}

}  // namespace

const char* collective_name(uint32_t collective) { return traits_of(collective).name; }
bool is_reducing(uint32_t collective) { return traits_of(collective).reducing; }
bool has_root(uint32_t collective) { return traits_of(collective).rooted; }

uint32_t block_count(uint32_t collective, uint32_t nranks, uint32_t root, uint32_t rank, uint32_t buffer) {
  if (buffer != TUTTI_BUFFER_IN && buffer != TUTTI_BUFFER_OUT) return 0;
  const CollectiveTraits& traits = traits_of(collective);
  switch (buffer == TUTTI_BUFFER_IN ? traits.in : traits.out) {
    case Blocks::one:
      return 1;
    case Blocks::one_at_root:
      return rank == root ? 1 : 0;
    case Blocks::one_behind_first:
      return rank > 0 ? 1 : 0;
    case Blocks::all:
      return nranks;
    case Blocks::all_at_root:
      return rank == root ? nranks : 0;
    case Blocks::none:
      break;
  }
  return 0;
}

InPlaceForm in_place_form(uint32_t collective) {
  if (collective == TUTTI_ALL_TO_ALL_V) return InPlaceForm::none;
  const auto has_all = [](Blocks blocks) { return blocks == Blocks::all || blocks == Blocks::all_at_root; };
  const CollectiveTraits& traits = traits_of(collective);
  if (has_all(traits.in) == has_all(traits.out)) return InPlaceForm::same;
  return has_all(traits.out) ? InPlaceForm::in_is_block : InPlaceForm::out_is_block;
}

uint32_t block_class(uint32_t collective, uint32_t nranks, uint32_t rank, uint32_t buffer, uint32_t block) {
  switch (collective) {
    case TUTTI_GATHER_V:
    case TUTTI_ALL_GATHER_V:
      return buffer == TUTTI_BUFFER_IN ? rank : block;
    case TUTTI_SCATTER_V:
    case TUTTI_REDUCE_SCATTER_V:
      return buffer == TUTTI_BUFFER_IN ? block : rank;
    case TUTTI_ALL_TO_ALL_V:
      return buffer == TUTTI_BUFFER_IN ? rank * nranks + block : block * nranks + rank;
    default:
      return 0;
  }
}

uint64_t block_classes(uint32_t collective, uint32_t nranks) {
  if (!has_unequal_blocks(collective)) return 1;
  return collective == TUTTI_ALL_TO_ALL_V ? uint64_t{nranks} * nranks : nranks;
}

bool all_know_blocks(uint32_t collective) {
  return collective != TUTTI_GATHER_V && collective != TUTTI_SCATTER_V && collective != TUTTI_ALL_TO_ALL_V;
}

bool knows_block(uint32_t collective, uint32_t nranks, uint32_t root, uint32_t rank, uint32_t block_class) {
  if (all_know_blocks(collective)) return true;
  if (collective == TUTTI_ALL_TO_ALL_V) return block_class / nranks == rank || block_class % nranks == rank;
  return rank == root || rank == block_class;
}

tutti_query make_query(const Problem& problem, uint32_t rank) {
  tutti_query query{};
  query.struct_size = sizeof query;
  query.collective = problem.collective;
  query.nranks = problem.nranks;
  query.rank = rank;
  query.root = has_root(problem.collective) ? problem.root : 0;
  query.lanes = problem.lanes;
  query.flags = rank < problem.in_place.size() && problem.in_place[rank] ? TUTTI_QUERY_IN_PLACE : 0;
  query.host_of_rank = problem.hosts.empty() ? zeros(problem.nranks) : problem.hosts.data();
  query.parameters = problem.parameters.empty() ? nullptr : problem.parameters.c_str();
  query.block_bytes = problem.block_bytes;
  query.topology = problem.topology.get();
  return query;
}

uint64_t piece_bound(const std::vector<tutti_cut>& cuts, uint64_t length, uint32_t piece) {
  constexpr uint64_t alignment = 64;         // elements
  constexpr uint64_t worth_aligning = 4096;  // elements per cut
  if (piece == 0) return 0;
  if (piece > cuts.size()) return length;
  const tutti_cut& cut = cuts[piece - 1];
  const auto at = static_cast<uint64_t>(static_cast<unsigned __int128>(cut.p) * length / cut.q);
  return length / worth_aligning >= cuts.size() ? at - at % alignment : at;
}

std::vector<uint64_t> piece_bounds(const Schedule& schedule, uint64_t length) {
  std::vector<uint64_t> bounds;
  bounds.reserve(schedule.cuts.size() + 2);
  for (uint32_t piece = 0; piece <= schedule.pieces(); ++piece)
    bounds.push_back(piece_bound(schedule.cuts, length, piece));
  return bounds;
}

}  // namespace tutti
