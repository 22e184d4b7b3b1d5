// SPDX-License-Identifier: Apache-2.0
//
// How data of an MPI datatype lies in memory, and which of Tutti's types it is.
//
// Ranks may describe the same data by different datatypes, as long as the signatures are equal. So calls that only move
// data move bytes: a type that is not contiguous is packed before and unpacked after the call, on its rank alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pmpi.hpp"

namespace tutti::mpi {

enum class Kind { none, integer, byte, logical, floating, complex, pair };

struct Layout {
  MPI_Datatype type;
  uint64_t size = 0;   // bytes of data of an element
  int64_t extent = 0;  // from one element to the next
  bool basic = false;  // one of MPI's own types
  bool dense = false;  // elements are `size` bytes without gaps, from the buffer's address on
  Kind kind = Kind::none;
  uint32_t dtype = 0;  // Tutti's type for MPI's operators; 0: none
};

// MPI_DATATYPE_NULL, which programs may pass with a count of 0: a type without data.
Layout layout_of(MPI_Datatype type);
// "MPI_INT", or "a derived datatype".
std::string name_of(MPI_Datatype type);

// Packs `count` elements at `from` into `to`, which has count * size bytes, or the reverse. MPI_SUCCESS, or MPI's
// error.
int pack(const Layout& layout, const void* from, uint64_t count, std::byte* to);
int unpack(const Layout& layout, const std::byte* from, uint64_t count, void* to);

// A handle as the key of a table.
template <typename Handle>
uintptr_t key_of(Handle handle) {
  return (uintptr_t)handle;  // an int in MPICH, a pointer in Open MPI
}

}  // namespace tutti::mpi
