// SPDX-License-Identifier: Apache-2.0
//
// The non-blocking collectives, each the counterpart of one in blocking.cpp.
#include "serve.hpp"

using namespace tutti::mpi;

int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
  return serve_later(
      Function::i_barrier, comm, request, [&](Call& call) { return barrier(call); },
      [&] { return pmpi::Ibarrier(comm, request); });
}

int MPI_Ibcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
  return serve_later(
      Function::i_bcast, comm, request, [&](Call& call) { return bcast(call, {buffer, count, type}, root); },
      [&] { return pmpi::Ibcast(buffer, count, type, root, comm, request); });
}

int MPI_Igather(const void* in, int in_count, MPI_Datatype in_type, void* out, int out_count, MPI_Datatype out_type,
                int root, MPI_Comm comm, MPI_Request* request) {
  return serve_later(
      Function::i_gather, comm, request,
      [&](Call& call) { return gather(call, {in, in_count, in_type}, {out, out_count, out_type}, root); },
      [&] { return pmpi::Igather(in, in_count, in_type, out, out_count, out_type, root, comm, request); });
}

int MPI_Igatherv(const void* in, int in_count, MPI_Datatype in_type, void* out, const int* counts, const int* offsets,
                 MPI_Datatype out_type, int root, MPI_Comm comm, MPI_Request* request) {
  return serve_later(
      Function::i_gather_v, comm, request,
      [&](Call& call) {
        return gather_v(call, {in, in_count, in_type}, {out, Numbers(counts), Numbers(offsets), out_type}, root);
      },
      [&] { return pmpi::Igatherv(in, in_count, in_type, out, counts, offsets, out_type, root, comm, request); });
}

int MPI_Iallgather(const void* in, int in_count, MPI_Datatype in_type, void* out, int out_count, MPI_Datatype out_type,
                   MPI_Comm comm, MPI_Request* request) {
  return serve_later(
      Function::i_all_gather, comm, request,
      [&](Call& call) { return all_gather(call, {in, in_count, in_type}, {out, out_count, out_type}); },
      [&] { return pmpi::Iallgather(in, in_count, in_type, out, out_count, out_type, comm, request); });
}

int MPI_Iallgatherv(const void* in, int in_count, MPI_Datatype in_type, void* out, const int* counts,
                    const int* offsets, MPI_Datatype out_type, MPI_Comm comm, MPI_Request* request) {
  return serve_later(
      Function::i_all_gather_v, comm, request,
      [&](Call& call) {
        return all_gather_v(call, {in, in_count, in_type}, {out, Numbers(counts), Numbers(offsets), out_type});
      },
      [&] { return pmpi::Iallgatherv(in, in_count, in_type, out, counts, offsets, out_type, comm, request); });
}

int MPI_Iscatter(const void* in, int in_count, MPI_Datatype in_type, void* out, int out_count, MPI_Datatype out_type,
                 int root, MPI_Comm comm, MPI_Request* request) {
  return serve_later(
      Function::i_scatter, comm, request,
      [&](Call& call) { return scatter(call, {in, in_count, in_type}, {out, out_count, out_type}, root); },
      [&] { return pmpi::Iscatter(in, in_count, in_type, out, out_count, out_type, root, comm, request); });
}

int MPI_Iscatterv(const void* in, const int* counts, const int* offsets, MPI_Datatype in_type, void* out, int out_count,
                  MPI_Datatype out_type, int root, MPI_Comm comm, MPI_Request* request) {
  return serve_later(
      Function::i_scatter_v, comm, request,
      [&](Call& call) {
        return scatter_v(call, {in, Numbers(counts), Numbers(offsets), in_type}, {out, out_count, out_type}, root);
      },
      [&] { return pmpi::Iscatterv(in, counts, offsets, in_type, out, out_count, out_type, root, comm, request); });
}

int MPI_Ialltoall(const void* in, int in_count, MPI_Datatype in_type, void* out, int out_count, MPI_Datatype out_type,
                  MPI_Comm comm, MPI_Request* request) {
  return serve_later(
      Function::i_all_to_all, comm, request,
      [&](Call& call) { return all_to_all(call, {in, in_count, in_type}, {out, out_count, out_type}); },
      [&] { return pmpi::Ialltoall(in, in_count, in_type, out, out_count, out_type, comm, request); });
}

int MPI_Ialltoallv(const void* in, const int* in_counts, const int* in_offsets, MPI_Datatype in_type, void* out,
                   const int* out_counts, const int* out_offsets, MPI_Datatype out_type, MPI_Comm comm,
                   MPI_Request* request) {
  return serve_later(
      Function::i_all_to_all_v, comm, request,
      [&](Call& call) {
        return all_to_all_v(call, {in, Numbers(in_counts), Numbers(in_offsets), in_type},
                            {out, Numbers(out_counts), Numbers(out_offsets), out_type});
      },
      [&] {
        return pmpi::Ialltoallv(in, in_counts, in_offsets, in_type, out, out_counts, out_offsets, out_type, comm,
                                request);
      });
}

int MPI_Ialltoallw(const void* in, const int* in_counts, const int* in_offsets, const MPI_Datatype* in_types, void* out,
                   const int* out_counts, const int* out_offsets, const MPI_Datatype* out_types, MPI_Comm comm,
                   MPI_Request* request) {
  return serve_later(
      Function::i_all_to_all_w, comm, request,
      [&](Call& call) {
        return all_to_all_w(call, {in, Numbers(in_counts), Numbers(in_offsets), in_types},
                            {out, Numbers(out_counts), Numbers(out_offsets), out_types});
      },
      [&] {
        return pmpi::Ialltoallw(in, in_counts, in_offsets, in_types, out, out_counts, out_offsets, out_types, comm,
                                request);
      });
}

int MPI_Ireduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm,
                MPI_Request* request) {
  return serve_later(
      Function::i_reduce, comm, request, [&](Call& call) { return reduce(call, in, {out, count, type}, op, root); },
      [&] { return pmpi::Ireduce(in, out, count, type, op, root, comm, request); });
}

int MPI_Iallreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request* request) {
  return serve_later(
      Function::i_all_reduce, comm, request, [&](Call& call) { return all_reduce(call, in, {out, count, type}, op); },
      [&] { return pmpi::Iallreduce(in, out, count, type, op, comm, request); });
}

int MPI_Ireduce_scatter(const void* in, void* out, const int* counts, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                        MPI_Request* request) {
  return serve_later(
      Function::i_reduce_scatter, comm, request,
      [&](Call& call) { return reduce_scatter(call, in, out, Numbers(counts), type, op); },
      [&] { return pmpi::Ireduce_scatter(in, out, counts, type, op, comm, request); });
}

int MPI_Ireduce_scatter_block(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                              MPI_Request* request) {
  return serve_later(
      Function::i_reduce_scatter_block, comm, request,
      [&](Call& call) { return reduce_scatter_block(call, in, {out, count, type}, op); },
      [&] { return pmpi::Ireduce_scatter_block(in, out, count, type, op, comm, request); });
}

int MPI_Iscan(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request* request) {
  return serve_later(
      Function::i_scan, comm, request, [&](Call& call) { return scan(call, in, {out, count, type}, op); },
      [&] { return pmpi::Iscan(in, out, count, type, op, comm, request); });
}

int MPI_Iexscan(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                MPI_Request* request) {
  return serve_later(
      Function::i_exscan, comm, request, [&](Call& call) { return exscan(call, in, {out, count, type}, op); },
      [&] { return pmpi::Iexscan(in, out, count, type, op, comm, request); });
}
