// SPDX-License-Identifier: Apache-2.0
//
// Collectives that move data, with blocks of unequal sizes.
#include "collectives.hpp"

namespace tutti::mpi {
namespace {

// False where MPI would refuse it.
bool describe(const Call& call, const BlockData& data, Shape& shape) {
  if (data.counts.is_null() || data.displacements.is_null()) return false;
  const Layout layout = layout_of(data.type);
  shape.layouts = {layout};
  for (size_t b = 0; b < call.ranks(); ++b) {
    if (is_wrong({data.address, data.counts[b], data.type})) return false;
    shape.counts.push_back(static_cast<uint64_t>(data.counts[b]));
    shape.displacements.push_back(shape.counts[b] ? data.displacements[b] * layout.extent : 0);
  }
  return true;
}

bool describe(const Call& call, const TypedBlockData& data, Shape& shape) {
  if (data.counts.is_null() || data.displacements.is_null() || !data.types) return false;
  for (size_t b = 0; b < call.ranks(); ++b) {
    if (is_wrong({data.address, data.counts[b], data.types[b]})) return false;
    shape.layouts.push_back(layout_of(data.types[b]));
    shape.counts.push_back(static_cast<uint64_t>(data.counts[b]));
    shape.displacements.push_back(shape.counts[b] ? data.displacements[b] : 0);
  }
  return true;
}

// This rank's block, which the program has put into the output already.
std::byte* mine_in_place(Call& call, const void* buffer, const Shape& shape, const Blocks& blocks) {
  const size_t rank = call.rank();
  std::byte* mine = blocks.base + blocks.displacements[rank];
  const std::byte* at = static_cast<const std::byte*>(buffer) + shape.displacements[rank];
  if (mine != at) call.pack_into(mine, at, shape.counts[rank], shape.layout(rank));
  return mine;
}

template <typename Buffers>
Verdict all_to_all_of(Call& call, const Buffers& in, const Buffers& out) {
  const bool in_place = in.address == MPI_IN_PLACE;
  Shape to, from;
  if (!describe(call, out, to) || (!in_place && !describe(call, in, from))) return Verdict::invalid;
  const Blocks source = in_place ? call.packed_copy(out.address, to) : call.input_blocks(in.address, from);
  const Blocks target = call.output_blocks(const_cast<void*>(out.address), to);
  return call.has_started(tutti_all_to_all_v(call.comm(), source.base, source.counts.data(),
                                             source.displacements.data(), target.base, target.counts.data(),
                                             target.displacements.data(), TUTTI_UINT8, nullptr, call.request()));
}

}  // namespace

Verdict gather_v(Call& call, const Data& in, const BlockData& out, int root) {
  if (is_wrong_root(call, root)) return Verdict::invalid;
  const bool is_root = call.rank() == static_cast<size_t>(root), in_place = is_root && in.address == MPI_IN_PLACE;
  Shape shape;
  if ((is_root && !describe(call, out, shape)) || (!in_place && is_wrong(in))) return Verdict::invalid;
  Blocks blocks;
  if (is_root) blocks = call.output_blocks(const_cast<void*>(out.address), shape);
  const std::byte* from;
  uint64_t bytes;
  if (in_place) {
    from = mine_in_place(call, out.address, shape, blocks);
    bytes = blocks.counts[call.rank()];
  } else {
    const Layout layout = layout_of(in.type);
    from = call.input(in.address, static_cast<uint64_t>(in.count), layout);
    bytes = static_cast<uint64_t>(in.count) * layout.size;
  }
  return call.has_started(tutti_gather_v(call.comm(), from, bytes, blocks.base, blocks.counts.data(),
                                         blocks.displacements.data(), TUTTI_UINT8, static_cast<uint32_t>(root), nullptr,
                                         call.request()));
}

Verdict all_gather_v(Call& call, const Data& in, const BlockData& out) {
  const bool in_place = in.address == MPI_IN_PLACE;
  Shape shape;
  if (!describe(call, out, shape) || (!in_place && is_wrong(in))) return Verdict::invalid;
  const Blocks blocks = call.output_blocks(const_cast<void*>(out.address), shape);
  const std::byte* from = in_place ? mine_in_place(call, out.address, shape, blocks)
                                   : call.input(in.address, static_cast<uint64_t>(in.count), layout_of(in.type));
  return call.has_started(tutti_all_gather_v(call.comm(), from, blocks.base, blocks.counts.data(),
                                             blocks.displacements.data(), TUTTI_UINT8, nullptr, call.request()));
}

Verdict scatter_v(Call& call, const BlockData& in, const Data& out, int root) {
  if (is_wrong_root(call, root)) return Verdict::invalid;
  const bool is_root = call.rank() == static_cast<size_t>(root), in_place = is_root && out.address == MPI_IN_PLACE;
  Shape shape;
  if ((is_root && !describe(call, in, shape)) || (!in_place && is_wrong(out))) return Verdict::invalid;
  Blocks blocks;
  if (is_root) blocks = call.input_blocks(in.address, shape);
  std::byte* to;
  uint64_t bytes;
  if (in_place) {
    to = blocks.base + blocks.displacements[call.rank()];
    bytes = blocks.counts[call.rank()];
  } else {
    const Layout layout = layout_of(out.type);
    to = call.output(const_cast<void*>(out.address), static_cast<uint64_t>(out.count), layout);
    bytes = static_cast<uint64_t>(out.count) * layout.size;
  }
  return call.has_started(tutti_scatter_v(call.comm(), blocks.base, blocks.counts.data(), blocks.displacements.data(),
                                          to, bytes, TUTTI_UINT8, static_cast<uint32_t>(root), nullptr,
                                          call.request()));
}

Verdict all_to_all_v(Call& call, const BlockData& in, const BlockData& out) { return all_to_all_of(call, in, out); }

Verdict all_to_all_w(Call& call, const TypedBlockData& in, const TypedBlockData& out) {
  return all_to_all_of(call, in, out);
}

}  // namespace tutti::mpi
