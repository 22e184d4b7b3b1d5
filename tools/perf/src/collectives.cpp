// SPDX-License-Identifier: Apache-2.0
#include "collectives.hpp"

#include <algorithm>

namespace perf {
namespace {

tutti_status all_reduce(const Call& c) {
  return tutti_all_reduce(c.comm, c.in, c.out, c.count, c.dtype, c.op, c.options, nullptr);
}
tutti_status reduce_scatter(const Call& c) {
  return tutti_reduce_scatter(c.comm, c.in, c.out, c.count, c.dtype, c.op, c.options, nullptr);
}
tutti_status all_gather(const Call& c) {
  return tutti_all_gather(c.comm, c.in, c.out, c.count, c.dtype, c.options, nullptr);
}
tutti_status broadcast(const Call& c) {
  return tutti_broadcast(c.comm, c.in, c.out, c.count, c.dtype, c.root, c.options, nullptr);
}
tutti_status reduce(const Call& c) {
  return tutti_reduce(c.comm, c.in, c.out, c.count, c.dtype, c.op, c.root, c.options, nullptr);
}
tutti_status gather(const Call& c) {
  return tutti_gather(c.comm, c.in, c.out, c.count, c.dtype, c.root, c.options, nullptr);
}
tutti_status scatter(const Call& c) {
  return tutti_scatter(c.comm, c.in, c.out, c.count, c.dtype, c.root, c.options, nullptr);
}
tutti_status all_to_all(const Call& c) {
  return tutti_all_to_all(c.comm, c.in, c.out, c.count, c.dtype, c.options, nullptr);
}
tutti_status scan(const Call& c) { return tutti_scan(c.comm, c.in, c.out, c.count, c.dtype, c.op, c.options, nullptr); }
tutti_status exclusive_scan(const Call& c) {
  return tutti_exclusive_scan(c.comm, c.in, c.out, c.count, c.dtype, c.op, c.options, nullptr);
}
tutti_status barrier(const Call& c) { return tutti_barrier(c.comm, c.options, nullptr); }

tutti_status gather_v(const Call& c) {
  return tutti_gather_v(c.comm, c.in, c.in_counts[0], c.out, c.out_counts, nullptr, c.dtype, c.root, c.options,
                        nullptr);
}
tutti_status all_gather_v(const Call& c) {
  return tutti_all_gather_v(c.comm, c.in, c.out, c.out_counts, nullptr, c.dtype, c.options, nullptr);
}
tutti_status scatter_v(const Call& c) {
  return tutti_scatter_v(c.comm, c.in, c.in_counts, nullptr, c.out, c.out_counts[0], c.dtype, c.root, c.options,
                         nullptr);
}
tutti_status reduce_scatter_v(const Call& c) {
  return tutti_reduce_scatter_v(c.comm, c.in, c.out, c.in_counts, nullptr, c.dtype, c.op, c.options, nullptr);
}
tutti_status all_to_all_v(const Call& c) {
  return tutti_all_to_all_v(c.comm, c.in, c.in_counts, nullptr, c.out, c.out_counts, nullptr, c.dtype, c.options,
                            nullptr);
}

// Everyone sends to the next rank and receives from the one before.
tutti_status send_receive(const Call& c) {
  constexpr uint32_t tag = 0;
  const uint32_t next = (c.rank + 1) % c.nranks, previous = (c.rank + c.nranks - 1) % c.nranks;
  const tutti_message messages[] = {{const_cast<void*>(c.in), c.count, c.dtype, next, tag, TUTTI_SEND},
                                    {c.out, c.count, c.dtype, previous, tag, TUTTI_RECEIVE}};
  return tutti_exchange(c.comm, messages, 2, c.options, nullptr);
}

constexpr Blocks none = Blocks::none, one = Blocks::one, per_rank = Blocks::per_rank;
constexpr Collective table[] = {
    // name, alias, reduces, rooted, in place, least ranks, in, out, in/out at the root only, origin, bus factor, call
    {"all_reduce", "allreduce", true, false, true, 1, one, one, false, false, Origin::reduced, BusFactor::twice_share,
     all_reduce},
    {"reduce_scatter", "reducescatter", true, false, true, 1, per_rank, one, false, false, Origin::reduced_share,
     BusFactor::share, reduce_scatter},
    {"all_gather", "allgather", false, false, true, 1, one, per_rank, false, false, Origin::each_rank, BusFactor::share,
     all_gather},
    {"broadcast", "bcast", false, true, true, 1, one, one, true, false, Origin::root, BusFactor::one, broadcast},
    {"reduce", "", true, true, true, 1, one, one, false, true, Origin::reduced, BusFactor::one, reduce},
    {"gather", "", false, true, true, 1, one, per_rank, false, true, Origin::each_rank, BusFactor::share, gather},
    {"scatter", "", false, true, true, 1, per_rank, one, true, false, Origin::own_share, BusFactor::share, scatter},
    {"all_to_all", "alltoall", false, false, true, 1, per_rank, per_rank, false, false, Origin::each_share,
     BusFactor::share, all_to_all},
    {"scan", "", true, false, true, 1, one, one, false, false, Origin::prefix, BusFactor::one, scan},
    {"exclusive_scan", "exscan", true, false, true, 1, one, one, false, false, Origin::prefix_before, BusFactor::one,
     exclusive_scan},
    {"reduce_scatter_v", "", true, false, true, 1, per_rank, one, false, false, Origin::reduced_share, BusFactor::share,
     reduce_scatter_v, true},
    {"all_gather_v", "allgatherv", false, false, true, 1, one, per_rank, false, false, Origin::each_rank,
     BusFactor::share, all_gather_v, true},
    {"gather_v", "gatherv", false, true, true, 1, one, per_rank, false, true, Origin::each_rank, BusFactor::share,
     gather_v, true},
    {"scatter_v", "scatterv", false, true, true, 1, per_rank, one, true, false, Origin::own_share, BusFactor::share,
     scatter_v, true},
    {"all_to_all_v", "alltoallv", false, false, false, 1, per_rank, per_rank, false, false, Origin::each_share,
     BusFactor::share, all_to_all_v, true},
    {"sendrecv", "", false, false, false, 2, one, one, false, false, Origin::previous_rank, BusFactor::one,
     send_receive},
    {"barrier", "", false, false, false, 1, none, none, false, false, Origin::nothing, BusFactor::one, barrier},
};

uint64_t blocks(Blocks kind, uint32_t nranks) { return kind == Blocks::none ? 0 : kind == Blocks::one ? 1 : nranks; }

}  // namespace

uint64_t Collective::in_blocks(uint32_t nranks) const { return blocks(in, nranks); }
uint64_t Collective::out_blocks(uint32_t nranks) const { return blocks(out, nranks); }

uint64_t Collective::count_for(uint64_t bytes, uint64_t element_bytes, uint32_t nranks) const {
  const uint64_t most = std::max(in_blocks(nranks), out_blocks(nranks));
  return most == 0 ? 0 : bytes / element_bytes / most;
}

uint64_t Collective::total_bytes(uint64_t count, uint64_t element_bytes, uint32_t nranks) const {
  return count * element_bytes * std::max(in_blocks(nranks), out_blocks(nranks));
}

double Collective::bus_factor(uint32_t nranks) const {
  const double share = static_cast<double>(nranks - 1) / nranks;
  return bus == BusFactor::one ? 1.0 : bus == BusFactor::share ? share : 2 * share;
}

std::span<const Collective> all_collectives() { return table; }

const Collective* find_collective(const std::string& name) {
  for (const Collective& collective : table)
    if (name == collective.name || (!name.empty() && name == collective.alias)) return &collective;
  return nullptr;
}

std::string collective_names() {
  std::string names;
  for (const Collective& collective : table) names += std::string(names.empty() ? "" : ", ") + collective.name;
  return names;
}

}  // namespace perf
