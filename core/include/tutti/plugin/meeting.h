/* SPDX-License-Identifier: Apache-2.0
 *
 * meeting/1: how the ranks of a communicator find each other before any connection exists: by a launcher, a key-value
 * store, a cluster manager. A communicator uses it when its rendezvous is "plugin:NAME" or "plugin:NAME:PLACE".
 *
 * The core gathers a few short texts through it: addresses, and a random secret of rank 0 that protects all later
 * exchanges of the ranks. So the bytes of all_gather must be visible to the ranks only.
 *
 * Threads: [control] the thread that makes the communicator; [any] any thread at any time. Everything may block.
 */
#ifndef TUTTI_PLUGIN_MEETING_H
#define TUTTI_PLUGIN_MEETING_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_MEETING_ID "tutti.meeting/1"

/* One rank's part in one meeting. Opaque; belongs to the plugin. */
typedef struct tutti_room tutti_room;

/* Everything lives until open returns. */
typedef struct tutti_meeting_config {
  uint32_t struct_size;
  uint32_t rank;   /* as the application set it; used when nranks is not 0 */
  uint32_t nranks; /* 0: the plugin knows both */
  uint32_t reserved;
  const char* place;   /* PLACE, or "" */
  const char* name;    /* of the communicator, for messages */
  uint64_t timeout_ns; /* of open and of each all_gather */
} tutti_meeting_config;

typedef struct tutti_meeting {
  uint32_t struct_size;
  uint32_t reserved; /* 0 */
  void* self;
  const char* name;    /* NAME. Unique among meetings. Lives as long as the process. */
  const char* summary; /* one line */
  /* [control] Joins the meeting. *rank and *nranks are this rank's number and the number of ranks; if the config has
   * them, they are the config's. Errors: TUTTI_INVALID_ARGUMENT for an impossible place, TUTTI_NOT_FOUND where the
   * service that the plugin uses is not available, TUTTI_INVALID_USAGE where the service allows one meeting at a time,
   * TUTTI_TIMEOUT, TUTTI_MISMATCH. */
  tutti_status (*open)(void* self, const tutti_meeting_config* config, tutti_room** room, uint32_t* rank,
                       uint32_t* nranks);
  /* [control] Called by all ranks equally often and with equal `bytes`: all[r * bytes ...] = rank r's `mine`. Errors:
   * TUTTI_TIMEOUT, TUTTI_ABORTED after abort of any rank, TUTTI_PEER_FAILED. */
  tutti_status (*all_gather)(tutti_room* room, const void* mine, uint64_t bytes, void* all);
  /* [any] This rank cannot go on: pending and later all_gathers of all ranks end with TUTTI_ABORTED. If the service
   * cannot signal this, all_gathers after the first may end by their timeout. */
  void (*abort)(tutti_room* room);
  /* [control] Leaves. The room is not used any more; the other ranks may still be in their last all_gather. */
  void (*close)(tutti_room* room);
} tutti_meeting;

#ifdef __cplusplus
}
#endif

TUTTI_MANDATORY(tutti_meeting_config, timeout_ns);
TUTTI_MANDATORY(tutti_meeting, close);
#endif
