// SPDX-License-Identifier: Apache-2.0
//
// The collectives with unequal blocks: arrays of counts and displacements become a BlockTable.
#include <tutti/schedule.h>
#include <tutti/tutti.h>

#include <algorithm>

#include "api/arguments.hpp"
#include "api/guards.hpp"

namespace tutti::core::api {
namespace {

// The blocks of one buffer as the caller gives them. No `counts_name`: it is one block of counts[0] elements.
struct GivenBlocks {
  const void* address = nullptr;
  const uint64_t* counts = nullptr;
  const uint64_t* displacements = nullptr;
  const char* counts_name = nullptr;
};

struct UnequalCall {
  uint32_t collective;
  GivenBlocks in, out;
  uint32_t dtype = 0, op = 0, root = 0;
  const UserOperator* user = nullptr;  // of `op`
};

// One buffer of a call, for checks.
struct Side {
  const char* name;
  uintptr_t base = 0;
  const BlockList* blocks;
  uint64_t element;

  uintptr_t begin(size_t b) const { return base + blocks->begins[b] * element; }
  uintptr_t end(size_t b) const { return begin(b) + blocks->counts[b] * element; }
  std::string text(size_t b) const {
    return fmt::format("block {} of {} ({} elements from element {} on)", b, name, blocks->counts[b],
                       blocks->begins[b]);
  }
};

// Throws Failure where the array of a buffer with a block for each rank is missing.
void require_counts(const char* call, const GivenBlocks& given, uint32_t blocks) {
  if (blocks && given.counts_name && !given.counts)
    invalid(fmt::format("{}: {} is NULL, expected an array of {} numbers, one for each rank", call, given.counts_name,
                        blocks));
}

// Fills `list` with `n` blocks. Throws Failure where one cannot be addressed.
void fill(const char* call, const char* name, const GivenBlocks& given, uint32_t n, uint64_t element, BlockList& list) {
  const uint64_t most = most_bytes / element;
  list.counts.assign(given.counts, given.counts + n);
  list.begins.resize(n);
  uint64_t end = 0, total = 0;
  for (uint32_t b = 0; b < n; ++b) {
    const uint64_t count = list.counts[b];
    const uint64_t begin = given.counts_name && given.displacements ? given.displacements[b] : end;
    list.begins[b] = count ? begin : 0;  // an empty block is nowhere
    if (!count) continue;
    if (count > most || begin > most - count || total > most - count)
      invalid(
          fmt::format("{}: block {} of {}, {} elements of {} bytes from element {} on behind {} others, is more than "
                      "can be addressed",
                      call, b, name, count, element, begin, total));
    end = begin + count;
    total += count;
  }
}

// The places of the blocks that are not empty, lowest first. In the thread's own memory, which it keeps.
const std::vector<uint32_t>& in_order(const BlockList& list) {
  thread_local std::vector<uint32_t> order;
  order.clear();
  for (uint32_t b = 0; b < list.counts.size(); ++b)
    if (list.counts[b]) order.push_back(b);
  if (!std::ranges::is_sorted(order, {}, [&](uint32_t b) { return list.begins[b]; }))
    std::ranges::sort(order, {}, [&](uint32_t b) { return list.begins[b]; });
  return order;
}

void check_own_overlap(const char* call, const Side& out) {
  const std::vector<uint32_t>& order = in_order(*out.blocks);
  for (size_t i = 0; i + 1 < order.size(); ++i)
    if (out.end(order[i]) > out.begin(order[i + 1]))
      invalid(fmt::format("{}: {} and {} overlap: each element of out is written once", call, out.text(order[i]),
                          out.text(order[i + 1])));
}

// The call is in place where the only block of `one` is block `rank` of `many`. Any other overlap is an error.
bool check_in_place(const char* call, const Side& one, const Side& many, uint32_t rank) {
  if (one.blocks->counts.empty() || !one.blocks->counts[0] || many.blocks->counts.empty()) return false;
  const bool in_place = one.begin(0) == many.begin(rank);
  for (size_t b = 0; b < many.blocks->counts.size(); ++b)
    if (many.blocks->counts[b] && one.begin(0) < many.end(b) && many.begin(b) < one.end(0) && !(in_place && b == rank))
      invalid(fmt::format("{}: {} overlaps {}; in place means {} == {} + displacements[rank]", call, one.name,
                          many.text(b), one.name, many.name));
  return in_place;
}

void check_apart(const char* call, const Side& in, const Side& out) {
  const uint64_t in_end = in.base + in.blocks->extent() * in.element,
                 out_end = out.base + out.blocks->extent() * out.element;
  if (in_end <= out.base || out_end <= in.base) return;
  const std::vector<uint32_t>& order = in_order(*out.blocks);
  for (size_t b = 0; b < in.blocks->counts.size(); ++b) {
    if (!in.blocks->counts[b]) continue;
    const auto after = std::ranges::partition_point(order, [&](uint32_t o) { return out.end(o) <= in.begin(b); });
    if (after != order.end() && out.begin(*after) < in.end(b))
      invalid(fmt::format("{}: {} overlaps {}; it has no form in place", call, in.text(b), out.text(*after)));
  }
}

// The block of this rank for itself has one size.
void check_own_block(const char* call, const UnequalCall& given, const BlockTable& table, uint32_t rank) {
  const BlockList &in = table.in, &out = table.out;
  if (in.counts.empty() || out.counts.empty()) return;
  const size_t from = in.counts.size() > 1 ? rank : 0, to = out.counts.size() > 1 ? rank : 0;
  if (in.counts[from] == out.counts[to]) return;
  const auto name = [&](const GivenBlocks& side, const char* which) {
    return side.counts_name ? fmt::format("{}[{}]", side.counts_name, rank) : std::string(which);
  };
  invalid(fmt::format("{}: {} is {}, but {} is {}: both are the block of this rank, {}, for itself", call,
                      name(given.in, "count"), in.counts[from], name(given.out, "count"), out.counts[to], rank));
}

// Where the buffers lie. Where only a rank itself knows that it has no elements it goes where the others go: its stream
// tells, or the address of a buffer that it has.
DeviceMemory locate_unequal(Communicator& c, uint32_t collective, const Buffer& in, const Buffer& out,
                            const BlockTable& table, void* stream) {
  const char* call = collective_name(collective);
  const DeviceMemory& own = c.device();
  const bool alone = own && !in.bytes && !out.bytes && !all_know_blocks(collective);
  if (alone && stream) return own;
  const char* names = in.bytes && out.bytes ? "in and out" : in.bytes ? "in" : "out";
  if (!alone) return locate(c, call, names, in, out, stream);
  const auto lies_there = [&](const Buffer& buffer, const BlockList& blocks) {
    return buffer.address && !blocks.counts.empty() && find_device(buffer.address, own) == own;
  };
  return lies_there(in, table.in) || lies_there(out, table.out) ? own : DeviceMemory{};
}

// Fills the shape and the table of a call; returns where the buffers lie.
DeviceMemory check_unequal(Communicator& c, Shape& shape, BlockTable& table, UnequalCall& given, void* stream) {
  const char* call = collective_name(given.collective);
  const uint32_t n = c.nranks(), rank = c.rank();
  const bool reduces = is_reducing(given.collective);
  check_rank(call, "root", given.root, n);
  const auto blocks = [&](uint32_t buffer) { return block_count(given.collective, n, given.root, rank, buffer); };
  require_counts(call, given.in, blocks(TUTTI_BUFFER_IN));
  require_counts(call, given.out, blocks(TUTTI_BUFFER_OUT));
  const uint64_t element = size_of(call, 1, given.dtype, 1);
  if (reduces) given.user = check_op(c, call, given.op, given.dtype);
  const auto fill_in = [&] { fill(call, "in", given.in, blocks(TUTTI_BUFFER_IN), element, table.in); };
  if (given.in.counts_name) fill_in();
  fill(call, "out", given.out, blocks(TUTTI_BUFFER_OUT), element, table.out);
  if (!given.in.counts_name) fill_in();  // errors name a block of the array, not this rank's own
  check_own_block(call, given, table, rank);
  const Buffer in{given.in.address, table.in.extent() * element}, out{given.out.address, table.out.extent() * element};
  check_pointer(call, "in", in.address, in.bytes, given.dtype);
  check_pointer(call, "out", out.address, out.bytes, given.dtype);
  const Side from{"in", reinterpret_cast<uintptr_t>(in.address), &table.in, element};
  const Side to{"out", reinterpret_cast<uintptr_t>(out.address), &table.out, element};
  check_own_overlap(call, to);
  const uint32_t form = equal_form(given.collective);
  if (form == TUTTI_ALL_TO_ALL)
    check_apart(call, from, to);
  else
    shape.in_place = form == TUTTI_GATHER || form == TUTTI_ALL_GATHER ? check_in_place(call, from, to, rank)
                                                                      : check_in_place(call, to, from, rank);
  shape.collective = given.collective;
  shape.count = table.shape_count(given.collective, n);
  shape.dtype = given.dtype;
  shape.op = reduces ? shape_op(given.op, given.user) : 0;
  if (shape.op == op_premul_sum) shape.in_place = 0;  // the products lie apart
  shape.root = given.root;
  const DeviceMemory where = locate_unequal(c, given.collective, in, out, table, stream);
  if (where && reduces) check_op_on_device(call, where, given.op, given.dtype);
  return where;
}

tutti_status call_unequal(tutti_comm* comm, UnequalCall arguments, const tutti_options* given,
                          tutti_request** request) {
  return guarded(comm, [&](Communicator& c) {
    const char* name = collective_name(arguments.collective);
    const tutti_options options = checked_call(name, given, request);
    thread_local BlockTable table;  // its memory serves the next call
    Shape shape;
    const DeviceMemory where = check_unequal(c, shape, table, arguments, options.stream);
    const void* const in = arguments.in.address;
    void* const out = const_cast<void*>(arguments.out.address);
    if (where) return c.in_stream({shape, in, out, options.stream}, {}, &options, request, &table);
    return c.collective(shape, {in, out, factor_of(arguments.user)}, &options, request, &table);
  });
}

}  // namespace
}  // namespace tutti::core::api

using tutti::core::api::call_unequal;

extern "C" {

tutti_status tutti_all_gather_v(tutti_comm* comm, const void* in, void* out, const uint64_t* counts,
                                const uint64_t* displacements, uint32_t dtype, const tutti_options* options,
                                tutti_request** request) {
  const uint64_t* const own = counts && comm ? counts + tutti_comm_rank(comm) : nullptr;
  return call_unequal(comm,
                      {TUTTI_ALL_GATHER_V, {in, own, nullptr, nullptr}, {out, counts, displacements, "counts"}, dtype},
                      options, request);
}
tutti_status tutti_reduce_scatter_v(tutti_comm* comm, const void* in, void* out, const uint64_t* counts,
                                    const uint64_t* displacements, uint32_t dtype, uint32_t op,
                                    const tutti_options* options, tutti_request** request) {
  const uint64_t* const own = counts && comm ? counts + tutti_comm_rank(comm) : nullptr;
  return call_unequal(
      comm, {TUTTI_REDUCE_SCATTER_V, {in, counts, displacements, "counts"}, {out, own, nullptr, nullptr}, dtype, op},
      options, request);
}
tutti_status tutti_all_to_all_v(tutti_comm* comm, const void* in, const uint64_t* in_counts,
                                const uint64_t* in_displacements, void* out, const uint64_t* out_counts,
                                const uint64_t* out_displacements, uint32_t dtype, const tutti_options* options,
                                tutti_request** request) {
  return call_unequal(comm,
                      {TUTTI_ALL_TO_ALL_V,
                       {in, in_counts, in_displacements, "in_counts"},
                       {out, out_counts, out_displacements, "out_counts"},
                       dtype},
                      options, request);
}
tutti_status tutti_gather_v(tutti_comm* comm, const void* in, uint64_t count, void* out, const uint64_t* counts,
                            const uint64_t* displacements, uint32_t dtype, uint32_t root, const tutti_options* options,
                            tutti_request** request) {
  return call_unequal(
      comm, {TUTTI_GATHER_V, {in, &count, nullptr, nullptr}, {out, counts, displacements, "counts"}, dtype, 0, root},
      options, request);
}
tutti_status tutti_scatter_v(tutti_comm* comm, const void* in, const uint64_t* counts, const uint64_t* displacements,
                             void* out, uint64_t count, uint32_t dtype, uint32_t root, const tutti_options* options,
                             tutti_request** request) {
  return call_unequal(
      comm, {TUTTI_SCATTER_V, {in, counts, displacements, "counts"}, {out, &count, nullptr, nullptr}, dtype, 0, root},
      options, request);
}

}  // extern "C"
