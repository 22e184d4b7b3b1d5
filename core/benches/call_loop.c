/* SPDX-License-Identifier: Apache-2.0
 *
 * One of two ranks that makes the same call of 8 bytes again and again, for call_instructions.py, which counts its
 * instructions.
 *
 *   call_loop FOLDER RANK COLLECTIVE CALLS
 *
 * The ranks meet in the folder. The barrier at the end keeps a rank from leaving while the other still receives.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

enum { nranks = 2, root = 0, count = 1 }; /* of float64 per block */

static tutti_status call(tutti_comm* comm, const char* name, const double* in, double* out) {
  if (!strcmp(name, "barrier")) return tutti_barrier(comm, NULL, NULL);
  if (!strcmp(name, "broadcast")) return tutti_broadcast(comm, in, out, count, TUTTI_FLOAT64, root, NULL, NULL);
  if (!strcmp(name, "reduce")) return tutti_reduce(comm, in, out, count, TUTTI_FLOAT64, TUTTI_SUM, root, NULL, NULL);
  if (!strcmp(name, "all_reduce")) return tutti_all_reduce(comm, in, out, count, TUTTI_FLOAT64, TUTTI_SUM, NULL, NULL);
  if (!strcmp(name, "gather")) return tutti_gather(comm, in, out, count, TUTTI_FLOAT64, root, NULL, NULL);
  if (!strcmp(name, "all_gather")) return tutti_all_gather(comm, in, out, count, TUTTI_FLOAT64, NULL, NULL);
  if (!strcmp(name, "scatter")) return tutti_scatter(comm, in, out, count, TUTTI_FLOAT64, root, NULL, NULL);
  if (!strcmp(name, "reduce_scatter"))
    return tutti_reduce_scatter(comm, in, out, count, TUTTI_FLOAT64, TUTTI_SUM, NULL, NULL);
  if (!strcmp(name, "all_to_all")) return tutti_all_to_all(comm, in, out, count, TUTTI_FLOAT64, NULL, NULL);
  if (!strcmp(name, "exchange")) {
    const uint32_t other = 1 - tutti_comm_rank(comm);
    const tutti_message messages[2] = {
        {.data = (void*)in, .count = count, .dtype = TUTTI_FLOAT64, .peer = other, .direction = TUTTI_SEND},
        {.data = out, .count = count, .dtype = TUTTI_FLOAT64, .peer = other, .direction = TUTTI_RECEIVE}};
    return tutti_exchange(comm, messages, 2, NULL, NULL);
  }
  return TUTTI_INVALID_ARGUMENT;
}

int main(int argc, char** argv) {
  if (argc != 5) {
    fprintf(stderr, "call_loop: expected FOLDER RANK COLLECTIVE CALLS, got %d arguments: use call_instructions.py\n",
            argc - 1);
    return 2;
  }
  char place[4096], error[1024];
  snprintf(place, sizeof place, "file:%s", argv[1]);
  const long calls = atol(argv[4]);
  tutti_comm_config config;
  memset(&config, 0, sizeof config);
  config.struct_size = sizeof config;
  config.rendezvous = place;
  config.rank = (uint32_t)atol(argv[2]);
  config.nranks = nranks;
  config.transports = "shm";
  config.device = "none";
  config.error = error;
  config.error_bytes = sizeof error;
  tutti_comm* comm = NULL;
  if (tutti_comm_create(&config, &comm) != TUTTI_OK) {
    fprintf(stderr, "call_loop: %s\n", error);
    return 1;
  }
  double in[nranks] = {1, 2}, out[nranks];
  tutti_status status = TUTTI_OK;
  for (long i = 0; i < calls && status == TUTTI_OK; ++i) status = call(comm, argv[3], in, out);
  if (status == TUTTI_OK) status = tutti_barrier(comm, NULL, NULL);
  if (status != TUTTI_OK) fprintf(stderr, "call_loop: %s: %s\n", argv[3], tutti_comm_error(comm));
  tutti_comm_destroy(comm);
  return status != TUTTI_OK;
}
