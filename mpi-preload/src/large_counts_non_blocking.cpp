// SPDX-License-Identifier: Apache-2.0
//
// The non-blocking collectives with counts of 64 bits, which libraries of MPI 4 have.
#include "serve.hpp"

using namespace tutti::mpi;

#if MPI_VERSION >= 4

int MPI_Ibcast_c(void* buffer, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
  return serve_later(
      Function::i_bcast, comm, request, [&](Call& call) { return bcast(call, {buffer, count, type}, root); },
      [&] { return pmpi::Ibcast_c(buffer, count, type, root, comm, request); });
}

int MPI_Igather_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out, MPI_Count out_count,
                  MPI_Datatype out_type, int root, MPI_Comm comm, MPI_Request* request) {
  return serve_later(
      Function::i_gather, comm, request,
      [&](Call& call) { return gather(call, {in, in_count, in_type}, {out, out_count, out_type}, root); },
      [&] { return pmpi::Igather_c(in, in_count, in_type, out, out_count, out_type, root, comm, request); });
}

int MPI_Igatherv_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out, const MPI_Count* counts,
                   const MPI_Aint* offsets, MPI_Datatype out_type, int root, MPI_Comm comm, MPI_Request* request) {
  return serve_later(
      Function::i_gather_v, comm, request,
      [&](Call& call) {
        return gather_v(call, {in, in_count, in_type}, {out, Numbers(counts), Numbers(offsets), out_type}, root);
      },
      [&] { return pmpi::Igatherv_c(in, in_count, in_type, out, counts, offsets, out_type, root, comm, request); });
}

int MPI_Iallgather_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out, MPI_Count out_count,
                     MPI_Datatype out_type, MPI_Comm comm, MPI_Request* request) {
  return serve_later(
      Function::i_all_gather, comm, request,
      [&](Call& call) { return all_gather(call, {in, in_count, in_type}, {out, out_count, out_type}); },
      [&] { return pmpi::Iallgather_c(in, in_count, in_type, out, out_count, out_type, comm, request); });
}

int MPI_Iallgatherv_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out, const MPI_Count* counts,
                      const MPI_Aint* offsets, MPI_Datatype out_type, MPI_Comm comm, MPI_Request* request) {
  return serve_later(
      Function::i_all_gather_v, comm, request,
      [&](Call& call) {
        return all_gather_v(call, {in, in_count, in_type}, {out, Numbers(counts), Numbers(offsets), out_type});
      },
      [&] { return pmpi::Iallgatherv_c(in, in_count, in_type, out, counts, offsets, out_type, comm, request); });
}

int MPI_Iscatter_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out, MPI_Count out_count,
                   MPI_Datatype out_type, int root, MPI_Comm comm, MPI_Request* request) {
  return serve_later(
      Function::i_scatter, comm, request,
      [&](Call& call) { return scatter(call, {in, in_count, in_type}, {out, out_count, out_type}, root); },
      [&] { return pmpi::Iscatter_c(in, in_count, in_type, out, out_count, out_type, root, comm, request); });
}

int MPI_Iscatterv_c(const void* in, const MPI_Count* counts, const MPI_Aint* offsets, MPI_Datatype in_type, void* out,
                    MPI_Count out_count, MPI_Datatype out_type, int root, MPI_Comm comm, MPI_Request* request) {
  return serve_later(
      Function::i_scatter_v, comm, request,
      [&](Call& call) {
        return scatter_v(call, {in, Numbers(counts), Numbers(offsets), in_type}, {out, out_count, out_type}, root);
      },
      [&] { return pmpi::Iscatterv_c(in, counts, offsets, in_type, out, out_count, out_type, root, comm, request); });
}

int MPI_Ialltoall_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out, MPI_Count out_count,
                    MPI_Datatype out_type, MPI_Comm comm, MPI_Request* request) {
  return serve_later(
      Function::i_all_to_all, comm, request,
      [&](Call& call) { return all_to_all(call, {in, in_count, in_type}, {out, out_count, out_type}); },
      [&] { return pmpi::Ialltoall_c(in, in_count, in_type, out, out_count, out_type, comm, request); });
}

int MPI_Ialltoallv_c(const void* in, const MPI_Count* in_counts, const MPI_Aint* in_offsets, MPI_Datatype in_type,
                     void* out, const MPI_Count* out_counts, const MPI_Aint* out_offsets, MPI_Datatype out_type,
                     MPI_Comm comm, MPI_Request* request) {
  return serve_later(
      Function::i_all_to_all_v, comm, request,
      [&](Call& call) {
        return all_to_all_v(call, {in, Numbers(in_counts), Numbers(in_offsets), in_type},
                            {out, Numbers(out_counts), Numbers(out_offsets), out_type});
      },
      [&] {
        return pmpi::Ialltoallv_c(in, in_counts, in_offsets, in_type, out, out_counts, out_offsets, out_type, comm,
                                  request);
      });
}

int MPI_Ialltoallw_c(const void* in, const MPI_Count* in_counts, const MPI_Aint* in_offsets,
                     const MPI_Datatype* in_types, void* out, const MPI_Count* out_counts, const MPI_Aint* out_offsets,
                     const MPI_Datatype* out_types, MPI_Comm comm, MPI_Request* request) {
  return serve_later(
      Function::i_all_to_all_w, comm, request,
      [&](Call& call) {
        return all_to_all_w(call, {in, Numbers(in_counts), Numbers(in_offsets), in_types},
                            {out, Numbers(out_counts), Numbers(out_offsets), out_types});
      },
      [&] {
        return pmpi::Ialltoallw_c(in, in_counts, in_offsets, in_types, out, out_counts, out_offsets, out_types, comm,
                                  request);
      });
}

int MPI_Ireduce_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm,
                  MPI_Request* request) {
  return serve_later(
      Function::i_reduce, comm, request, [&](Call& call) { return reduce(call, in, {out, count, type}, op, root); },
      [&] { return pmpi::Ireduce_c(in, out, count, type, op, root, comm, request); });
}

int MPI_Iallreduce_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                     MPI_Request* request) {
  return serve_later(
      Function::i_all_reduce, comm, request, [&](Call& call) { return all_reduce(call, in, {out, count, type}, op); },
      [&] { return pmpi::Iallreduce_c(in, out, count, type, op, comm, request); });
}

int MPI_Ireduce_scatter_c(const void* in, void* out, const MPI_Count* counts, MPI_Datatype type, MPI_Op op,
                          MPI_Comm comm, MPI_Request* request) {
  return serve_later(
      Function::i_reduce_scatter, comm, request,
      [&](Call& call) { return reduce_scatter(call, in, out, Numbers(counts), type, op); },
      [&] { return pmpi::Ireduce_scatter_c(in, out, counts, type, op, comm, request); });
}

int MPI_Ireduce_scatter_block_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                                MPI_Request* request) {
  return serve_later(
      Function::i_reduce_scatter_block, comm, request,
      [&](Call& call) { return reduce_scatter_block(call, in, {out, count, type}, op); },
      [&] { return pmpi::Ireduce_scatter_block_c(in, out, count, type, op, comm, request); });
}

int MPI_Iscan_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                MPI_Request* request) {
  return serve_later(
      Function::i_scan, comm, request, [&](Call& call) { return scan(call, in, {out, count, type}, op); },
      [&] { return pmpi::Iscan_c(in, out, count, type, op, comm, request); });
}

int MPI_Iexscan_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                  MPI_Request* request) {
  return serve_later(
      Function::i_exscan, comm, request, [&](Call& call) { return exscan(call, in, {out, count, type}, op); },
      [&] { return pmpi::Iexscan_c(in, out, count, type, op, comm, request); });
}

#endif
