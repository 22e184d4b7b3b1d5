/* SPDX-License-Identifier: Apache-2.0
 *
 * collective/1: carries out a whole collective without a schedule of the core, for example by a switch that reduces or
 * by a vendor's library. It is a candidate beside the algorithms, for calls on host memory: TUTTI_ALGO names it, a
 * selector may choose it, and tutti_comm_plan reports the calls that it served (transports "native").
 *
 * A group is a plugin's part of one communicator. Either all ranks have it or none has.
 *
 * Threads: [control] the thread that makes or destroys the communicator; [any] any thread at any time; [progress] the
 * one thread that has the communicator at that moment. No [progress] function blocks.
 */
#ifndef TUTTI_PLUGIN_COLLECTIVE_H
#define TUTTI_PLUGIN_COLLECTIVE_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_COLLECTIVE_ID "tutti.collective/1"
/* The draft's stamp: a hash of the layouts below. The core refuses a plugin that was compiled with another. */
#define TUTTI_COLLECTIVE_STAMP 0x8e3aee8bu

/* Opaque objects of the plugin. */
typedef struct tutti_native_group tutti_native_group;
typedef struct tutti_native_operation tutti_native_operation;

/* Everything lives until create returns. */
typedef struct tutti_native_config {
  uint32_t struct_size;
  uint32_t rank;
  uint32_t nranks;
  uint32_t reserved;
  const char* name;             /* of the communicator, for messages */
  uint64_t communicator_id;     /* the same on all ranks, different for any two communicators alive in a job */
  const uint32_t* host_of_rank; /* nranks entries, as in tutti_query */
  /* Out of band: all[r * bytes ...] = rank r's `mine`. Only within create, on its thread, by all ranks equally often
   * and with equal `bytes`. create must return its error. */
  void* oob;
  tutti_status (*all_gather)(void* oob, const void* mine, uint64_t bytes, void* all);
} tutti_native_config;

/* One call. The same on all ranks but for in_place and the buffers, which are laid out as algorithm.h says. */
typedef struct tutti_native_call {
  uint32_t struct_size;
  uint32_t collective;
  uint32_t dtype; /* 0 of a barrier */
  uint32_t op;    /* 0 where nothing is reduced */
  uint32_t root;  /* 0 for collectives without one */
  uint32_t in_place;
  uint64_t count; /* elements of a block */
  const void* in; /* read until test reports the end of the operation */
  void* out;      /* written until then */
} tutti_native_call;

typedef struct tutti_collective {
  uint32_t struct_size;
  uint32_t stamp; /* TUTTI_COLLECTIVE_STAMP */
  void* self;
  const char* name;     /* what users type. Unique among collectives and algorithms. Lives as long as the process. */
  const char* summary;  /* one line */
  uint64_t collectives; /* mask of 1 << TUTTI_ALL_REDUCE ... */
  /* [control] Collective: returns when all ranks have called it, or fails. If one rank fails, no rank has the group. */
  tutti_status (*create)(void* self, const tutti_native_config* config, tutti_native_group** group);
  /* [progress] States whether the group serves this call. in and out are NULL, in_place is 0. A pure function of the
   * call and of data that are equal on all ranks of the group. TUTTI_OK: *predicted_ns is the expected time, to be
   * compared with algorithms. TUTTI_NOT_SUPPORTED (with set_error): it does not serve the call. */
  tutti_status (*supports)(tutti_native_group* group, const tutti_native_call* call, uint64_t* predicted_ns);
  /* [progress] Starts an operation. All ranks start a group's operations in the same order; several may be under way.
   */
  tutti_status (*start)(tutti_native_group* group, const tutti_native_call* call, tutti_native_operation** operation);
  /* [progress] TUTTI_AGAIN: under way; the call advances it. Anything else ends and frees the operation. An error
   * breaks the communicator. */
  tutti_status (*test)(tutti_native_operation* operation);
  /* [progress] The communicator is broken: all operations of this rank end, and test returns TUTTI_ABORTED from now on.
   * Their buffers are not accessed after abort has returned. */
  void (*abort)(tutti_native_group* group);
  /* [control] No operation is under way. Does not wait for other ranks. */
  void (*destroy)(tutti_native_group* group);
} tutti_collective;

#ifdef __cplusplus
}
#endif

TUTTI_MANDATORY(tutti_native_config, all_gather);
TUTTI_MANDATORY(tutti_native_call, out);
TUTTI_MANDATORY(tutti_collective, destroy);
#endif
