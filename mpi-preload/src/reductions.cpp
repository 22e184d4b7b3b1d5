// SPDX-License-Identifier: Apache-2.0
//
// Collectives that reduce. There are two ways, and the operator and the type, which MPI wants equal on all ranks, tell
// which one a call goes:
//
//   direct   Tutti has the operator and the type, or calls the program's operator on a basic type
//   local    Tutti brings the contributions to the ranks that need them, and each reduces them in the order of ranks by
//            MPI_Reduce_local: types that Tutti does not have, and the program's operators on derived types
#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "collectives.hpp"

namespace tutti::mpi {
namespace {

// MPI's operators; 0: not for collectives.
struct KnownOperator {
  MPI_Op mpi;
  uint32_t op;
  const char* name;
};
const std::unordered_map<uintptr_t, KnownOperator>& operators() {
  static const std::unordered_map<uintptr_t, KnownOperator> made = [] {
    const KnownOperator rows[] = {{MPI_SUM, TUTTI_SUM, "MPI_SUM"},          {MPI_PROD, TUTTI_PROD, "MPI_PROD"},
                                  {MPI_MIN, TUTTI_MIN, "MPI_MIN"},          {MPI_MAX, TUTTI_MAX, "MPI_MAX"},
                                  {MPI_BAND, TUTTI_BAND, "MPI_BAND"},       {MPI_BOR, TUTTI_BOR, "MPI_BOR"},
                                  {MPI_BXOR, TUTTI_BXOR, "MPI_BXOR"},       {MPI_LAND, TUTTI_LAND, "MPI_LAND"},
                                  {MPI_LOR, TUTTI_LOR, "MPI_LOR"},          {MPI_LXOR, TUTTI_LXOR, "MPI_LXOR"},
                                  {MPI_MINLOC, TUTTI_MINLOC, "MPI_MINLOC"}, {MPI_MAXLOC, TUTTI_MAXLOC, "MPI_MAXLOC"},
                                  {MPI_REPLACE, 0, "MPI_REPLACE"},          {MPI_NO_OP, 0, "MPI_NO_OP"}};
    std::unordered_map<uintptr_t, KnownOperator> by_handle;
    for (const KnownOperator& row : rows) by_handle.emplace(key_of(row.mpi), row);
    return by_handle;
  }();
  return made;
}

// MPI's table of operators and types.
bool is_defined(uint32_t op, Kind kind) {
  const bool is_arithmetic = op == TUTTI_SUM || op == TUTTI_PROD, is_order = op == TUTTI_MIN || op == TUTTI_MAX;
  const bool is_bitwise = op == TUTTI_BAND || op == TUTTI_BOR || op == TUTTI_BXOR;
  const bool is_logical = op == TUTTI_LAND || op == TUTTI_LOR || op == TUTTI_LXOR;
  switch (kind) {
    case Kind::integer:
      return is_arithmetic || is_order || is_bitwise || is_logical;
    case Kind::byte:
      return is_bitwise;
    case Kind::logical:
      return is_logical;
    case Kind::floating:
      return is_arithmetic || is_order;
    case Kind::complex:
      return is_arithmetic;
    case Kind::pair:
      return op == TUTTI_MINLOC || op == TUTTI_MAXLOC;
    case Kind::none:
      break;
  }
  return false;
}

// A type of Tutti of that size, for elements that only the program's operator looks into.
uint32_t carrier(uint64_t size) {
  switch (size) {
    case 1:
      return TUTTI_UINT8;
    case 2:
      return TUTTI_UINT16;
    case 4:
      return TUTTI_UINT32;
    case 8:
      return TUTTI_UINT64;
    case 16:
      return TUTTI_COMPLEX128;
    default:
      return 0;
  }
}

// The last all-reduce of this thread that went the direct way, of a type and an operator of MPI, which are never freed.
struct LastAllReduce {
  MPI_Datatype type;
  MPI_Op op;
  uint32_t dtype = 0, tutti_op = 0;  // dtype 0: none
  uint64_t alignment = 1;
};
thread_local LastAllReduce last_all_reduce;

// How a call is carried out.
struct Reduction {
  Layout layout;
  uint32_t dtype = 0, op = 0;  // dtype 0: the local way
  bool is_of_mpi = false;      // type and operator
  uint64_t alignment() const { return std::min<uint64_t>(layout.size, alignof(double)); }
};

Verdict choose(Call& call, MPI_Datatype type, MPI_Op op, Reduction& way) {
  static const MPI_Op none = MPI_OP_NULL;
  if (op == none) return Verdict::invalid;
  way.layout = layout_of(type);
  if (const auto known = operators().find(key_of(op)); known != operators().end()) {
    const KnownOperator& row = known->second;
    if (!is_defined(row.op, way.layout.kind)) {
      call.names("type " + name_of(type) + ", operator " + row.name);
      return Verdict::undefined_pair;
    }
    way.dtype = way.layout.dtype;
    way.op = row.op;
    way.is_of_mpi = true;
    return Verdict::served;
  }
  int commutes = 0;
  pmpi::Op_commutative(op, &commutes);
  const uint32_t dtype = way.layout.basic && way.layout.dense ? carrier(way.layout.size) : 0;
  if (!dtype) return Verdict::served;
  Operator* own = call.communicator().take_operator(op, commutes != 0, type, way.layout.size);
  if (!own) return Verdict::served;  // the local way needs no operator
  call.uses(own);
  way.dtype = dtype;
  way.op = own->number;
  return Verdict::served;
}

// Tutti's reductions take aligned buffers: others are copied, as if they had gaps.
Layout aligned(const Reduction& way, const void* buffer) {
  Layout layout = way.layout;
  layout.dense = reinterpret_cast<uintptr_t>(buffer) % way.alignment() == 0;
  return layout;
}
void* input(Call& call, const Reduction& way, const void* buffer, uint64_t count) {
  return call.input(buffer, count, way.dtype ? aligned(way, buffer) : way.layout);
}
void* output(Call& call, const Reduction& way, const void* buffer, uint64_t count) {
  return call.output(const_cast<void*>(buffer), count, aligned(way, buffer));
}

// All contributions on every rank, of which it reduces the first n.
Verdict gather_and_reduce(Call& call, const Reduction& way, const void* in, const Data& out, MPI_Op op, size_t n) {
  const auto count = static_cast<uint64_t>(out.count);
  const uint64_t bytes = count * way.layout.size;
  const void* mine = input(call, way, in, count);
  std::byte* parts = call.memory(bytes * call.ranks());
  if (n) call.reduces_locally({parts, n, count, way.layout, op, const_cast<void*>(out.address)});
  return call.has_started(tutti_all_gather(call.comm(), mine, parts, bytes, TUTTI_UINT8, nullptr, call.request()));
}

using Prefix = decltype(tutti_scan);
Verdict prefix(Call& call, const void* in, const Data& out, MPI_Op op, Prefix* direct, size_t n) {
  const void* from = in == MPI_IN_PLACE ? out.address : in;
  if (is_wrong(out) || is_wrong({from, out.count, out.type})) return Verdict::invalid;
  Reduction way;
  if (const Verdict verdict = choose(call, out.type, op, way); verdict != Verdict::served) return verdict;
  if (!way.dtype) return gather_and_reduce(call, way, from, out, op, n);
  const auto count = static_cast<uint64_t>(out.count);
  const void* mine = input(call, way, from, count);
  return call.has_started(direct(call.comm(), mine, n ? output(call, way, out.address, count) : const_cast<void*>(mine),
                                 count, way.dtype, way.op, nullptr, call.request()));
}

// Each rank gets its block of all contributions.
Verdict exchange_and_reduce(Call& call, const Reduction& way, const std::byte* in, void* out,
                            const std::vector<uint64_t>& counts, MPI_Op op) {
  const size_t ranks = call.ranks();
  const uint64_t mine = counts[call.rank()] * way.layout.size;
  std::vector<uint64_t> sent(ranks), from(ranks), received(ranks, mine), to(ranks);
  for (size_t b = 0; b < ranks; ++b) {
    sent[b] = counts[b] * way.layout.size;
    from[b] = b ? from[b - 1] + sent[b - 1] : 0;
    to[b] = b * mine;
  }
  std::byte* parts = call.memory(mine * ranks);
  call.reduces_locally({parts, ranks, counts[call.rank()], way.layout, op, out});
  return call.has_started(tutti_all_to_all_v(call.comm(), in, sent.data(), from.data(), parts, received.data(),
                                             to.data(), TUTTI_UINT8, nullptr, call.request()));
}

Verdict reduce_blocks(Call& call, const void* in, void* out, const std::vector<uint64_t>& counts, MPI_Datatype type,
                      MPI_Op op) {
  Reduction way;
  if (const Verdict verdict = choose(call, type, op, way); verdict != Verdict::served) return verdict;
  const uint64_t all = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  // In place MPI has the result at the beginning of the buffer, Tutti where this rank's block lies.
  Layout layout = way.dtype ? aligned(way, in == MPI_IN_PLACE ? out : in) : way.layout;
  if (in == MPI_IN_PLACE) layout.dense = false;
  const std::byte* from = call.input(in == MPI_IN_PLACE ? out : in, all, layout);
  if (!way.dtype) return exchange_and_reduce(call, way, from, out, counts, op);
  void* to = output(call, way, out, counts[call.rank()]);
  if (std::equal(counts.begin() + 1, counts.end(), counts.begin()))
    return call.has_started(
        tutti_reduce_scatter(call.comm(), from, to, counts[0], way.dtype, way.op, nullptr, call.request()));
  return call.has_started(tutti_reduce_scatter_v(call.comm(), from, to, counts.data(), nullptr, way.dtype, way.op,
                                                 nullptr, call.request()));
}

}  // namespace

Verdict all_reduce(Call& call, const void* in, const Data& out, MPI_Op op) {
  const void* from = in == MPI_IN_PLACE ? out.address : in;
  if (is_wrong(out) || is_wrong({from, out.count, out.type})) return Verdict::invalid;
  Reduction way;
  if (const Verdict verdict = choose(call, out.type, op, way); verdict != Verdict::served) return verdict;
  if (!way.dtype) return gather_and_reduce(call, way, from, out, op, call.ranks());
  if (way.is_of_mpi) last_all_reduce = {out.type, op, way.dtype, way.op, way.alignment()};
  const auto count = static_cast<uint64_t>(out.count);
  const void* mine = input(call, way, from, count);
  return call.has_started(tutti_all_reduce(call.comm(), mine, output(call, way, out.address, count), count, way.dtype,
                                           way.op, nullptr, call.request()));
}

std::optional<int> all_reduce_again(const void* in, const Data& out, MPI_Op op, MPI_Comm comm) {
  const LastAllReduce& last = last_all_reduce;
  if (!last.dtype || out.type != last.type || op != last.op || out.count <= 0) return std::nullopt;
  const void* from = in == MPI_IN_PLACE ? out.address : in;
  const auto places = reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(out.address);
  if (!from || !out.address || places % last.alignment != 0) return std::nullopt;
  Communicator* communicator = if_met(comm);
  if (!communicator) return std::nullopt;
  const std::lock_guard lock(communicator->mutex());
  count(Function::all_reduce, Verdict::served);
  const tutti_status status = tutti_all_reduce(communicator->tutti(), from, const_cast<void*>(out.address),
                                               static_cast<uint64_t>(out.count), last.dtype, last.tutti_op, nullptr,
                                               nullptr);
  if (status == TUTTI_OK) return MPI_SUCCESS;
  return raise(comm, Function::all_reduce, tutti_comm_error(communicator->tutti()));
}

Verdict reduce(Call& call, const void* in, const Data& out, MPI_Op op, int root) {
  if (is_wrong_root(call, root)) return Verdict::invalid;
  const bool is_root = call.rank() == static_cast<size_t>(root);
  const void* from = is_root && in == MPI_IN_PLACE ? out.address : in;
  if (is_wrong({from, out.count, out.type}) || (is_root && is_wrong(out))) return Verdict::invalid;
  Reduction way;
  if (const Verdict verdict = choose(call, out.type, op, way); verdict != Verdict::served) return verdict;
  const auto count = static_cast<uint64_t>(out.count), bytes = count * way.layout.size;
  const void* mine = input(call, way, from, count);
  const auto to = static_cast<uint32_t>(root);
  if (way.dtype)
    return call.has_started(tutti_reduce(call.comm(), mine, is_root ? output(call, way, out.address, count) : nullptr,
                                         count, way.dtype, way.op, to, nullptr, call.request()));
  std::byte* parts = is_root ? call.memory(bytes * call.ranks()) : nullptr;
  if (is_root) call.reduces_locally({parts, call.ranks(), count, way.layout, op, const_cast<void*>(out.address)});
  return call.has_started(tutti_gather(call.comm(), mine, parts, bytes, TUTTI_UINT8, to, nullptr, call.request()));
}

Verdict reduce_scatter(Call& call, const void* in, void* out, Numbers counts, MPI_Datatype type, MPI_Op op) {
  if (counts.is_null()) return Verdict::invalid;
  std::vector<uint64_t> blocks;
  int64_t all = 0;
  for (size_t b = 0; b < call.ranks(); ++b) {
    if (counts[b] < 0) return Verdict::invalid;
    blocks.push_back(static_cast<uint64_t>(counts[b]));
    all += counts[b];
  }
  if (is_wrong({in == MPI_IN_PLACE ? out : in, all, type}) || is_wrong({out, counts[call.rank()], type}))
    return Verdict::invalid;
  return reduce_blocks(call, in, out, blocks, type, op);
}

Verdict reduce_scatter_block(Call& call, const void* in, const Data& out, MPI_Op op) {
  if (is_wrong(out) || is_wrong({in == MPI_IN_PLACE ? out.address : in, out.count, out.type})) return Verdict::invalid;
  return reduce_blocks(call, in, const_cast<void*>(out.address),
                       std::vector<uint64_t>(call.ranks(), static_cast<uint64_t>(out.count)), out.type, op);
}

Verdict scan(Call& call, const void* in, const Data& out, MPI_Op op) {
  return prefix(call, in, out, op, tutti_scan, call.rank() + 1);
}

Verdict exscan(Call& call, const void* in, const Data& out, MPI_Op op) {
  return prefix(call, in, out, op, tutti_exclusive_scan, call.rank());
}

}  // namespace tutti::mpi
