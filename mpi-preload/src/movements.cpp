// SPDX-License-Identifier: Apache-2.0
//
// Collectives that move data, with blocks of one size.
#include "collectives.hpp"

namespace tutti::mpi {
namespace {

uint64_t bytes_of(const Data& data, const Layout& layout) { return static_cast<uint64_t>(data.count) * layout.size; }

// Where the blocks of all ranks are to go, and this rank's block, which the program has put there already.
struct InPlace {
  std::byte *whole, *mine;
};
InPlace output_in_place(Call& call, const Data& out, const Layout& layout) {
  const auto count = static_cast<uint64_t>(out.count);
  std::byte* whole = call.output(const_cast<void*>(out.address), count * call.ranks(), layout);
  std::byte* mine = whole + call.rank() * count * layout.size;
  if (!layout.dense) {
    const int64_t at = static_cast<int64_t>(call.rank() * count) * layout.extent;
    call.pack_into(mine, static_cast<const std::byte*>(out.address) + at, count, layout);
  }
  return {whole, mine};
}

}  // namespace

bool is_wrong(const Data& data) {
  static const MPI_Datatype none = MPI_DATATYPE_NULL;
  if (data.count <= 0) return data.count < 0;
  if (data.type == none) return true;
  return !data.address && layout_of(data.type).basic && layout_of(data.type).size > 0;
}

bool is_wrong_root(const Call& call, int root) { return root < 0 || static_cast<size_t>(root) >= call.ranks(); }

Verdict barrier(Call& call) { return call.has_started(tutti_barrier(call.comm(), nullptr, call.request())); }

Verdict bcast(Call& call, const Data& data, int root) {
  if (is_wrong(data) || is_wrong_root(call, root)) return Verdict::invalid;
  const Layout layout = layout_of(data.type);
  const auto count = static_cast<uint64_t>(data.count);
  const bool is_root = call.rank() == static_cast<size_t>(root);
  void* buffer =
      is_root ? call.input(data.address, count, layout) : call.output(const_cast<void*>(data.address), count, layout);
  return call.has_started(tutti_broadcast(call.comm(), buffer, buffer, bytes_of(data, layout), TUTTI_UINT8,
                                          static_cast<uint32_t>(root), nullptr, call.request()));
}

Verdict gather(Call& call, const Data& in, const Data& out, int root) {
  if (is_wrong_root(call, root)) return Verdict::invalid;
  const bool is_root = call.rank() == static_cast<size_t>(root), in_place = is_root && in.address == MPI_IN_PLACE;
  if ((is_root && is_wrong(out)) || (!in_place && is_wrong(in))) return Verdict::invalid;
  const Data& mine = in_place ? out : in;
  const Layout layout = layout_of(mine.type);
  const void* from = nullptr;
  void* to = nullptr;
  if (in_place) {
    const InPlace both = output_in_place(call, out, layout);
    from = both.mine, to = both.whole;
  } else {
    from = call.input(in.address, static_cast<uint64_t>(in.count), layout);
    if (is_root)
      to = call.output(const_cast<void*>(out.address), static_cast<uint64_t>(out.count) * call.ranks(),
                       layout_of(out.type));
  }
  return call.has_started(tutti_gather(call.comm(), from, to, bytes_of(mine, layout), TUTTI_UINT8,
                                       static_cast<uint32_t>(root), nullptr, call.request()));
}

Verdict all_gather(Call& call, const Data& in, const Data& out) {
  const bool in_place = in.address == MPI_IN_PLACE;
  if (is_wrong(out) || (!in_place && is_wrong(in))) return Verdict::invalid;
  const Layout layout = layout_of(out.type);
  const void* from;
  void* to;
  if (in_place) {
    const InPlace both = output_in_place(call, out, layout);
    from = both.mine, to = both.whole;
  } else {
    from = call.input(in.address, static_cast<uint64_t>(in.count), layout_of(in.type));
    to = call.output(const_cast<void*>(out.address), static_cast<uint64_t>(out.count) * call.ranks(), layout);
  }
  return call.has_started(
      tutti_all_gather(call.comm(), from, to, bytes_of(out, layout), TUTTI_UINT8, nullptr, call.request()));
}

Verdict scatter(Call& call, const Data& in, const Data& out, int root) {
  if (is_wrong_root(call, root)) return Verdict::invalid;
  const bool is_root = call.rank() == static_cast<size_t>(root), in_place = is_root && out.address == MPI_IN_PLACE;
  if ((is_root && is_wrong(in)) || (!in_place && is_wrong(out))) return Verdict::invalid;
  const Data& mine = in_place ? in : out;
  const Layout layout = layout_of(mine.type);
  const uint64_t bytes = bytes_of(mine, layout);
  std::byte* from = nullptr;
  if (is_root) from = call.input(in.address, static_cast<uint64_t>(in.count) * call.ranks(), layout_of(in.type));
  void* to = in_place ? from + call.rank() * bytes
                      : call.output(const_cast<void*>(out.address), static_cast<uint64_t>(out.count), layout);
  return call.has_started(
      tutti_scatter(call.comm(), from, to, bytes, TUTTI_UINT8, static_cast<uint32_t>(root), nullptr, call.request()));
}

Verdict all_to_all(Call& call, const Data& in, const Data& out) {
  const bool in_place = in.address == MPI_IN_PLACE;
  if (is_wrong(out) || (!in_place && is_wrong(in))) return Verdict::invalid;
  const Layout layout = layout_of(out.type);
  const uint64_t all = static_cast<uint64_t>(out.count) * call.ranks();
  std::byte* to = call.output(const_cast<void*>(out.address), all, layout);
  const std::byte* from = to;
  if (!in_place)
    from = call.input(in.address, static_cast<uint64_t>(in.count) * call.ranks(), layout_of(in.type));
  else if (!layout.dense)
    call.pack_into(to, out.address, all, layout);
  return call.has_started(
      tutti_all_to_all(call.comm(), from, to, bytes_of(out, layout), TUTTI_UINT8, nullptr, call.request()));
}

}  // namespace tutti::mpi
