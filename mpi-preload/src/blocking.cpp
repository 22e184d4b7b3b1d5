// SPDX-License-Identifier: Apache-2.0
//
// The blocking collectives that this library puts before those of MPI's library.
#include "serve.hpp"

using namespace tutti::mpi;

int MPI_Barrier(MPI_Comm comm) {
  return serve(Function::barrier, comm, [&](Call& call) { return barrier(call); }, [&] { return pmpi::Barrier(comm); });
}

int MPI_Bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  return serve(
      Function::bcast, comm, [&](Call& call) { return bcast(call, {buffer, count, type}, root); },
      [&] { return pmpi::Bcast(buffer, count, type, root, comm); });
}

int MPI_Gather(const void* in, int in_count, MPI_Datatype in_type, void* out, int out_count, MPI_Datatype out_type,
               int root, MPI_Comm comm) {
  return serve(
      Function::gather, comm,
      [&](Call& call) { return gather(call, {in, in_count, in_type}, {out, out_count, out_type}, root); },
      [&] { return pmpi::Gather(in, in_count, in_type, out, out_count, out_type, root, comm); });
}

int MPI_Gatherv(const void* in, int in_count, MPI_Datatype in_type, void* out, const int* counts, const int* offsets,
                MPI_Datatype out_type, int root, MPI_Comm comm) {
  return serve(
      Function::gather_v, comm,
      [&](Call& call) {
        return gather_v(call, {in, in_count, in_type}, {out, Numbers(counts), Numbers(offsets), out_type}, root);
      },
      [&] { return pmpi::Gatherv(in, in_count, in_type, out, counts, offsets, out_type, root, comm); });
}

int MPI_Allgather(const void* in, int in_count, MPI_Datatype in_type, void* out, int out_count, MPI_Datatype out_type,
                  MPI_Comm comm) {
  return serve(
      Function::all_gather, comm,
      [&](Call& call) { return all_gather(call, {in, in_count, in_type}, {out, out_count, out_type}); },
      [&] { return pmpi::Allgather(in, in_count, in_type, out, out_count, out_type, comm); });
}

int MPI_Allgatherv(const void* in, int in_count, MPI_Datatype in_type, void* out, const int* counts, const int* offsets,
                   MPI_Datatype out_type, MPI_Comm comm) {
  return serve(
      Function::all_gather_v, comm,
      [&](Call& call) {
        return all_gather_v(call, {in, in_count, in_type}, {out, Numbers(counts), Numbers(offsets), out_type});
      },
      [&] { return pmpi::Allgatherv(in, in_count, in_type, out, counts, offsets, out_type, comm); });
}

int MPI_Scatter(const void* in, int in_count, MPI_Datatype in_type, void* out, int out_count, MPI_Datatype out_type,
                int root, MPI_Comm comm) {
  return serve(
      Function::scatter, comm,
      [&](Call& call) { return scatter(call, {in, in_count, in_type}, {out, out_count, out_type}, root); },
      [&] { return pmpi::Scatter(in, in_count, in_type, out, out_count, out_type, root, comm); });
}

int MPI_Scatterv(const void* in, const int* counts, const int* offsets, MPI_Datatype in_type, void* out, int out_count,
                 MPI_Datatype out_type, int root, MPI_Comm comm) {
  return serve(
      Function::scatter_v, comm,
      [&](Call& call) {
        return scatter_v(call, {in, Numbers(counts), Numbers(offsets), in_type}, {out, out_count, out_type}, root);
      },
      [&] { return pmpi::Scatterv(in, counts, offsets, in_type, out, out_count, out_type, root, comm); });
}

int MPI_Alltoall(const void* in, int in_count, MPI_Datatype in_type, void* out, int out_count, MPI_Datatype out_type,
                 MPI_Comm comm) {
  return serve(
      Function::all_to_all, comm,
      [&](Call& call) { return all_to_all(call, {in, in_count, in_type}, {out, out_count, out_type}); },
      [&] { return pmpi::Alltoall(in, in_count, in_type, out, out_count, out_type, comm); });
}

int MPI_Alltoallv(const void* in, const int* in_counts, const int* in_offsets, MPI_Datatype in_type, void* out,
                  const int* out_counts, const int* out_offsets, MPI_Datatype out_type, MPI_Comm comm) {
  return serve(
      Function::all_to_all_v, comm,
      [&](Call& call) {
        return all_to_all_v(call, {in, Numbers(in_counts), Numbers(in_offsets), in_type},
                            {out, Numbers(out_counts), Numbers(out_offsets), out_type});
      },
      [&] {
        return pmpi::Alltoallv(in, in_counts, in_offsets, in_type, out, out_counts, out_offsets, out_type, comm);
      });
}

int MPI_Alltoallw(const void* in, const int* in_counts, const int* in_offsets, const MPI_Datatype* in_types, void* out,
                  const int* out_counts, const int* out_offsets, const MPI_Datatype* out_types, MPI_Comm comm) {
  return serve(
      Function::all_to_all_w, comm,
      [&](Call& call) {
        return all_to_all_w(call, {in, Numbers(in_counts), Numbers(in_offsets), in_types},
                            {out, Numbers(out_counts), Numbers(out_offsets), out_types});
      },
      [&] {
        return pmpi::Alltoallw(in, in_counts, in_offsets, in_types, out, out_counts, out_offsets, out_types, comm);
      });
}

int MPI_Reduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {
  return serve(
      Function::reduce, comm, [&](Call& call) { return reduce(call, in, {out, count, type}, op, root); },
      [&] { return pmpi::Reduce(in, out, count, type, op, root, comm); });
}

int MPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return serve(
      Function::all_reduce, comm, [&](Call& call) { return all_reduce(call, in, {out, count, type}, op); },
      [&] { return pmpi::Allreduce(in, out, count, type, op, comm); });
}

int MPI_Reduce_scatter(const void* in, void* out, const int* counts, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return serve(
      Function::reduce_scatter, comm,
      [&](Call& call) { return reduce_scatter(call, in, out, Numbers(counts), type, op); },
      [&] { return pmpi::Reduce_scatter(in, out, counts, type, op, comm); });
}

int MPI_Reduce_scatter_block(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return serve(
      Function::reduce_scatter_block, comm,
      [&](Call& call) { return reduce_scatter_block(call, in, {out, count, type}, op); },
      [&] { return pmpi::Reduce_scatter_block(in, out, count, type, op, comm); });
}

int MPI_Scan(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return serve(
      Function::scan, comm, [&](Call& call) { return scan(call, in, {out, count, type}, op); },
      [&] { return pmpi::Scan(in, out, count, type, op, comm); });
}

int MPI_Exscan(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return serve(
      Function::exscan, comm, [&](Call& call) { return exscan(call, in, {out, count, type}, op); },
      [&] { return pmpi::Exscan(in, out, count, type, op, comm); });
}
