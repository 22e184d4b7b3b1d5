// SPDX-License-Identifier: Apache-2.0
//
// MPI's collectives as calls of Tutti. Each begins the call and returns a verdict: served, or why MPI's library is to
// carry it out. Arguments are those of MPI's functions, with counts of 64 bits.
#pragma once

#include <cstdint>
#include <optional>

#include "call.hpp"

namespace tutti::mpi {

// A buffer as MPI describes it.
struct Data {
  const void* address;
  int64_t count;
  MPI_Datatype type;
};

// Counts or displacements of the v-forms, of 32 or 64 bits.
class Numbers {
 public:
  template <typename Integer>
  explicit Numbers(const Integer* numbers) : numbers_(numbers), is_long_(sizeof(Integer) == sizeof(int64_t)) {}
  int64_t operator[](size_t i) const {
    return is_long_ ? static_cast<const int64_t*>(numbers_)[i] : static_cast<const int32_t*>(numbers_)[i];
  }
  bool is_null() const { return !numbers_; }

 private:
  const void* numbers_;
  bool is_long_;
};
// The blocks of the v-forms; displacements are in extents.
struct BlockData {
  const void* address;
  Numbers counts, displacements;
  MPI_Datatype type;
};
// Those of MPI_Alltoallw; displacements are in bytes.
struct TypedBlockData {
  const void* address;
  Numbers counts, displacements;
  const MPI_Datatype* types;
};

// Would MPI refuse it?
bool is_wrong(const Data& data);
bool is_wrong_root(const Call& call, int root);

Verdict barrier(Call& call);
Verdict bcast(Call& call, const Data& data, int root);
Verdict gather(Call& call, const Data& in, const Data& out, int root);
Verdict all_gather(Call& call, const Data& in, const Data& out);
Verdict scatter(Call& call, const Data& in, const Data& out, int root);
Verdict all_to_all(Call& call, const Data& in, const Data& out);

Verdict gather_v(Call& call, const Data& in, const BlockData& out, int root);
Verdict all_gather_v(Call& call, const Data& in, const BlockData& out);
Verdict scatter_v(Call& call, const BlockData& in, const Data& out, int root);
Verdict all_to_all_v(Call& call, const BlockData& in, const BlockData& out);
Verdict all_to_all_w(Call& call, const TypedBlockData& in, const TypedBlockData& out);

Verdict reduce(Call& call, const void* in, const Data& out, MPI_Op op, int root);
Verdict all_reduce(Call& call, const void* in, const Data& out, MPI_Op op);
// A blocking call of the type and operator of this thread's last one, where Tutti reduces the program's own memory: it
// costs the least. nullopt: it is not one, and nothing was done. MPI_SUCCESS, or the code of an error that has been
// raised.
std::optional<int> all_reduce_again(const void* in, const Data& out, MPI_Op op, MPI_Comm comm);
Verdict reduce_scatter(Call& call, const void* in, void* out, Numbers counts, MPI_Datatype type, MPI_Op op);
Verdict reduce_scatter_block(Call& call, const void* in, const Data& out, MPI_Op op);
Verdict scan(Call& call, const void* in, const Data& out, MPI_Op op);
Verdict exscan(Call& call, const void* in, const Data& out, MPI_Op op);

}  // namespace tutti::mpi
