/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks 0 .. n-1 sum their numbers; rank 0 prints "n ranks, sum S". */
#include <stdio.h>
#include <tutti/tutti.h>

int main(void) {
  char why[1024] = "";
  tutti_comm_config config = {.struct_size = sizeof config, .error = why, .error_bytes = sizeof why};
  tutti_comm* world = NULL;
  if (tutti_comm_create(&config, &world) != TUTTI_OK) {
    fprintf(stderr, "%s\n", why);
    return 1;
  }
  int64_t sum = tutti_comm_rank(world);
  if (tutti_all_reduce(world, &sum, &sum, 1, TUTTI_INT64, TUTTI_SUM, NULL, NULL) != TUTTI_OK) {
    fprintf(stderr, "%s\n", tutti_comm_error(world));
    return 1;
  }
  if (tutti_comm_rank(world) == 0) printf("%u ranks, sum %lld\n", tutti_comm_nranks(world), (long long)sum);
  return tutti_comm_destroy(world) == TUTTI_OK ? 0 : 1;
}
