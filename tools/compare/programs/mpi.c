/* SPDX-License-Identifier: Apache-2.0
 *
 * The measuring loop over MPI. --version: the library's.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "loop.h"

static int rank, ranks;

static int run(enum collective collective, const float* in, float* out, size_t count) {
  const int n = (int)count;
  switch (collective) {
    case BROADCAST:
      return MPI_Bcast(out, n, MPI_FLOAT, 0, MPI_COMM_WORLD);
    case REDUCE:
      return MPI_Reduce(in, out, n, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
    case ALL_REDUCE:
      return MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    case GATHER:
      return MPI_Gather(in, n, MPI_FLOAT, out, n, MPI_FLOAT, 0, MPI_COMM_WORLD);
    case ALL_GATHER:
      return MPI_Allgather(in, n, MPI_FLOAT, out, n, MPI_FLOAT, MPI_COMM_WORLD);
    case SCATTER:
      return MPI_Scatter(in, n, MPI_FLOAT, out, n, MPI_FLOAT, 0, MPI_COMM_WORLD);
    case REDUCE_SCATTER:
      return MPI_Reduce_scatter_block(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    case ALL_TO_ALL:
      return MPI_Alltoall(in, n, MPI_FLOAT, out, n, MPI_FLOAT, MPI_COMM_WORLD);
    case SEND_RECEIVE:
      return MPI_Sendrecv(in, n, MPI_FLOAT, (rank + 1) % ranks, 0, out, n, MPI_FLOAT, (rank + ranks - 1) % ranks, 0,
                          MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    default:
      return MPI_Barrier(MPI_COMM_WORLD);
  }
}

static int print_version(void) {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length;
  MPI_Get_library_version(text, &length);
  return puts(text) < 0;
}

int main(int argc, char** argv) {
  if (asks_version(argc, argv)) return print_version(); /* allowed before MPI_Init */
  limit_time("MPI_Init", 30);
  /* All launchers tell the rank before MPI_Init, which may settle what it does by where the process runs. */
  const char* told = getenv("OMPI_COMM_WORLD_RANK");
  if (!told) told = getenv("PMI_RANK");
  if (told) pin(atoi(told));
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  pin(rank); /* a library may have moved it */
  const struct library library = {
      .rank = rank, .nranks = ranks, .run = run, .allocate = ordinary_memory, .release = free};
  const int status = measure(&library, argc, argv);
  MPI_Finalize();
  return status;
}
