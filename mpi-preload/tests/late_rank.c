/* SPDX-License-Identifier: Apache-2.0
 *
 * Rank 1 does not come to the last MPI_Allreduce. With an argument it does.
 */
#include <unistd.h>

#include "check.h"

int main(int argc, char** argv) {
  begin(&argc, &argv);
  int sum = 0;
  for (int call = 0; call < 3; ++call) {
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    EXPECT(sum == ranks * (ranks - 1) / 2);
  }
  if (rank == 0) {
    printf("process %d\n", (int)getpid());
    fflush(stdout);
  }
  while (rank == 1 && argc == 1) pause();
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  return end();
}
