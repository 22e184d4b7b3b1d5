// SPDX-License-Identifier: Apache-2.0
//
// The collectives with counts of 64 bits, which libraries of MPI 4 have.
#include "serve.hpp"

using namespace tutti::mpi;

#if MPI_VERSION >= 4

int MPI_Bcast_c(void* buffer, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm) {
  return serve(
      Function::bcast, comm, [&](Call& call) { return bcast(call, {buffer, count, type}, root); },
      [&] { return pmpi::Bcast_c(buffer, count, type, root, comm); });
}

int MPI_Gather_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out, MPI_Count out_count,
                 MPI_Datatype out_type, int root, MPI_Comm comm) {
  return serve(
      Function::gather, comm,
      [&](Call& call) { return gather(call, {in, in_count, in_type}, {out, out_count, out_type}, root); },
      [&] { return pmpi::Gather_c(in, in_count, in_type, out, out_count, out_type, root, comm); });
}

int MPI_Gatherv_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out, const MPI_Count* counts,
                  const MPI_Aint* offsets, MPI_Datatype out_type, int root, MPI_Comm comm) {
  return serve(
      Function::gather_v, comm,
      [&](Call& call) {
        return gather_v(call, {in, in_count, in_type}, {out, Numbers(counts), Numbers(offsets), out_type}, root);
      },
      [&] { return pmpi::Gatherv_c(in, in_count, in_type, out, counts, offsets, out_type, root, comm); });
}

int MPI_Allgather_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out, MPI_Count out_count,
                    MPI_Datatype out_type, MPI_Comm comm) {
  return serve(
      Function::all_gather, comm,
      [&](Call& call) { return all_gather(call, {in, in_count, in_type}, {out, out_count, out_type}); },
      [&] { return pmpi::Allgather_c(in, in_count, in_type, out, out_count, out_type, comm); });
}

int MPI_Allgatherv_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out, const MPI_Count* counts,
                     const MPI_Aint* offsets, MPI_Datatype out_type, MPI_Comm comm) {
  return serve(
      Function::all_gather_v, comm,
      [&](Call& call) {
        return all_gather_v(call, {in, in_count, in_type}, {out, Numbers(counts), Numbers(offsets), out_type});
      },
      [&] { return pmpi::Allgatherv_c(in, in_count, in_type, out, counts, offsets, out_type, comm); });
}

int MPI_Scatter_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out, MPI_Count out_count,
                  MPI_Datatype out_type, int root, MPI_Comm comm) {
  return serve(
      Function::scatter, comm,
      [&](Call& call) { return scatter(call, {in, in_count, in_type}, {out, out_count, out_type}, root); },
      [&] { return pmpi::Scatter_c(in, in_count, in_type, out, out_count, out_type, root, comm); });
}

int MPI_Scatterv_c(const void* in, const MPI_Count* counts, const MPI_Aint* offsets, MPI_Datatype in_type, void* out,
                   MPI_Count out_count, MPI_Datatype out_type, int root, MPI_Comm comm) {
  return serve(
      Function::scatter_v, comm,
      [&](Call& call) {
        return scatter_v(call, {in, Numbers(counts), Numbers(offsets), in_type}, {out, out_count, out_type}, root);
      },
      [&] { return pmpi::Scatterv_c(in, counts, offsets, in_type, out, out_count, out_type, root, comm); });
}

int MPI_Alltoall_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out, MPI_Count out_count,
                   MPI_Datatype out_type, MPI_Comm comm) {
  return serve(
      Function::all_to_all, comm,
      [&](Call& call) { return all_to_all(call, {in, in_count, in_type}, {out, out_count, out_type}); },
      [&] { return pmpi::Alltoall_c(in, in_count, in_type, out, out_count, out_type, comm); });
}

int MPI_Alltoallv_c(const void* in, const MPI_Count* in_counts, const MPI_Aint* in_offsets, MPI_Datatype in_type,
                    void* out, const MPI_Count* out_counts, const MPI_Aint* out_offsets, MPI_Datatype out_type,
                    MPI_Comm comm) {
  return serve(
      Function::all_to_all_v, comm,
      [&](Call& call) {
        return all_to_all_v(call, {in, Numbers(in_counts), Numbers(in_offsets), in_type},
                            {out, Numbers(out_counts), Numbers(out_offsets), out_type});
      },
      [&] {
        return pmpi::Alltoallv_c(in, in_counts, in_offsets, in_type, out, out_counts, out_offsets, out_type, comm);
      });
}

int MPI_Alltoallw_c(const void* in, const MPI_Count* in_counts, const MPI_Aint* in_offsets,
                    const MPI_Datatype* in_types, void* out, const MPI_Count* out_counts, const MPI_Aint* out_offsets,
                    const MPI_Datatype* out_types, MPI_Comm comm) {
  return serve(
      Function::all_to_all_w, comm,
      [&](Call& call) {
        return all_to_all_w(call, {in, Numbers(in_counts), Numbers(in_offsets), in_types},
                            {out, Numbers(out_counts), Numbers(out_offsets), out_types});
      },
      [&] {
        return pmpi::Alltoallw_c(in, in_counts, in_offsets, in_types, out, out_counts, out_offsets, out_types, comm);
      });
}

int MPI_Reduce_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {
  return serve(
      Function::reduce, comm, [&](Call& call) { return reduce(call, in, {out, count, type}, op, root); },
      [&] { return pmpi::Reduce_c(in, out, count, type, op, root, comm); });
}

int MPI_Allreduce_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return serve(
      Function::all_reduce, comm, [&](Call& call) { return all_reduce(call, in, {out, count, type}, op); },
      [&] { return pmpi::Allreduce_c(in, out, count, type, op, comm); });
}

int MPI_Reduce_scatter_c(const void* in, void* out, const MPI_Count* counts, MPI_Datatype type, MPI_Op op,
                         MPI_Comm comm) {
  return serve(
      Function::reduce_scatter, comm,
      [&](Call& call) { return reduce_scatter(call, in, out, Numbers(counts), type, op); },
      [&] { return pmpi::Reduce_scatter_c(in, out, counts, type, op, comm); });
}

int MPI_Reduce_scatter_block_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op,
                               MPI_Comm comm) {
  return serve(
      Function::reduce_scatter_block, comm,
      [&](Call& call) { return reduce_scatter_block(call, in, {out, count, type}, op); },
      [&] { return pmpi::Reduce_scatter_block_c(in, out, count, type, op, comm); });
}

int MPI_Scan_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return serve(
      Function::scan, comm, [&](Call& call) { return scan(call, in, {out, count, type}, op); },
      [&] { return pmpi::Scan_c(in, out, count, type, op, comm); });
}

int MPI_Exscan_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return serve(
      Function::exscan, comm, [&](Call& call) { return exscan(call, in, {out, count, type}, op); },
      [&] { return pmpi::Exscan_c(in, out, count, type, op, comm); });
}

#endif
