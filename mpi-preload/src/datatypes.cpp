// SPDX-License-Identifier: Apache-2.0
#include "datatypes.hpp"

#include <tutti/tutti.h>

#include <algorithm>
#include <unordered_map>

namespace tutti::mpi {
namespace {

struct Row {
  MPI_Datatype type;
  Kind kind;
  bool is_signed = true;
};

// MPI's types that operators take. Of the types of Fortran, those that C programs and mpi4py use.
const std::unordered_map<uintptr_t, Row>& table() {
  static const std::unordered_map<uintptr_t, Row> made = [] {
    constexpr bool is_unsigned = false;
    const Row rows[] = {{MPI_CHAR, Kind::integer},  // as both libraries take it
                        {MPI_SIGNED_CHAR, Kind::integer},
                        {MPI_SHORT, Kind::integer},
                        {MPI_INT, Kind::integer},
                        {MPI_LONG, Kind::integer},
                        {MPI_LONG_LONG_INT, Kind::integer},
                        {MPI_INT8_T, Kind::integer},
                        {MPI_INT16_T, Kind::integer},
                        {MPI_INT32_T, Kind::integer},
                        {MPI_INT64_T, Kind::integer},
                        {MPI_UNSIGNED_CHAR, Kind::integer, is_unsigned},
                        {MPI_UNSIGNED_SHORT, Kind::integer, is_unsigned},
                        {MPI_UNSIGNED, Kind::integer, is_unsigned},
                        {MPI_UNSIGNED_LONG, Kind::integer, is_unsigned},
                        {MPI_UNSIGNED_LONG_LONG, Kind::integer, is_unsigned},
                        {MPI_UINT8_T, Kind::integer, is_unsigned},
                        {MPI_UINT16_T, Kind::integer, is_unsigned},
                        {MPI_UINT32_T, Kind::integer, is_unsigned},
                        {MPI_UINT64_T, Kind::integer, is_unsigned},
                        {MPI_AINT, Kind::integer},
                        {MPI_OFFSET, Kind::integer},
                        {MPI_COUNT, Kind::integer},
                        {MPI_INTEGER, Kind::integer},
                        {MPI_FLOAT, Kind::floating},
                        {MPI_DOUBLE, Kind::floating},
                        {MPI_LONG_DOUBLE, Kind::floating},
                        {MPI_REAL, Kind::floating},
                        {MPI_DOUBLE_PRECISION, Kind::floating},
                        {MPI_BYTE, Kind::byte},
                        {MPI_C_BOOL, Kind::logical},
                        {MPI_LOGICAL, Kind::logical},
                        {MPI_C_FLOAT_COMPLEX, Kind::complex},
                        {MPI_C_DOUBLE_COMPLEX, Kind::complex},
                        {MPI_C_LONG_DOUBLE_COMPLEX, Kind::complex},
                        {MPI_COMPLEX, Kind::complex},
                        {MPI_DOUBLE_COMPLEX, Kind::complex},
                        {MPI_FLOAT_INT, Kind::pair},
                        {MPI_DOUBLE_INT, Kind::pair},
                        {MPI_LONG_INT, Kind::pair},
                        {MPI_SHORT_INT, Kind::pair},
                        {MPI_2INT, Kind::pair},
                        {MPI_LONG_DOUBLE_INT, Kind::pair}};
    std::unordered_map<uintptr_t, Row> by_handle;
    for (const Row& row : rows) by_handle.emplace(key_of(row.type), row);
    return by_handle;
  }();
  return made;
}

uint32_t integer_dtype(uint64_t size, bool is_signed) {
  switch (size) {
    case 1:
      return is_signed ? TUTTI_INT8 : TUTTI_UINT8;
    case 2:
      return is_signed ? TUTTI_INT16 : TUTTI_UINT16;
    case 4:
      return is_signed ? TUTTI_INT32 : TUTTI_UINT32;
    case 8:
      return is_signed ? TUTTI_INT64 : TUTTI_UINT64;
    default:
      return 0;
  }
}

uint32_t dtype_of(const Row& row, uint64_t size) {
  switch (row.kind) {
    case Kind::integer:
      return integer_dtype(size, row.is_signed);
    case Kind::byte:
      return TUTTI_UINT8;
    case Kind::logical:
      return size == 1 ? TUTTI_BOOL : 0;
    case Kind::floating:
      return size == 4 ? TUTTI_FLOAT32 : size == 8 && alignof(double) == 8 ? TUTTI_FLOAT64 : 0;
    case Kind::complex:
      return size == 8 ? TUTTI_COMPLEX64 : size == 16 ? TUTTI_COMPLEX128 : 0;
    case Kind::pair:
      return row.type == MPI_FLOAT_INT ? TUTTI_FLOAT32_INT32 : 0;
    case Kind::none:
      break;
  }
  return 0;
}

void measure(Layout& layout) {
  MPI_Count size = 0;
  MPI_Aint lowest = 0, extent = 0;
  pmpi::Type_size_x(layout.type, &size);
  pmpi::Type_get_extent(layout.type, &lowest, &extent);
  layout.size = static_cast<uint64_t>(size);
  layout.extent = extent;
  layout.dense = lowest == 0 && extent == size;
}

// Is it `n` elements of one dense basic type, one after another?
bool repeats_a_basic_type(MPI_Datatype type) {
  int integers = 0, addresses = 0, types = 0, combiner = 0;
  pmpi::Type_get_envelope(type, &integers, &addresses, &types, &combiner);
  if (combiner == MPI_COMBINER_NAMED) return true;
  if ((combiner != MPI_COMBINER_CONTIGUOUS && combiner != MPI_COMBINER_DUP) || types != 1) return false;
  int count = 0;
  MPI_Aint none = 0;
  MPI_Datatype of;
  pmpi::Type_get_contents(type, integers, addresses, types, &count, &none, &of);
  Layout inner{of};
  measure(inner);
  const bool repeats = inner.dense && repeats_a_basic_type(of);
  int of_integers = 0, of_addresses = 0, of_types = 0;
  pmpi::Type_get_envelope(of, &of_integers, &of_addresses, &of_types, &combiner);
  if (combiner != MPI_COMBINER_NAMED) pmpi::Type_free(&of);
  return repeats;
}

// Pack and Unpack count in int: a part at a time.
template <typename Move>
int in_parts(const Layout& layout, uint64_t count, Move move) {
  constexpr uint64_t part_bytes = uint64_t{1} << 30;
  const uint64_t most = std::max<uint64_t>(1, part_bytes / std::max<uint64_t>(layout.size, 1));
  int code = MPI_SUCCESS;
  for (uint64_t done = 0; done < count && code == MPI_SUCCESS; done += most)
    code = move(done, static_cast<int>(std::min(most, count - done)));
  return code;
}

// `count` elements at MPI_BOTTOM, described from another address: MPI_Pack and MPI_Unpack of MPICH refuse MPI_BOTTOM.
class Moved {
 public:
  Moved(MPI_Datatype type, int count, const void* base) {
    const MPI_Aint back = -reinterpret_cast<MPI_Aint>(base);
    pmpi::Type_create_hindexed(1, &count, &back, type, &type_);
    pmpi::Type_commit(&type_);
  }
  ~Moved() { pmpi::Type_free(&type_); }
  Moved(const Moved&) = delete;
  Moved& operator=(const Moved&) = delete;

  MPI_Datatype type() const { return type_; }

 private:
  MPI_Datatype type_;
};

}  // namespace

Layout layout_of(MPI_Datatype type) {
  static thread_local std::unordered_map<uintptr_t, Layout> basic;  // these are never freed
  static thread_local Layout last{};
  static const MPI_Datatype none = MPI_DATATYPE_NULL;
  if (type == none) return {.type = type, .dense = true};
  if (last.basic && last.type == type) return last;
  if (const auto known = basic.find(key_of(type)); known != basic.end()) return last = known->second;
  Layout layout{type};
  measure(layout);
  int integers = 0, addresses = 0, types = 0, combiner = 0;
  pmpi::Type_get_envelope(type, &integers, &addresses, &types, &combiner);
  layout.basic = combiner == MPI_COMBINER_NAMED;
  if (!layout.basic) {
    layout.dense = layout.dense && repeats_a_basic_type(type);
    return layout;
  }
  if (const auto row = table().find(key_of(type)); row != table().end()) {
    layout.kind = row->second.kind;
    layout.dtype = dtype_of(row->second, layout.size);
  }
  return basic.emplace(key_of(type), layout).first->second;
}

std::string name_of(MPI_Datatype type) {
  char name[MPI_MAX_OBJECT_NAME] = "";
  int length = 0;
  pmpi::Type_get_name(type, name, &length);
  return length ? name : "a derived datatype";
}

int pack(const Layout& layout, const void* from, uint64_t count, std::byte* to) {
  return in_parts(layout, count, [&](uint64_t first, int n) {
    const auto* at = static_cast<const std::byte*>(from) + static_cast<int64_t>(first) * layout.extent;
    std::byte* packed = to + first * layout.size;
    const int bytes = static_cast<int>(layout.size * static_cast<uint64_t>(n));
    int position = 0;
    if (at) return pmpi::Pack(at, n, layout.type, packed, bytes, &position, MPI_COMM_SELF);
    const Moved moved(layout.type, n, packed);
    return pmpi::Pack(packed, 1, moved.type(), packed, bytes, &position, MPI_COMM_SELF);
  });
}

int unpack(const Layout& layout, const std::byte* from, uint64_t count, void* to) {
  return in_parts(layout, count, [&](uint64_t first, int n) {
    auto* at = static_cast<std::byte*>(to) + static_cast<int64_t>(first) * layout.extent;
    const std::byte* packed = from + first * layout.size;
    const int bytes = static_cast<int>(layout.size * static_cast<uint64_t>(n));
    int position = 0;
    if (at) return pmpi::Unpack(packed, bytes, &position, at, n, layout.type, MPI_COMM_SELF);
    const Moved moved(layout.type, n, packed);
    return pmpi::Unpack(packed, bytes, &position, const_cast<std::byte*>(packed), 1, moved.type(), MPI_COMM_SELF);
  });
}

}  // namespace tutti::mpi
