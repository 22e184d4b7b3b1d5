/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators that are made, used and freed in many ways, among them more than one at a time and such that the
 * program never frees. With an argument: how long a duplicate takes.
 */
#include "check.h"

static void use(MPI_Comm comm) {
  int mine, size, sum = -1;
  if (comm == MPI_COMM_NULL) return;
  MPI_Comm_rank(comm, &mine);
  MPI_Comm_size(comm, &size);
  MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm);
  EXPECT(sum == size * (size - 1) / 2);
  int root = mine == size - 1 ? 4711 : 0;
  MPI_Bcast(&root, 1, MPI_INT, size - 1, comm);
  EXPECT(root == 4711);
}

static void use_and_free(MPI_Comm* comm) {
  use(*comm);
  if (*comm != MPI_COMM_NULL) MPI_Comm_free(comm);
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  MPI_Comm copy, half, grid, row, group_comm, kept, of_half;
  MPI_Group all, first;
  const int sizes[2] = {1, ranks}, periods[2] = {0, 1}, remain[2] = {0, 1};
  use(MPI_COMM_WORLD);
  use(MPI_COMM_SELF);
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : rank % 2, -rank, &half);
  use(half);
  if (half != MPI_COMM_NULL) {
    MPI_Comm_dup(half, &of_half);
    use(copy == MPI_COMM_NULL ? copy : of_half);
    MPI_Comm_free(&of_half);
  }
  use_and_free(&copy);
  use_and_free(&half);
  MPI_Cart_create(MPI_COMM_WORLD, 2, sizes, periods, 1, &grid);
  MPI_Cart_sub(grid, remain, &row);
  use_and_free(&row);
  use_and_free(&grid);
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  MPI_Group_incl(all, 1, &(int){0}, &first);
  MPI_Comm_create(MPI_COMM_WORLD, first, &group_comm);
  use_and_free(&group_comm);
  if (rank == 0) {
    MPI_Comm_create_group(MPI_COMM_WORLD, first, 3, &group_comm);
    use_and_free(&group_comm);
  }
  MPI_Group_free(&all);
  MPI_Group_free(&first);
  const double begin_time = MPI_Wtime();
  for (int i = 0; i < 20; ++i) {
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    use_and_free(&copy);
  }
  if (rank == 0 && argc > 1) printf("%.0f us for a duplicate, its use and its end\n", (MPI_Wtime() - begin_time) * 5e4);
  MPI_Comm_dup(MPI_COMM_WORLD, &kept);
  use(kept);
  return end();
}
