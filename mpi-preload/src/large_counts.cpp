// SPDX-License-Identifier: Apache-2.0
//
// The collectives with counts of 64 bits, blocking and not, which libraries of MPI 4 have.
#include "forms.hpp"

using namespace tutti::mpi;

#if MPI_VERSION >= 4

int MPI_Bcast_c(void* buffer, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm) {
  return forms::bcast_form(pmpi::Bcast_c, buffer, count, type, root, comm);
}

int MPI_Gather_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out, MPI_Count out_count,
                 MPI_Datatype out_type, int root, MPI_Comm comm) {
  return forms::gather_form(pmpi::Gather_c, in, in_count, in_type, out, out_count, out_type, root, comm);
}

int MPI_Gatherv_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out, const MPI_Count* counts,
                  const MPI_Aint* offsets, MPI_Datatype out_type, int root, MPI_Comm comm) {
  return forms::gather_v_form(pmpi::Gatherv_c, in, in_count, in_type, out, counts, offsets, out_type, root, comm);
}

int MPI_Allgather_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out, MPI_Count out_count,
                    MPI_Datatype out_type, MPI_Comm comm) {
  return forms::all_gather_form(pmpi::Allgather_c, in, in_count, in_type, out, out_count, out_type, comm);
}

int MPI_Allgatherv_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out, const MPI_Count* counts,
                     const MPI_Aint* offsets, MPI_Datatype out_type, MPI_Comm comm) {
  return forms::all_gather_v_form(pmpi::Allgatherv_c, in, in_count, in_type, out, counts, offsets, out_type, comm);
}

int MPI_Scatter_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out, MPI_Count out_count,
                  MPI_Datatype out_type, int root, MPI_Comm comm) {
  return forms::scatter_form(pmpi::Scatter_c, in, in_count, in_type, out, out_count, out_type, root, comm);
}

int MPI_Scatterv_c(const void* in, const MPI_Count* counts, const MPI_Aint* offsets, MPI_Datatype in_type, void* out,
                   MPI_Count out_count, MPI_Datatype out_type, int root, MPI_Comm comm) {
  return forms::scatter_v_form(pmpi::Scatterv_c, in, counts, offsets, in_type, out, out_count, out_type, root, comm);
}

int MPI_Alltoall_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out, MPI_Count out_count,
                   MPI_Datatype out_type, MPI_Comm comm) {
  return forms::all_to_all_form(pmpi::Alltoall_c, in, in_count, in_type, out, out_count, out_type, comm);
}

int MPI_Alltoallv_c(const void* in, const MPI_Count* in_counts, const MPI_Aint* in_offsets, MPI_Datatype in_type,
                    void* out, const MPI_Count* out_counts, const MPI_Aint* out_offsets, MPI_Datatype out_type,
                    MPI_Comm comm) {
  return forms::all_to_all_v_form(pmpi::Alltoallv_c, in, in_counts, in_offsets, in_type, out, out_counts, out_offsets,
                                  out_type, comm);
}

int MPI_Alltoallw_c(const void* in, const MPI_Count* in_counts, const MPI_Aint* in_offsets,
                    const MPI_Datatype* in_types, void* out, const MPI_Count* out_counts, const MPI_Aint* out_offsets,
                    const MPI_Datatype* out_types, MPI_Comm comm) {
  return forms::all_to_all_w_form(pmpi::Alltoallw_c, in, in_counts, in_offsets, in_types, out, out_counts, out_offsets,
                                  out_types, comm);
}

int MPI_Reduce_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {
  return forms::reduce_form(pmpi::Reduce_c, in, out, count, type, op, root, comm);
}

int MPI_Allreduce_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return forms::all_reduce_form(pmpi::Allreduce_c, in, out, count, type, op, comm);
}

int MPI_Reduce_scatter_c(const void* in, void* out, const MPI_Count* counts, MPI_Datatype type, MPI_Op op,
                         MPI_Comm comm) {
  return forms::reduce_scatter_form(pmpi::Reduce_scatter_c, in, out, counts, type, op, comm);
}

int MPI_Reduce_scatter_block_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op,
                               MPI_Comm comm) {
  return forms::reduce_scatter_block_form(pmpi::Reduce_scatter_block_c, in, out, count, type, op, comm);
}

int MPI_Scan_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return forms::scan_form(pmpi::Scan_c, in, out, count, type, op, comm);
}

int MPI_Exscan_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return forms::exscan_form(pmpi::Exscan_c, in, out, count, type, op, comm);
}

int MPI_Ibcast_c(void* buffer, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
  return forms::bcast_form(pmpi::Ibcast_c, buffer, count, type, root, comm, request);
}

int MPI_Igather_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out, MPI_Count out_count,
                  MPI_Datatype out_type, int root, MPI_Comm comm, MPI_Request* request) {
  return forms::gather_form(pmpi::Igather_c, in, in_count, in_type, out, out_count, out_type, root, comm, request);
}

int MPI_Igatherv_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out, const MPI_Count* counts,
                   const MPI_Aint* offsets, MPI_Datatype out_type, int root, MPI_Comm comm, MPI_Request* request) {
  return forms::gather_v_form(pmpi::Igatherv_c, in, in_count, in_type, out, counts, offsets, out_type, root, comm,
                              request);
}

int MPI_Iallgather_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out, MPI_Count out_count,
                     MPI_Datatype out_type, MPI_Comm comm, MPI_Request* request) {
  return forms::all_gather_form(pmpi::Iallgather_c, in, in_count, in_type, out, out_count, out_type, comm, request);
}

int MPI_Iallgatherv_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out, const MPI_Count* counts,
                      const MPI_Aint* offsets, MPI_Datatype out_type, MPI_Comm comm, MPI_Request* request) {
  return forms::all_gather_v_form(pmpi::Iallgatherv_c, in, in_count, in_type, out, counts, offsets, out_type, comm,
                                  request);
}

int MPI_Iscatter_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out, MPI_Count out_count,
                   MPI_Datatype out_type, int root, MPI_Comm comm, MPI_Request* request) {
  return forms::scatter_form(pmpi::Iscatter_c, in, in_count, in_type, out, out_count, out_type, root, comm, request);
}

int MPI_Iscatterv_c(const void* in, const MPI_Count* counts, const MPI_Aint* offsets, MPI_Datatype in_type, void* out,
                    MPI_Count out_count, MPI_Datatype out_type, int root, MPI_Comm comm, MPI_Request* request) {
  return forms::scatter_v_form(pmpi::Iscatterv_c, in, counts, offsets, in_type, out, out_count, out_type, root, comm,
                               request);
}

int MPI_Ialltoall_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out, MPI_Count out_count,
                    MPI_Datatype out_type, MPI_Comm comm, MPI_Request* request) {
  return forms::all_to_all_form(pmpi::Ialltoall_c, in, in_count, in_type, out, out_count, out_type, comm, request);
}

int MPI_Ialltoallv_c(const void* in, const MPI_Count* in_counts, const MPI_Aint* in_offsets, MPI_Datatype in_type,
                     void* out, const MPI_Count* out_counts, const MPI_Aint* out_offsets, MPI_Datatype out_type,
                     MPI_Comm comm, MPI_Request* request) {
  return forms::all_to_all_v_form(pmpi::Ialltoallv_c, in, in_counts, in_offsets, in_type, out, out_counts, out_offsets,
                                  out_type, comm, request);
}

int MPI_Ialltoallw_c(const void* in, const MPI_Count* in_counts, const MPI_Aint* in_offsets,
                     const MPI_Datatype* in_types, void* out, const MPI_Count* out_counts, const MPI_Aint* out_offsets,
                     const MPI_Datatype* out_types, MPI_Comm comm, MPI_Request* request) {
  return forms::all_to_all_w_form(pmpi::Ialltoallw_c, in, in_counts, in_offsets, in_types, out, out_counts, out_offsets,
                                  out_types, comm, request);
}

int MPI_Ireduce_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm,
                  MPI_Request* request) {
  return forms::reduce_form(pmpi::Ireduce_c, in, out, count, type, op, root, comm, request);
}

int MPI_Iallreduce_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                     MPI_Request* request) {
  return forms::all_reduce_form(pmpi::Iallreduce_c, in, out, count, type, op, comm, request);
}

int MPI_Ireduce_scatter_c(const void* in, void* out, const MPI_Count* counts, MPI_Datatype type, MPI_Op op,
                          MPI_Comm comm, MPI_Request* request) {
  return forms::reduce_scatter_form(pmpi::Ireduce_scatter_c, in, out, counts, type, op, comm, request);
}

int MPI_Ireduce_scatter_block_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                                MPI_Request* request) {
  return forms::reduce_scatter_block_form(pmpi::Ireduce_scatter_block_c, in, out, count, type, op, comm, request);
}

int MPI_Iscan_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                MPI_Request* request) {
  return forms::scan_form(pmpi::Iscan_c, in, out, count, type, op, comm, request);
}

int MPI_Iexscan_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                  MPI_Request* request) {
  return forms::exscan_form(pmpi::Iexscan_c, in, out, count, type, op, comm, request);
}

#endif
