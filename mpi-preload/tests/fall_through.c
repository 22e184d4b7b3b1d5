/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that are not served: on an intercommunicator and, with an argument, what MPI refuses. Debian's MPICH refuses
 * nothing: it crashes.
 */
#include "check.h"

int main(int argc, char** argv) {
  begin(&argc, &argv);
  MPI_Comm half, both;
  const int color = rank == 0;
  int sum = 0;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (argc > 1) {
    EXPECT(MPI_Bcast(&sum, 1, MPI_INT, ranks, MPI_COMM_WORLD) != MPI_SUCCESS);
    EXPECT(MPI_Allreduce(&rank, &sum, -1, MPI_INT, MPI_SUM, MPI_COMM_WORLD) != MPI_SUCCESS);
    EXPECT(MPI_Allreduce(&rank, &sum, 1, MPI_FLOAT, MPI_BAND, MPI_COMM_WORLD) != MPI_SUCCESS);
  }
  MPI_Comm_split(MPI_COMM_WORLD, color, rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, color ? 1 : 0, 7, &both);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, both);
  EXPECT(sum == (color ? ranks * (ranks - 1) / 2 : 0));
  MPI_Comm_free(&both);
  MPI_Comm_free(&half);
  return end();
}
