// SPDX-License-Identifier: Apache-2.0
//
// The calls that were served, and why others were not: counted in each rank, printed by rank 0 when MPI is finalized.
#pragma once

#include <string>

#include "mpi_library.hpp"

namespace tutti::mpi {

// The functions that are looked at. Their forms with large counts (MPI_Bcast_c) are counted with them.
enum class Function {
  barrier,
  bcast,
  reduce,
  all_reduce,
  gather,
  gather_v,
  all_gather,
  all_gather_v,
  scatter,
  scatter_v,
  all_to_all,
  all_to_all_v,
  all_to_all_w,
  reduce_scatter,
  reduce_scatter_block,
  scan,
  exscan,
  i_barrier,
  i_bcast,
  i_reduce,
  i_all_reduce,
  i_gather,
  i_gather_v,
  i_all_gather,
  i_all_gather_v,
  i_scatter,
  i_scatter_v,
  i_all_to_all,
  i_all_to_all_v,
  i_all_to_all_w,
  i_reduce_scatter,
  i_reduce_scatter_block,
  i_scan,
  i_exscan,
  // Only counted.
  barrier_init,
  bcast_init,
  reduce_init,
  all_reduce_init,
  gather_init,
  gather_v_init,
  all_gather_init,
  all_gather_v_init,
  scatter_init,
  scatter_v_init,
  all_to_all_init,
  all_to_all_v_init,
  all_to_all_w_init,
  reduce_scatter_init,
  reduce_scatter_block_init,
  scan_init,
  exscan_init,
  neighbor_all_gather,
  neighbor_all_gather_v,
  neighbor_all_to_all,
  neighbor_all_to_all_v,
  neighbor_all_to_all_w,
  i_neighbor_all_gather,
  i_neighbor_all_gather_v,
  i_neighbor_all_to_all,
  i_neighbor_all_to_all_v,
  i_neighbor_all_to_all_w,
  neighbor_all_gather_init,
  neighbor_all_gather_v_init,
  neighbor_all_to_all_init,
  neighbor_all_to_all_v_init,
  neighbor_all_to_all_w_init,
  all
};
constexpr Function non_blocking(Function blocking) {
  return static_cast<Function>(static_cast<int>(blocking) + static_cast<int>(Function::i_barrier));
}
// "MPI_Bcast"; of Function::all, for errors, "a new communicator".
const char* name_of(Function function);
// The reverse: of "MPI_Bcast_init", and of its forms "MPI_Bcast_init_c" and "MPIX_Bcast_init".
Function function_of(std::string name);

// The fate of a call. Every rank of the communicator comes to the same verdict: it depends on what MPI requires to
// be equal on all of them. Only a call that MPI itself refuses may be `invalid` on one rank.
enum class Verdict {
  served,
  invalid,  // MPI's own error is returned
  intercommunicator,
  not_met,         // a non-blocking call is the communicator's first collective
  undefined_pair,  // MPI does not define the operator for the type: the library decides
  persistent,
  neighborhood,
  all
};

void count(Function function, Verdict verdict);
// A call that falls through, under TUTTI_MPI_REQUIRE=1: ends the job. `subject`: ", type MPI_INT, operator MPI_SUM" or
// "".
void refuse_fall_through(Function function, Verdict verdict, const std::string& subject, MPI_Comm comm);
// Collective over MPI_COMM_WORLD: rank 0 prints the counts of all ranks.
void report();

}  // namespace tutti::mpi
