/* SPDX-License-Identifier: Apache-2.0
 *
 * rma/1: one-sided access. A rank reads and writes memory that another rank has exported; signals notify that rank. The
 * registry lists it. The core does not use it yet.
 *
 * Objects
 *   space   one rank's part of a communicator
 *   region  memory of this rank that others may access
 *   remote  another rank's region as this rank sees it
 *
 * Order. Only signals order operations: the target sees a signal after all puts of this rank to that region that were
 * posted before it. Other operations on one remote have no order.
 *
 * Threads: [control] serialised by the caller; [progress] the one thread that has the space at that moment. Nothing
 * blocks.
 */
#ifndef TUTTI_PLUGIN_RMA_H
#define TUTTI_PLUGIN_RMA_H

#include "transport.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_RMA_ID "tutti.rma/1"
/* The draft's stamp: a hash of the layouts below. The core refuses a plugin that was compiled with another. */
#define TUTTI_RMA_STAMP 0x98dcce43u

/* The most bytes that export_region writes. */
#define TUTTI_RMA_KEY_BYTES 256u

/* Opaque objects of the plugin. */
typedef struct tutti_space tutti_space;
typedef struct tutti_rma_region tutti_rma_region;
typedef struct tutti_remote tutti_remote;

typedef struct tutti_space_config {
  uint32_t struct_size;
  uint32_t rank;
  uint32_t nranks;
  uint32_t reserved;
  uint64_t communicator_id; /* the same on all ranks, different for any two communicators alive in a job */
} tutti_space_config;

/* How an operation ended. Frozen layout, 32 bytes. */
typedef struct tutti_rma_completion {
  uint64_t cookie;
  tutti_status status;
  uint32_t peer;
  uint64_t reserved[2];
} tutti_rma_completion;

typedef struct tutti_rma {
  uint32_t struct_size;
  uint32_t stamp; /* TUTTI_RMA_STAMP */
  void* self;
  const char* name;    /* what users type. Unique among these. Lives as long as the process. */
  const char* summary; /* one line */
  /* [control] */
  tutti_status (*open)(void* self, const tutti_space_config* config, tutti_space** space);
  /* [control] Pending operations end without a completion. The caller has returned all regions and remotes. */
  void (*close)(tutti_space* space);
  /* [control] Lets the other ranks access `memory`, which stays the caller's. Writes the opaque key by which they
   * import it; *bytes is the capacity on entry and the length on return, at most TUTTI_RMA_KEY_BYTES. */
  tutti_status (*export_region)(tutti_space* space, const tutti_memory* memory, tutti_rma_region** region, void* key,
                                uint64_t* bytes);
  /* [control] No rank may access the region afterwards. */
  tutti_status (*withdraw_region)(tutti_space* space, tutti_rma_region* region);
  /* [control] `key` is checked as untrusted input. */
  tutti_status (*import_region)(tutti_space* space, uint32_t peer, const void* key, uint64_t bytes,
                                tutti_remote** remote);
  tutti_status (*release_region)(tutti_space* space, tutti_remote* remote);
  /* [progress] Writes [from, from + bytes) to the remote at `offset`. TUTTI_OK: a completion follows; until then `from`
   * must not change. TUTTI_AGAIN: no room now. TUTTI_INVALID_ARGUMENT: not within the region. */
  tutti_status (*put)(tutti_remote* remote, uint64_t offset, const void* from, uint64_t bytes, uint64_t cookie);
  /* [progress] Reads into `to`, which is complete with the completion. */
  tutti_status (*get)(tutti_remote* remote, uint64_t offset, void* to, uint64_t bytes, uint64_t cookie);
  /* [progress] Adds to the region's counter (it begins at 0), after all earlier puts of this rank to the region. No
   * completion follows. TUTTI_AGAIN: no room now. */
  tutti_status (*signal)(tutti_remote* remote, uint64_t value);
  /* [progress] Reads the counter of this rank's region. Puts before the counted signals are visible. */
  tutti_status (*test_signal)(tutti_rma_region* region, uint64_t* value);
  /* [progress] Advances everything; writes at most `capacity` completions, *n is how many. */
  tutti_status (*progress)(tutti_space* space, tutti_rma_completion* completions, uint32_t capacity, uint32_t* n);
  /* [progress] Ends everything that is pending with TUTTI_ABORTED; later operations are refused with it. */
  tutti_status (*abort)(tutti_space* space);
} tutti_rma;

#ifdef __cplusplus
}
#endif

TUTTI_MANDATORY(tutti_space_config, communicator_id);
TUTTI_MANDATORY(tutti_rma, abort);
#endif
