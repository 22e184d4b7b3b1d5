// SPDX-License-Identifier: Apache-2.0
//
// MPI's functions that make communicators. Tutti's communicators are made by a collective that waits, which a
// non-blocking call must not: so that it can be a communicator's first call, they are made with the communicator.
#include "serve.hpp"

using namespace tutti::mpi;

namespace {

// Where a new communicator's rank 0 is in its parent: a number that tells it from others made in the same call.
uint32_t place_in(MPI_Comm parent, MPI_Comm comm) {
  MPI_Group of_parent, of_comm;
  const int first = 0;
  int place = 0;
  pmpi::Comm_group(parent, &of_parent);
  pmpi::Comm_group(comm, &of_comm);
  pmpi::Group_translate_ranks(of_comm, 1, &first, of_parent, &place);
  pmpi::Group_free(&of_parent);
  pmpi::Group_free(&of_comm);
  return static_cast<uint32_t>(place);
}

// After a call of all ranks of the new communicator, or of none.
int made(int code, const MPI_Comm* comm) {
  return code == MPI_SUCCESS && is_running() && *comm != MPI_COMM_NULL ? meet(*comm) : code;
}

// After a call of all ranks of `parent`. A part of Tutti's communicator costs no meeting.
int made_of(MPI_Comm parent, int code, const MPI_Comm* comm) {
  if (code != MPI_SUCCESS || !is_running()) return code;
  const Communicator& whole = communicator_of(parent);
  if (whole.is_inter() || !whole.tutti()) return made(code, comm);
  if (*comm == MPI_COMM_NULL) return become_part(whole, nullptr, TUTTI_NO_COLOR);
  return become_part(whole, &communicator_of(*comm), place_in(parent, *comm));
}

}  // namespace

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* to) { return made_of(comm, pmpi::Comm_dup(comm, to), to); }

int MPI_Comm_dup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm* to) {
  return made_of(comm, pmpi::Comm_dup_with_info(comm, info, to), to);
}

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* to) {
  return made_of(comm, pmpi::Comm_split(comm, color, key, to), to);
}

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* to) {
  return made_of(comm, pmpi::Comm_split_type(comm, type, key, info, to), to);
}

int MPI_Comm_create(MPI_Comm comm, MPI_Group group, MPI_Comm* to) {
  return made_of(comm, pmpi::Comm_create(comm, group, to), to);
}

int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* to) {
  return made(pmpi::Comm_create_group(comm, group, tag, to), to);
}

int MPI_Cart_create(MPI_Comm comm, int n, const int* sizes, const int* periods, int reorder, MPI_Comm* to) {
  return made_of(comm, pmpi::Cart_create(comm, n, sizes, periods, reorder, to), to);
}

int MPI_Cart_sub(MPI_Comm comm, const int* remain, MPI_Comm* to) {
  return made_of(comm, pmpi::Cart_sub(comm, remain, to), to);
}

int MPI_Graph_create(MPI_Comm comm, int n, const int* index, const int* edges, int reorder, MPI_Comm* to) {
  return made_of(comm, pmpi::Graph_create(comm, n, index, edges, reorder, to), to);
}

int MPI_Dist_graph_create(MPI_Comm comm, int n, const int* sources, const int* degrees, const int* targets,
                          const int* weights, MPI_Info info, int reorder, MPI_Comm* to) {
  return made_of(comm, pmpi::Dist_graph_create(comm, n, sources, degrees, targets, weights, info, reorder, to), to);
}

int MPI_Dist_graph_create_adjacent(MPI_Comm comm, int n_in, const int* sources, const int* in_weights, int n_out,
                                   const int* targets, const int* out_weights, MPI_Info info, int reorder,
                                   MPI_Comm* to) {
  return made_of(
      comm,
      pmpi::Dist_graph_create_adjacent(comm, n_in, sources, in_weights, n_out, targets, out_weights, info, reorder, to),
      to);
}

int MPI_Intercomm_merge(MPI_Comm comm, int high, MPI_Comm* to) {
  return made(pmpi::Intercomm_merge(comm, high, to), to);
}
