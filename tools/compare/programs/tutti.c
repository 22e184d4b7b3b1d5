/* SPDX-License-Identifier: Apache-2.0
 *
 * The measuring loop over Tutti. COMPARE_MEMORY=registered: buffers of tutti_mem_alloc. --version: the library's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

#include "loop.h"

static tutti_comm* world;

static void require(tutti_status status) {
  if (status == TUTTI_OK) return;
  fprintf(stderr, "compare: %s\n", tutti_comm_error(world));
  exit(1);
}

static int run(enum collective collective, const float* in, float* out, size_t count) {
  switch (collective) {
    case BROADCAST:
      require(tutti_broadcast(world, out, out, count, TUTTI_FLOAT32, 0, NULL, NULL));
      return 0;
    case REDUCE:
      require(tutti_reduce(world, in, out, count, TUTTI_FLOAT32, TUTTI_SUM, 0, NULL, NULL));
      return 0;
    case ALL_REDUCE:
      require(tutti_all_reduce(world, in, out, count, TUTTI_FLOAT32, TUTTI_SUM, NULL, NULL));
      return 0;
    case GATHER:
      require(tutti_gather(world, in, out, count, TUTTI_FLOAT32, 0, NULL, NULL));
      return 0;
    case ALL_GATHER:
      require(tutti_all_gather(world, in, out, count, TUTTI_FLOAT32, NULL, NULL));
      return 0;
    case SCATTER:
      require(tutti_scatter(world, in, out, count, TUTTI_FLOAT32, 0, NULL, NULL));
      return 0;
    case REDUCE_SCATTER:
      require(tutti_reduce_scatter(world, in, out, count, TUTTI_FLOAT32, TUTTI_SUM, NULL, NULL));
      return 0;
    case ALL_TO_ALL:
      require(tutti_all_to_all(world, in, out, count, TUTTI_FLOAT32, NULL, NULL));
      return 0;
    case SEND_RECEIVE: {
      const uint32_t n = tutti_comm_nranks(world), rank = tutti_comm_rank(world);
      const tutti_message messages[2] = {{.data = (void*)in,
                                          .count = count,
                                          .dtype = TUTTI_FLOAT32,
                                          .peer = (rank + 1) % n,
                                          .direction = TUTTI_SEND},
                                         {.data = out,
                                          .count = count,
                                          .dtype = TUTTI_FLOAT32,
                                          .peer = (rank + n - 1) % n,
                                          .direction = TUTTI_RECEIVE}};
      require(tutti_exchange(world, messages, 2, NULL, NULL));
      return 0;
    }
    default:
      require(tutti_barrier(world, NULL, NULL));
      return 0;
  }
}

static void* registered_memory(size_t bytes) {
  void* memory = NULL;
  require(tutti_mem_alloc(bytes, &memory));
  return memory;
}

static void release_registered(void* memory) { require(tutti_mem_free(memory)); }

int main(int argc, char** argv) {
  if (asks_version(argc, argv)) return puts(tutti_version()) < 0;
  limit_time("tutti_comm_create", 30);
  const char* rank = getenv("TUTTI_RANK");
  if (!rank) rank = getenv("RANK");
  if (rank) pin(atoi(rank));
  char error[512] = "";
  tutti_comm_config config = {.struct_size = sizeof config, .error = error, .error_bytes = sizeof error};
  if (tutti_comm_create(&config, &world) != TUTTI_OK) {
    fprintf(stderr, "compare: %s\n", error);
    return 1;
  }
  const char* memory = getenv("COMPARE_MEMORY");
  const int registered = memory && strcmp(memory, "registered") == 0;
  const struct library library = {.rank = (int)tutti_comm_rank(world),
                                  .nranks = (int)tutti_comm_nranks(world),
                                  .run = run,
                                  .allocate = registered ? registered_memory : ordinary_memory,
                                  .release = registered ? release_registered : free};
  const int status = measure(&library, argc, argv);
  require(tutti_comm_destroy(world));
  return status;
}
