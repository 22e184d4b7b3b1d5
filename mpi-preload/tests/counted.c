/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives that the MPI library carries out, always: of neighbors, and persistent ones where it has them.
 */
#include "check.h"
#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION < 5
#include <mpi-ext.h>
#define MPI_Allreduce_init MPIX_Allreduce_init
#endif

int main(int argc, char** argv) {
  begin(&argc, &argv);
  const int periodic = 1;
  int from[2], sum = 0;
  MPI_Comm ring;
  MPI_Request request;
  MPI_Cart_create(MPI_COMM_WORLD, 1, &ranks, &periodic, 0, &ring);
  MPI_Neighbor_allgather(&rank, 1, MPI_INT, from, 1, MPI_INT, ring);
  EXPECT(from[0] == (rank + ranks - 1) % ranks && from[1] == (rank + 1) % ranks);
  from[0] = -1;
  MPI_Ineighbor_allgather(&rank, 1, MPI_INT, from, 1, MPI_INT, ring, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  EXPECT(from[0] == (rank + ranks - 1) % ranks && from[1] == (rank + 1) % ranks);
  MPI_Comm_free(&ring);
  MPI_Allreduce_init(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  for (int i = 0; i < 2; ++i) {
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    EXPECT(sum == ranks * (ranks - 1) / 2);
  }
  MPI_Request_free(&request);
  return end();
}
