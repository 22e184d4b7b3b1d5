// SPDX-License-Identifier: Apache-2.0
//
// The collectives: their arguments are checked and become a shape, and where blocks are unequal a table of them.
#include <tutti/schedule.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <span>

#include "api/arguments.hpp"
#include "api/guards.hpp"

namespace tutti::core::api {
namespace {

// A buffer as the caller gives it. With `counts_name` it has a block for each rank, with its own count and
// displacement; without displacements they lie one after another.
struct BufferArgument {
  const void* address = nullptr;
  const char* counts_name = nullptr;
  const uint64_t* counts = nullptr;
  const uint64_t* displacements = nullptr;
};

struct Arguments {
  BufferArgument in, out;
  uint64_t count = 0;  // of a block that no array tells
  uint32_t dtype = 0, op = 0, root = 0;
  const UserOperator* user = nullptr;  // of `op`
};

// One buffer of a call, for checks. Equal blocks lie one after another; unequal ones have a list.
struct Side {
  const char* name;
  BufferArgument given;
  uint32_t blocks;
  BlockList* list;
  uint64_t unit = 0;   // bytes of a block, or of an element of the list
  uint64_t bytes = 0;  // up to the end of the last block

  uintptr_t base() const { return reinterpret_cast<uintptr_t>(given.address); }
  uintptr_t begin(size_t b) const { return base() + (list ? list->begins[b] : b) * unit; }
  Buffer buffer() const { return {given.address, bytes}; }

  // Of lists.
  uintptr_t end(size_t b) const { return begin(b) + list->counts[b] * unit; }
  std::string text(size_t b) const {
    return fmt::format("block {} of {} ({} elements from element {} on)", b, name, list->counts[b], list->begins[b]);
  }
};

// The block of IN and that of OUT which are one in place.
struct OwnBlocks {
  uint32_t in, out;
  bool in_place = false;
};

// ---- Unequal blocks.

// Throws Failure where the array of a buffer with a block for each rank is missing.
void require_counts(const char* call, const Side& side) {
  if (side.blocks && side.given.counts_name && !side.given.counts)
    invalid(fmt::format("{}: {} is NULL, expected an array of {} numbers, one for each rank", call,
                        side.given.counts_name, side.blocks));
}

// Fills the list of a buffer. Throws Failure where a block cannot be addressed.
void fill(const char* call, const Side& side, const uint64_t* counts) {
  const uint64_t most = most_bytes / side.unit;
  BlockList& list = *side.list;
  list.counts.assign(counts, counts + side.blocks);
  list.begins.resize(side.blocks);
  uint64_t end = 0, total = 0;
  for (uint32_t b = 0; b < side.blocks; ++b) {
    const uint64_t count = list.counts[b];
    const uint64_t begin = side.given.displacements ? side.given.displacements[b] : end;
    list.begins[b] = count ? begin : 0;  // an empty block is nowhere
    if (!count) continue;
    if (count > most || begin > most - count || total > most - count)
      invalid(
          fmt::format("{}: block {} of {}, {} elements of {} bytes from element {} on behind {} others, is more than "
                      "can be addressed",
                      call, b, side.name, count, side.unit, begin, total));
    end = begin + count;
    total += count;
  }
}

// The block of this rank for itself has one size.
void check_own_block(const char* call, const Side& in, const Side& out, uint32_t rank) {
  if (!in.blocks || !out.blocks) return;
  const auto count = [&](const Side& side) { return side.list->counts[side.blocks > 1 ? rank : 0]; };
  if (count(in) == count(out)) return;
  const auto name = [&](const Side& side) {
    return side.given.counts_name ? fmt::format("{}[{}]", side.given.counts_name, rank) : std::string("count");
  };
  invalid(fmt::format("{}: {} is {}, but {} is {}: both must be equal: they are the block of rank {} for itself", call,
                      name(in), count(in), name(out), count(out), rank));
}

// Fills the lists of both buffers.
void fill_lists(const char* call, const Side& in, const Side& out, const Arguments& given, uint32_t which,
                uint32_t rank) {
  const BufferArgument& array = in.given.counts_name ? in.given : out.given;
  const uint64_t one = all_know_blocks(which) ? array.counts[rank] : given.count;
  for (const bool arrays : {true, false})  // errors name a block of an array, not this rank's own
    for (const Side* side : {&in, &out})
      if ((side->given.counts_name != nullptr) == arrays) fill(call, *side, arrays ? side->given.counts : &one);
  check_own_block(call, in, out, rank);
}

// The places of the blocks that are not empty, lowest first. In the thread's own memory, which it keeps.
std::span<const uint32_t> in_order(const BlockList& list) {
  thread_local std::vector<uint32_t> order;
  order.clear();
  for (uint32_t b = 0; b < list.counts.size(); ++b)
    if (list.counts[b]) order.push_back(b);
  if (!std::ranges::is_sorted(order, {}, [&](uint32_t b) { return list.begins[b]; }))
    std::ranges::sort(order, {}, [&](uint32_t b) { return list.begins[b]; });
  return order;
}

void check_own_overlap(const char* call, const Side& out) {
  const std::span<const uint32_t> order = in_order(*out.list);
  for (size_t i = 0; i + 1 < order.size(); ++i)
    if (out.end(order[i]) > out.begin(order[i + 1]))
      invalid(fmt::format("{}: {} and {} overlap: each element of out is written once", call, out.text(order[i]),
                          out.text(order[i + 1])));
}

// No block of IN overlaps one of OUT, but for this rank's own two in place.
void check_apart(const char* call, InPlaceForm form, const Side& in, const Side& out, const OwnBlocks& own) {
  const auto overlap = [&](uint32_t b, uint32_t o) {
    if (form == InPlaceForm::none)
      invalid(fmt::format("{}: {} overlaps {}; it has no form in place", call, in.text(b), out.text(o)));
    const bool in_is_block = form == InPlaceForm::in_is_block;
    const Side &one = in_is_block ? in : out, &all = in_is_block ? out : in;
    invalid(fmt::format("{}: {} overlaps {}; in place means {} == {} + displacements[rank]", call, one.name,
                        all.text(in_is_block ? o : b), one.name, all.name));
  };
  const std::span<const uint32_t> order = in_order(*out.list);
  for (uint32_t b = 0; b < in.blocks; ++b) {
    if (!in.list->counts[b]) continue;
    auto o = std::ranges::partition_point(order, [&](uint32_t at) { return out.end(at) <= in.begin(b); });
    for (; o != order.end() && out.begin(*o) < in.end(b); ++o)
      if (!own.in_place || b != own.in || *o != own.out) overlap(b, *o);
  }
}

// ---- All collectives.

// Is the call in place? Any other overlap is an error.
bool check_overlap(const char* call, uint32_t which, const Side& in, const Side& out, uint32_t rank) {
  if (out.list) check_own_overlap(call, out);
  if (!in.bytes || !out.bytes || in.base() + in.bytes <= out.base() || out.base() + out.bytes <= in.base())
    return false;
  const InPlaceForm form = in_place_form(which);
  OwnBlocks own{block_in_place(form, rank, TUTTI_BUFFER_OUT), block_in_place(form, rank, TUTTI_BUFFER_IN)};
  own.in_place = form != InPlaceForm::none && in.begin(own.in) == out.begin(own.out);
  if (in.list)
    check_apart(call, form, in, out, own);
  else if (!own.in_place)
    invalid(fmt::format("{}: in = {} ({} bytes) and out = {} ({} bytes) overlap; in place means {}", call,
                        in.given.address, in.bytes, out.given.address, out.bytes,
                        form == InPlaceForm::in_is_block    ? "in == out + rank * count"
                        : form == InPlaceForm::out_is_block ? "out == in + rank * count"
                                                            : "in == out"));
  return own.in_place;
}

// Where the buffers lie. Where only a rank itself knows that it has no elements it goes where the others go: its stream
// tells, or the address of a buffer that it has.
DeviceMemory locate_buffers(Communicator& c, const char* call, uint32_t which, const Side& in, const Side& out,
                            void* stream) {
  const DeviceMemory& own = c.device();
  if (!own && !stream) return {};
  const char* names = in.bytes && out.bytes ? "in and out" : in.bytes ? "in" : "out";
  if (!own || in.bytes || out.bytes || all_know_blocks(which))
    return locate(c, call, names, in.buffer(), out.buffer(), stream);
  const auto lies_there = [&](const Side& side) {
    return side.given.address && side.blocks && find_device(side.given.address, own) == own;
  };
  return stream || lies_there(in) || lies_there(out) ? own : DeviceMemory{};
}

// Fills the shape of a collective with buffers, and the table where blocks are unequal; returns where they lie.
DeviceMemory check(Communicator& c, const char* call, Shape& shape, Arguments& given, BlockTable* table,
                   const tutti_options& options) {
  const uint32_t which = shape.collective, n = c.nranks(), rank = c.rank();
  const bool reduces = is_reducing(which);
  check_rank(call, "root", given.root, n);
  const auto blocks = [&](uint32_t buffer) { return block_count(which, n, given.root, rank, buffer); };
  Side in{"in", given.in, blocks(TUTTI_BUFFER_IN), table ? &table->in : nullptr};
  Side out{"out", given.out, blocks(TUTTI_BUFFER_OUT), table ? &table->out : nullptr};
  if (table) {
    require_counts(call, in);
    require_counts(call, out);
  }
  if (reduces) given.user = check_op(c, call, given.op, given.dtype);
  shape.order = check_order(c, call, options.order, reduces, given.op, given.dtype);
  in.unit = out.unit = table ? size_of(call, 1, given.dtype, 1) : size_of(call, given.count, given.dtype, n);
  if (table) fill_lists(call, in, out, given, which, rank);
  in.bytes = (table ? table->in.extent() : in.blocks) * in.unit;
  out.bytes = (table ? table->out.extent() : out.blocks) * out.unit;
  const uint32_t aligned_to = reduces ? given.dtype : uint32_t{TUTTI_UINT8};
  check_pointer(call, in.name, in.given.address, in.bytes, aligned_to);
  check_pointer(call, out.name, out.given.address, out.bytes, aligned_to);
  shape.in_place = check_overlap(call, which, in, out, rank);
  shape.count = table ? table->shape_count(which, n) : given.count;
  shape.dtype = given.dtype;
  shape.op = reduces ? shape_op(given.op, given.user) : 0;
  // The factor's products go where the sum will be, if there is room.
  if (shape.op == op_premul_sum) shape.in_place = in_place_form(which) == InPlaceForm::same && out.bytes;
  shape.root = given.root;
  const DeviceMemory where = locate_buffers(c, call, which, in, out, options.stream);
  if (where && reduces) check_op_on_device(call, where, given.op, given.dtype, shape.order);
  shape.wire = check_wire(c, call, options.wire, shape, where);
  return where;
}

BlockTable& kept_table() {
  thread_local BlockTable table;  // its memory serves the next call
  return table;
}

tutti_status collective(tutti_comm* comm, uint32_t which, Arguments&& arguments, const tutti_options* given,
                        tutti_request** request) {
  return jointly(comm, [&](Communicator& c) {
    if (!given && !request && !has_unequal_blocks(which))
      if (const auto status = c.calls().repeat({which, arguments.dtype, arguments.op, arguments.root, arguments.count,
                                                arguments.in.address, const_cast<void*>(arguments.out.address)}))
        return *status;
    const char* name = collective_name(which);
    const tutti_options options = checked_call(name, given, request, which != TUTTI_BARRIER);
    BlockTable* const table = has_unequal_blocks(which) ? &kept_table() : nullptr;
    Shape shape;
    shape.collective = which;
    const DeviceMemory where = which == TUTTI_BARRIER ? locate_stream(c, name, options.stream)
                                                      : check(c, name, shape, arguments, table, options);
    shape.algorithms = c.algorithms_of_call(name, options.algorithms);
    const void* const in = arguments.in.address;
    void* const out = const_cast<void*>(arguments.out.address);
    if (!where)
      return c.calls().collective(shape, {in, out, factor_of(arguments.user), options.tag}, options, request, table);
    return c.calls().in_stream({shape, in, out, options.stream, options.tag}, options, request, table);
  });
}

}  // namespace
}  // namespace tutti::core::api

using tutti::core::api::collective;

extern "C" {

tutti_status tutti_broadcast(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype, uint32_t root,
                             const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_BROADCAST, {{in}, {out}, count, dtype, 0, root}, options, request);
}
tutti_status tutti_reduce(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype, uint32_t op,
                          uint32_t root, const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_REDUCE, {{in}, {out}, count, dtype, op, root}, options, request);
}
tutti_status tutti_all_reduce(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype, uint32_t op,
                              const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_ALL_REDUCE, {{in}, {out}, count, dtype, op, 0}, options, request);
}
tutti_status tutti_gather(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype, uint32_t root,
                          const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_GATHER, {{in}, {out}, count, dtype, 0, root}, options, request);
}
tutti_status tutti_all_gather(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype,
                              const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_ALL_GATHER, {{in}, {out}, count, dtype, 0, 0}, options, request);
}
tutti_status tutti_scatter(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype, uint32_t root,
                           const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_SCATTER, {{in}, {out}, count, dtype, 0, root}, options, request);
}
tutti_status tutti_reduce_scatter(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype,
                                  uint32_t op, const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_REDUCE_SCATTER, {{in}, {out}, count, dtype, op, 0}, options, request);
}
tutti_status tutti_all_to_all(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype,
                              const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_ALL_TO_ALL, {{in}, {out}, count, dtype, 0, 0}, options, request);
}
tutti_status tutti_scan(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype, uint32_t op,
                        const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_SCAN, {{in}, {out}, count, dtype, op, 0}, options, request);
}
tutti_status tutti_exclusive_scan(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype,
                                  uint32_t op, const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_EXCLUSIVE_SCAN, {{in}, {out}, count, dtype, op, 0}, options, request);
}
tutti_status tutti_barrier(tutti_comm* comm, const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_BARRIER, {}, options, request);
}

tutti_status tutti_all_gather_v(tutti_comm* comm, const void* in, void* out, const uint64_t* counts,
                                const uint64_t* displacements, uint32_t dtype, const tutti_options* options,
                                tutti_request** request) {
  return collective(comm, TUTTI_ALL_GATHER_V, {{in}, {out, "counts", counts, displacements}, 0, dtype}, options,
                    request);
}
tutti_status tutti_reduce_scatter_v(tutti_comm* comm, const void* in, void* out, const uint64_t* counts,
                                    const uint64_t* displacements, uint32_t dtype, uint32_t op,
                                    const tutti_options* options, tutti_request** request) {
  return collective(comm, TUTTI_REDUCE_SCATTER_V, {{in, "counts", counts, displacements}, {out}, 0, dtype, op}, options,
                    request);
}
tutti_status tutti_all_to_all_v(tutti_comm* comm, const void* in, const uint64_t* in_counts,
                                const uint64_t* in_displacements, void* out, const uint64_t* out_counts,
                                const uint64_t* out_displacements, uint32_t dtype, const tutti_options* options,
                                tutti_request** request) {
  return collective(
      comm, TUTTI_ALL_TO_ALL_V,
      {{in, "in_counts", in_counts, in_displacements}, {out, "out_counts", out_counts, out_displacements}, 0, dtype},
      options, request);
}
tutti_status tutti_gather_v(tutti_comm* comm, const void* in, uint64_t count, void* out, const uint64_t* counts,
                            const uint64_t* displacements, uint32_t dtype, uint32_t root, const tutti_options* options,
                            tutti_request** request) {
  return collective(comm, TUTTI_GATHER_V, {{in}, {out, "counts", counts, displacements}, count, dtype, 0, root},
                    options, request);
}
tutti_status tutti_scatter_v(tutti_comm* comm, const void* in, const uint64_t* counts, const uint64_t* displacements,
                             void* out, uint64_t count, uint32_t dtype, uint32_t root, const tutti_options* options,
                             tutti_request** request) {
  return collective(comm, TUTTI_SCATTER_V, {{in, "counts", counts, displacements}, {out}, count, dtype, 0, root},
                    options, request);
}

}  // extern "C"
