/* SPDX-License-Identifier: Apache-2.0
 *
 * A program with MPI that leaves one sum to Tutti.
 *
 *   mpirun -n 4 build/bin/mpi_mean
 */
#include <stdio.h>
#include <tutti/mpi.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  char why[1024] = "";
  tutti_comm_config config = {.struct_size = sizeof config, .error = why, .error_bytes = sizeof why};
  tutti_comm* world = NULL;
  tutti_status status = tutti_comm_create_from_mpi(MPI_COMM_WORLD, &config, &world);
  if (status < 0) {
    fprintf(stderr, "%s\n", why);
    MPI_Finalize();
    return 1;
  }
  float mean = (float)tutti_comm_rank(world);
  status = tutti_all_reduce(world, &mean, &mean, 1, TUTTI_FLOAT32, TUTTI_AVG, NULL, NULL);
  if (status < 0)
    fprintf(stderr, "%s\n", tutti_comm_error(world));
  else if (tutti_comm_rank(world) == 0)
    printf("%u ranks, mean %.2f\n", tutti_comm_nranks(world), mean);
  tutti_comm_destroy(world);
  MPI_Finalize();
  return status < 0;
}
