// SPDX-License-Identifier: Apache-2.0
//
// The blocking collectives that this library puts before those of MPI's library.
#include "forms.hpp"

using namespace tutti::mpi;

int MPI_Barrier(MPI_Comm comm) {
  const int code = forms::barrier_form(pmpi::Barrier, comm);
  // MPI's own barrier would have advanced it: what other ranks did before theirs is often asked for next, and once.
  if (code == MPI_SUCCESS) advance_mpi();
  return code;
}

int MPI_Bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  return forms::bcast_form(pmpi::Bcast, buffer, count, type, root, comm);
}

int MPI_Gather(const void* in, int in_count, MPI_Datatype in_type, void* out, int out_count, MPI_Datatype out_type,
               int root, MPI_Comm comm) {
  return forms::gather_form(pmpi::Gather, in, in_count, in_type, out, out_count, out_type, root, comm);
}

int MPI_Gatherv(const void* in, int in_count, MPI_Datatype in_type, void* out, const int* counts, const int* offsets,
                MPI_Datatype out_type, int root, MPI_Comm comm) {
  return forms::gather_v_form(pmpi::Gatherv, in, in_count, in_type, out, counts, offsets, out_type, root, comm);
}

int MPI_Allgather(const void* in, int in_count, MPI_Datatype in_type, void* out, int out_count, MPI_Datatype out_type,
                  MPI_Comm comm) {
  return forms::all_gather_form(pmpi::Allgather, in, in_count, in_type, out, out_count, out_type, comm);
}

int MPI_Allgatherv(const void* in, int in_count, MPI_Datatype in_type, void* out, const int* counts, const int* offsets,
                   MPI_Datatype out_type, MPI_Comm comm) {
  return forms::all_gather_v_form(pmpi::Allgatherv, in, in_count, in_type, out, counts, offsets, out_type, comm);
}

int MPI_Scatter(const void* in, int in_count, MPI_Datatype in_type, void* out, int out_count, MPI_Datatype out_type,
                int root, MPI_Comm comm) {
  return forms::scatter_form(pmpi::Scatter, in, in_count, in_type, out, out_count, out_type, root, comm);
}

int MPI_Scatterv(const void* in, const int* counts, const int* offsets, MPI_Datatype in_type, void* out, int out_count,
                 MPI_Datatype out_type, int root, MPI_Comm comm) {
  return forms::scatter_v_form(pmpi::Scatterv, in, counts, offsets, in_type, out, out_count, out_type, root, comm);
}

int MPI_Alltoall(const void* in, int in_count, MPI_Datatype in_type, void* out, int out_count, MPI_Datatype out_type,
                 MPI_Comm comm) {
  return forms::all_to_all_form(pmpi::Alltoall, in, in_count, in_type, out, out_count, out_type, comm);
}

int MPI_Alltoallv(const void* in, const int* in_counts, const int* in_offsets, MPI_Datatype in_type, void* out,
                  const int* out_counts, const int* out_offsets, MPI_Datatype out_type, MPI_Comm comm) {
  return forms::all_to_all_v_form(pmpi::Alltoallv, in, in_counts, in_offsets, in_type, out, out_counts, out_offsets,
                                  out_type, comm);
}

int MPI_Alltoallw(const void* in, const int* in_counts, const int* in_offsets, const MPI_Datatype* in_types, void* out,
                  const int* out_counts, const int* out_offsets, const MPI_Datatype* out_types, MPI_Comm comm) {
  return forms::all_to_all_w_form(pmpi::Alltoallw, in, in_counts, in_offsets, in_types, out, out_counts, out_offsets,
                                  out_types, comm);
}

int MPI_Reduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {
  return forms::reduce_form(pmpi::Reduce, in, out, count, type, op, root, comm);
}

int MPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return forms::all_reduce_form(pmpi::Allreduce, in, out, count, type, op, comm);
}

int MPI_Reduce_scatter(const void* in, void* out, const int* counts, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return forms::reduce_scatter_form(pmpi::Reduce_scatter, in, out, counts, type, op, comm);
}

int MPI_Reduce_scatter_block(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return forms::reduce_scatter_block_form(pmpi::Reduce_scatter_block, in, out, count, type, op, comm);
}

int MPI_Scan(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return forms::scan_form(pmpi::Scan, in, out, count, type, op, comm);
}

int MPI_Exscan(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return forms::exscan_form(pmpi::Exscan, in, out, count, type, op, comm);
}
