// SPDX-License-Identifier: Apache-2.0
//
// Each collective of MPI once, for its four forms: blocking or not, with counts of int or of MPI_Count. `pmpi` is the
// function of MPI's library; a non-blocking form has a request.
#pragma once

#include "serve.hpp"

namespace tutti::mpi::forms {

template <typename Pmpi, typename... Request>
int barrier_form(Pmpi& pmpi, MPI_Comm comm, Request... request) {
  return serve(
      Function::barrier, comm, [&](Call& call) { return barrier(call); }, [&] { return pmpi(comm, request...); },
      request...);
}

template <typename Pmpi, typename Count, typename... Request>
int bcast_form(Pmpi& pmpi, void* buffer, Count count, MPI_Datatype type, int root, MPI_Comm comm, Request... request) {
  return serve(
      Function::bcast, comm, [&](Call& call) { return bcast(call, {buffer, count, type}, root); },
      [&] { return pmpi(buffer, count, type, root, comm, request...); }, request...);
}

template <typename Pmpi, typename Count, typename... Request>
int gather_form(Pmpi& pmpi, const void* in, Count in_count, MPI_Datatype in_type, void* out, Count out_count,
                MPI_Datatype out_type, int root, MPI_Comm comm, Request... request) {
  return serve(
      Function::gather, comm,
      [&](Call& call) { return gather(call, {in, in_count, in_type}, {out, out_count, out_type}, root); },
      [&] { return pmpi(in, in_count, in_type, out, out_count, out_type, root, comm, request...); }, request...);
}

template <typename Pmpi, typename Count, typename Offset, typename... Request>
int gather_v_form(Pmpi& pmpi, const void* in, Count in_count, MPI_Datatype in_type, void* out, const Count* counts,
                  const Offset* offsets, MPI_Datatype out_type, int root, MPI_Comm comm, Request... request) {
  return serve(
      Function::gather_v, comm,
      [&](Call& call) {
        return gather_v(call, {in, in_count, in_type}, {out, Numbers(counts), Numbers(offsets), out_type}, root);
      },
      [&] { return pmpi(in, in_count, in_type, out, counts, offsets, out_type, root, comm, request...); }, request...);
}

template <typename Pmpi, typename Count, typename... Request>
int all_gather_form(Pmpi& pmpi, const void* in, Count in_count, MPI_Datatype in_type, void* out, Count out_count,
                    MPI_Datatype out_type, MPI_Comm comm, Request... request) {
  return serve(
      Function::all_gather, comm,
      [&](Call& call) { return all_gather(call, {in, in_count, in_type}, {out, out_count, out_type}); },
      [&] { return pmpi(in, in_count, in_type, out, out_count, out_type, comm, request...); }, request...);
}

template <typename Pmpi, typename Count, typename Offset, typename... Request>
int all_gather_v_form(Pmpi& pmpi, const void* in, Count in_count, MPI_Datatype in_type, void* out, const Count* counts,
                      const Offset* offsets, MPI_Datatype out_type, MPI_Comm comm, Request... request) {
  return serve(
      Function::all_gather_v, comm,
      [&](Call& call) {
        return all_gather_v(call, {in, in_count, in_type}, {out, Numbers(counts), Numbers(offsets), out_type});
      },
      [&] { return pmpi(in, in_count, in_type, out, counts, offsets, out_type, comm, request...); }, request...);
}

template <typename Pmpi, typename Count, typename... Request>
int scatter_form(Pmpi& pmpi, const void* in, Count in_count, MPI_Datatype in_type, void* out, Count out_count,
                 MPI_Datatype out_type, int root, MPI_Comm comm, Request... request) {
  return serve(
      Function::scatter, comm,
      [&](Call& call) { return scatter(call, {in, in_count, in_type}, {out, out_count, out_type}, root); },
      [&] { return pmpi(in, in_count, in_type, out, out_count, out_type, root, comm, request...); }, request...);
}

template <typename Pmpi, typename Count, typename Offset, typename... Request>
int scatter_v_form(Pmpi& pmpi, const void* in, const Count* counts, const Offset* offsets, MPI_Datatype in_type,
                   void* out, Count out_count, MPI_Datatype out_type, int root, MPI_Comm comm, Request... request) {
  return serve(
      Function::scatter_v, comm,
      [&](Call& call) {
        return scatter_v(call, {in, Numbers(counts), Numbers(offsets), in_type}, {out, out_count, out_type}, root);
      },
      [&] { return pmpi(in, counts, offsets, in_type, out, out_count, out_type, root, comm, request...); }, request...);
}

template <typename Pmpi, typename Count, typename... Request>
int all_to_all_form(Pmpi& pmpi, const void* in, Count in_count, MPI_Datatype in_type, void* out, Count out_count,
                    MPI_Datatype out_type, MPI_Comm comm, Request... request) {
  return serve(
      Function::all_to_all, comm,
      [&](Call& call) { return all_to_all(call, {in, in_count, in_type}, {out, out_count, out_type}); },
      [&] { return pmpi(in, in_count, in_type, out, out_count, out_type, comm, request...); }, request...);
}

template <typename Pmpi, typename Count, typename Offset, typename... Request>
int all_to_all_v_form(Pmpi& pmpi, const void* in, const Count* in_counts, const Offset* in_offsets,
                      MPI_Datatype in_type, void* out, const Count* out_counts, const Offset* out_offsets,
                      MPI_Datatype out_type, MPI_Comm comm, Request... request) {
  return serve(
      Function::all_to_all_v, comm,
      [&](Call& call) {
        return all_to_all_v(call, {in, Numbers(in_counts), Numbers(in_offsets), in_type},
                            {out, Numbers(out_counts), Numbers(out_offsets), out_type});
      },
      [&] {
        return pmpi(in, in_counts, in_offsets, in_type, out, out_counts, out_offsets, out_type, comm, request...);
      },
      request...);
}

template <typename Pmpi, typename Count, typename Offset, typename... Request>
int all_to_all_w_form(Pmpi& pmpi, const void* in, const Count* in_counts, const Offset* in_offsets,
                      const MPI_Datatype* in_types, void* out, const Count* out_counts, const Offset* out_offsets,
                      const MPI_Datatype* out_types, MPI_Comm comm, Request... request) {
  return serve(
      Function::all_to_all_w, comm,
      [&](Call& call) {
        return all_to_all_w(call, {in, Numbers(in_counts), Numbers(in_offsets), in_types},
                            {out, Numbers(out_counts), Numbers(out_offsets), out_types});
      },
      [&] {
        return pmpi(in, in_counts, in_offsets, in_types, out, out_counts, out_offsets, out_types, comm, request...);
      },
      request...);
}

template <typename Pmpi, typename Count, typename... Request>
int reduce_form(Pmpi& pmpi, const void* in, void* out, Count count, MPI_Datatype type, MPI_Op op, int root,
                MPI_Comm comm, Request... request) {
  return serve(
      Function::reduce, comm, [&](Call& call) { return reduce(call, in, {out, count, type}, op, root); },
      [&] { return pmpi(in, out, count, type, op, root, comm, request...); }, request...);
}

template <typename Pmpi, typename Count, typename... Request>
int all_reduce_form(Pmpi& pmpi, const void* in, void* out, Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                    Request... request) {
  if constexpr (sizeof...(Request) == 0)
    if (const auto code = all_reduce_again(in, {out, count, type}, op, comm)) return *code;
  return serve(
      Function::all_reduce, comm, [&](Call& call) { return all_reduce(call, in, {out, count, type}, op); },
      [&] { return pmpi(in, out, count, type, op, comm, request...); }, request...);
}

template <typename Pmpi, typename Count, typename... Request>
int reduce_scatter_form(Pmpi& pmpi, const void* in, void* out, const Count* counts, MPI_Datatype type, MPI_Op op,
                        MPI_Comm comm, Request... request) {
  return serve(
      Function::reduce_scatter, comm,
      [&](Call& call) { return reduce_scatter(call, in, out, Numbers(counts), type, op); },
      [&] { return pmpi(in, out, counts, type, op, comm, request...); }, request...);
}

template <typename Pmpi, typename Count, typename... Request>
int reduce_scatter_block_form(Pmpi& pmpi, const void* in, void* out, Count count, MPI_Datatype type, MPI_Op op,
                              MPI_Comm comm, Request... request) {
  return serve(
      Function::reduce_scatter_block, comm,
      [&](Call& call) { return reduce_scatter_block(call, in, {out, count, type}, op); },
      [&] { return pmpi(in, out, count, type, op, comm, request...); }, request...);
}

template <typename Pmpi, typename Count, typename... Request>
int scan_form(Pmpi& pmpi, const void* in, void* out, Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
              Request... request) {
  return serve(
      Function::scan, comm, [&](Call& call) { return scan(call, in, {out, count, type}, op); },
      [&] { return pmpi(in, out, count, type, op, comm, request...); }, request...);
}

template <typename Pmpi, typename Count, typename... Request>
int exscan_form(Pmpi& pmpi, const void* in, void* out, Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                Request... request) {
  return serve(
      Function::exscan, comm, [&](Call& call) { return exscan(call, in, {out, count, type}, op); },
      [&] { return pmpi(in, out, count, type, op, comm, request...); }, request...);
}

}  // namespace tutti::mpi::forms
