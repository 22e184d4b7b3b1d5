/* SPDX-License-Identifier: Apache-2.0
 *
 * The peer's figure: MPI_Allreduce of float32 sums, out of place, median of nine rounds, by size. Not part of the
 * build:
 *
 *   mpicc -O2 core/benches/mpi_all_reduce.c -o /tmp/mpi_all_reduce
 *   mpirun --allow-run-as-root --bind-to core -n 2 /tmp/mpi_all_reduce       (-n 4 --oversubscribe; --mca btl tcp,self)
 *
 * Arguments: the largest size in bytes (all), iterations of every size (by size).
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const size_t most = argc > 1 ? strtoull(argv[1], NULL, 10) : SIZE_MAX;
  const int fixed = argc > 2 ? atoi(argv[2]) : 0;
  const size_t sizes[] = {8, 8 << 10, 64 << 10, 256 << 10, 8 << 20, 256 << 20};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s) {
    const size_t bytes = sizes[s];
    if (bytes > most) break;
    float *in = malloc(bytes), *out = malloc(bytes);
    for (size_t i = 0; i < bytes / 4; ++i) in[i] = 1, out[i] = 0;
    const int iterations = fixed                ? fixed
                           : bytes <= 8 << 10   ? 20000
                           : bytes <= 256 << 10 ? 1000
                           : bytes <= 8 << 20   ? 50
                                                : 3;
    double times[9];
    for (int round = 0; round < 9; ++round) {
      MPI_Barrier(MPI_COMM_WORLD);
      const double begin = MPI_Wtime();
      for (int i = 0; i < iterations; ++i) MPI_Allreduce(in, out, (int)(bytes / 4), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      times[round] = (MPI_Wtime() - begin) / iterations;
    }
    qsort(times, 9, sizeof *times, ascending);
    if (rank == 0) printf("%12zu bytes %12.2f us\n", bytes, times[4] * 1e6);
    free(in);
    free(out);
  }
  MPI_Finalize();
  return 0;
}
