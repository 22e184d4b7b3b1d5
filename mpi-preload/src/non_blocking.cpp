// SPDX-License-Identifier: Apache-2.0
//
// The non-blocking collectives.
#include "forms.hpp"

using namespace tutti::mpi;

int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) { return forms::barrier_form(pmpi::Ibarrier, comm, request); }

int MPI_Ibcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
  return forms::bcast_form(pmpi::Ibcast, buffer, count, type, root, comm, request);
}

int MPI_Igather(const void* in, int in_count, MPI_Datatype in_type, void* out, int out_count, MPI_Datatype out_type,
                int root, MPI_Comm comm, MPI_Request* request) {
  return forms::gather_form(pmpi::Igather, in, in_count, in_type, out, out_count, out_type, root, comm, request);
}

int MPI_Igatherv(const void* in, int in_count, MPI_Datatype in_type, void* out, const int* counts, const int* offsets,
                 MPI_Datatype out_type, int root, MPI_Comm comm, MPI_Request* request) {
  return forms::gather_v_form(pmpi::Igatherv, in, in_count, in_type, out, counts, offsets, out_type, root, comm,
                              request);
}

int MPI_Iallgather(const void* in, int in_count, MPI_Datatype in_type, void* out, int out_count, MPI_Datatype out_type,
                   MPI_Comm comm, MPI_Request* request) {
  return forms::all_gather_form(pmpi::Iallgather, in, in_count, in_type, out, out_count, out_type, comm, request);
}

int MPI_Iallgatherv(const void* in, int in_count, MPI_Datatype in_type, void* out, const int* counts,
                    const int* offsets, MPI_Datatype out_type, MPI_Comm comm, MPI_Request* request) {
  return forms::all_gather_v_form(pmpi::Iallgatherv, in, in_count, in_type, out, counts, offsets, out_type, comm,
                                  request);
}

int MPI_Iscatter(const void* in, int in_count, MPI_Datatype in_type, void* out, int out_count, MPI_Datatype out_type,
                 int root, MPI_Comm comm, MPI_Request* request) {
  return forms::scatter_form(pmpi::Iscatter, in, in_count, in_type, out, out_count, out_type, root, comm, request);
}

int MPI_Iscatterv(const void* in, const int* counts, const int* offsets, MPI_Datatype in_type, void* out, int out_count,
                  MPI_Datatype out_type, int root, MPI_Comm comm, MPI_Request* request) {
  return forms::scatter_v_form(pmpi::Iscatterv, in, counts, offsets, in_type, out, out_count, out_type, root, comm,
                               request);
}

int MPI_Ialltoall(const void* in, int in_count, MPI_Datatype in_type, void* out, int out_count, MPI_Datatype out_type,
                  MPI_Comm comm, MPI_Request* request) {
  return forms::all_to_all_form(pmpi::Ialltoall, in, in_count, in_type, out, out_count, out_type, comm, request);
}

int MPI_Ialltoallv(const void* in, const int* in_counts, const int* in_offsets, MPI_Datatype in_type, void* out,
                   const int* out_counts, const int* out_offsets, MPI_Datatype out_type, MPI_Comm comm,
                   MPI_Request* request) {
  return forms::all_to_all_v_form(pmpi::Ialltoallv, in, in_counts, in_offsets, in_type, out, out_counts, out_offsets,
                                  out_type, comm, request);
}

int MPI_Ialltoallw(const void* in, const int* in_counts, const int* in_offsets, const MPI_Datatype* in_types, void* out,
                   const int* out_counts, const int* out_offsets, const MPI_Datatype* out_types, MPI_Comm comm,
                   MPI_Request* request) {
  return forms::all_to_all_w_form(pmpi::Ialltoallw, in, in_counts, in_offsets, in_types, out, out_counts, out_offsets,
                                  out_types, comm, request);
}

int MPI_Ireduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm,
                MPI_Request* request) {
  return forms::reduce_form(pmpi::Ireduce, in, out, count, type, op, root, comm, request);
}

int MPI_Iallreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request* request) {
  return forms::all_reduce_form(pmpi::Iallreduce, in, out, count, type, op, comm, request);
}

int MPI_Ireduce_scatter(const void* in, void* out, const int* counts, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                        MPI_Request* request) {
  return forms::reduce_scatter_form(pmpi::Ireduce_scatter, in, out, counts, type, op, comm, request);
}

int MPI_Ireduce_scatter_block(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                              MPI_Request* request) {
  return forms::reduce_scatter_block_form(pmpi::Ireduce_scatter_block, in, out, count, type, op, comm, request);
}

int MPI_Iscan(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request* request) {
  return forms::scan_form(pmpi::Iscan, in, out, count, type, op, comm, request);
}

int MPI_Iexscan(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                MPI_Request* request) {
  return forms::exscan_form(pmpi::Iexscan, in, out, count, type, op, comm, request);
}
