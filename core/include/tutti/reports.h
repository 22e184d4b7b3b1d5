/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports of a communicator: services, traffic, plans, the topology. tutti.h includes this.
 */
#ifndef TUTTI_REPORTS_H
#define TUTTI_REPORTS_H

#include <tutti/plugin/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

struct tutti_comm;

/* The rows of the following tables have no struct_size: their layout is frozen, with reserved room that is 0.
 *
 * How one kind of call was served. Strings live as long as the communicator. */
typedef struct tutti_service {
  const char* collective; /* "all_reduce", "send" ... */
  const char* algorithm;  /* "ring"; "" for send and receive */
  const char* transports; /* "shm", "shm+tcp": the transports of the links that its plans use; "" for one rank */
  uint64_t calls;
  uint64_t bytes;   /* size of the calls' data (nccl-tests' "size") */
  uint64_t time_ns; /* from issue to completion, all calls */
  uint64_t reserved[4];
} tutti_service;
/* Bytes moved with one peer, counted by the core where it hands them to the transport, or to the streams: "mapped" is
 * memory of the library on one rank's device that the other rank's device reads; "window" is memory of a window that it
 * reads. */
typedef struct tutti_link_traffic {
  const char* transport;
  uint32_t peer;
  uint32_t reserved0;
  uint64_t sent_bytes;
  uint64_t received_bytes;
  uint64_t reserved1[4];
} tutti_link_traffic;
/* Bytes of messages over one rail (a port of an adapter), counted by its transport. Only transports with rails report
 * them (tutti/plugin/rails.h). Strings live as long as the communicator. */
typedef struct tutti_rail_traffic {
  const char* transport;
  const char* rail; /* "mlx5_0:1" */
  uint64_t sent_bytes;
  uint64_t received_bytes;
  uint64_t reserved[4];
} tutti_rail_traffic;
/* How the last call of one collective was served on this rank. Strings live as long as the communicator. */
typedef struct tutti_plan_facts {
  uint32_t struct_size; /* set by the caller */
  uint32_t reserved;
  const char* algorithm;
  const char* transports; /* as in tutti_service */
  uint64_t slices;        /* of each lane; 1: no pipelining */
  uint64_t schedule_hash; /* tutti::schedule_hash (tutti/schedule.h) of the schedule that this rank ran */
} tutti_plan_facts;
/* TUTTI_NOT_FOUND when the collective has not been called yet. */
tutti_status tutti_comm_plan(const struct tutti_comm* comm, uint32_t collective, tutti_plan_facts* facts);
/* *n is the capacity of rows on entry and the number of rows there are on return. */
tutti_status tutti_comm_services(const struct tutti_comm* comm, tutti_service* rows, uint64_t* n);
tutti_status tutti_comm_traffic(const struct tutti_comm* comm, tutti_link_traffic* rows, uint64_t* n);
tutti_status tutti_comm_rails(const struct tutti_comm* comm, tutti_rail_traffic* rows, uint64_t* n);
/* A table, as text, of the algorithms for one call in host memory, with predicted time, measured time (TUTTI_TUNING)
 * and slices, or the reason why one is excluded. Where every rank is bound to a device, a second table follows for the
 * call in device memory. It has no measured times, and the slices of the prediction: the call itself may run in fewer.
 * The same on all ranks. *bytes is the capacity on entry and the length needed, with its NUL, on return. */
tutti_status tutti_comm_explain(struct tutti_comm* comm, uint32_t collective, uint64_t count, uint32_t dtype, char* text,
                                uint64_t* bytes);
/* The topology as text: ranks, hosts, devices, transports of each pair; the same on all ranks. Another line follows for
 * each transport that could not connect this rank to a peer, with the reason and the transport that serves the pair
 * instead. */
tutti_status tutti_comm_topology(const struct tutti_comm* comm, char* text, uint64_t* bytes);
/* The same as a file (tutti/topology.hpp), which tutti-info and tutti-plan read. *bytes as above. */
tutti_status tutti_comm_topology_file(const struct tutti_comm* comm, char* text, uint64_t* bytes);
/* The device that this rank is bound to, as tutti_comm_config.device has it: "cuda:1"; "none". *bytes as above. */
tutti_status tutti_comm_device(const struct tutti_comm* comm, char* text, uint64_t* bytes);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

TUTTI_MANDATORY(tutti_plan_facts, schedule_hash);
#endif
