/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads of a rank call collectives at the same time, each on a communicator of its own, blocking and not, while
 * others send messages.
 */
#include <pthread.h>

#include "check.h"

enum { threads = 4, calls = 200 };
static MPI_Comm own[threads];

static void* run(void* number) {
  const int t = *(const int*)number;
  const int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
  for (int i = 0; i < calls; ++i) {
    int mine[3] = {rank, i, t}, sums[3] = {0}, first = rank == 0 ? i : -1, got = -1;
    MPI_Allreduce(mine, sums, 3, MPI_INT, MPI_SUM, own[t]);
    EXPECT(sums[0] == ranks * (ranks - 1) / 2 && sums[1] == i * ranks && sums[2] == t * ranks);
    MPI_Request request;
    MPI_Ibcast(&first, 1, MPI_INT, 0, own[t], &request);
    if (t % 2) MPI_Sendrecv(&i, 1, MPI_INT, next, t, &got, 1, MPI_INT, last, t, own[t], MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    EXPECT(first == i && (t % 2 == 0 || got == i));
    if (i % 50 == 0) {
      MPI_Comm copy;
      MPI_Comm_dup(own[t], &copy);
      MPI_Barrier(copy);
      MPI_Comm_free(&copy);
    }
  }
  return NULL;
}

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  EXPECT(provided == MPI_THREAD_MULTIPLE);
  pthread_t running[threads];
  int numbers[threads];
  for (int t = 0; t < threads; ++t) MPI_Comm_dup(MPI_COMM_WORLD, &own[t]);
  for (int t = 0; t < threads; ++t) {
    numbers[t] = t;
    EXPECT(pthread_create(&running[t], NULL, run, &numbers[t]) == 0);
  }
  for (int t = 0; t < threads; ++t) EXPECT(pthread_join(running[t], NULL) == 0);
  for (int t = 0; t < threads; ++t) MPI_Comm_free(&own[t]);
  return end();
}
