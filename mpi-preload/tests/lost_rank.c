/* SPDX-License-Identifier: Apache-2.0
 *
 * Rank 1 is killed between two of its collectives. The others wait for it in theirs.
 */
#include <signal.h>

#include "check.h"

int main(int argc, char** argv) {
  begin(&argc, &argv);
  static double sum[4000];
  for (int call = 0;; ++call) {
    if (rank == 1 && call == 50) raise(SIGKILL);
    MPI_Allreduce(MPI_IN_PLACE, sum, 4000, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    EXPECT(call < 50);
  }
}
