/* SPDX-License-Identifier: Apache-2.0
 *
 * The test programs share this: an expectation that names its place and rank, and numbers that tell ranks and places
 * apart.
 */
#ifndef TUTTI_MPI_PRELOAD_TESTS_CHECK_H
#define TUTTI_MPI_PRELOAD_TESTS_CHECK_H

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;

#define EXPECT(condition)                                                                      \
  do {                                                                                         \
    if (!(condition)) {                                                                        \
      fprintf(stderr, "rank %d: %s:%d: not true: %s\n", rank, __FILE__, __LINE__, #condition); \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                            \
    }                                                                                          \
  } while (0)

static inline void begin(int* argc, char*** argv) {
  MPI_Init(argc, argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
}

/* Ends the program: "passed" by rank 0. */
static inline int end(void) {
  const int mine = rank;
  MPI_Finalize();
  if (mine == 0) puts("passed");
  return 0;
}

/* Element i that rank `from` has for rank `to`: small enough for exact sums of floats. */
static inline int value(int from, int to, int i) { return (from * 131 + to * 17 + i * 7) % 1009; }

/* The counts that break things. */
static const int counts[] = {0, 1, 2, 3, 5, 64, 1021, 40000};
enum { n_counts = sizeof counts / sizeof counts[0], most = 40000 };

#endif
