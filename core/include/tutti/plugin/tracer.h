/* SPDX-License-Identifier: Apache-2.0
 *
 * tracer/1: where a rank's trace goes: a file, another tool's format, a service. A communicator uses it when
 * TUTTI_TRACE is set: to a folder, which is the tracer "file" (plugins/trace), or to "plugin:NAME:PLACE".
 *
 * The core makes the records (tutti/trace.h has their layout) and hands them over in batches, in the order in which
 * they were made, outside of calls. A tracer never slows a call down: records that it has no room for are dropped and
 * counted.
 *
 * Threads: [any] any thread at any time; [control] the thread that makes the communicator; [tracer] a thread of the
 * core that blocks all signals, one at a time for each tracing. Everything may block.
 */
#ifndef TUTTI_PLUGIN_TRACER_H
#define TUTTI_PLUGIN_TRACER_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_TRACER_ID "tutti.tracer/1"
/* The draft's stamp: a hash of the layouts below. The core refuses a plugin that was compiled with another. */
#define TUTTI_TRACER_STAMP 0x743a04dau

/* The trace of one rank of one communicator. Opaque; belongs to the plugin. */
typedef struct tutti_tracing tutti_tracing;

/* Everything lives until open returns. */
typedef struct tutti_tracer_config {
  uint32_t struct_size;
  uint32_t rank;
  uint32_t nranks;
  uint32_t record_bytes;    /* of each record */
  uint64_t communicator;    /* random, equal on all ranks */
  uint64_t clock;           /* equal on hosts and in namespaces whose CLOCK_MONOTONIC is the same */
  uint64_t least_step_call; /* steps are recorded for calls of at least this many bytes */
  const char* place;        /* PLACE */
  const char* name;         /* of the communicator */
} tutti_tracer_config;

typedef struct tutti_tracer {
  uint32_t struct_size;
  uint32_t stamp; /* TUTTI_TRACER_STAMP */
  void* self;
  const char* name;    /* NAME. Unique among tracers. Lives as long as the process. */
  const char* summary; /* one line */
  /* [any] Can traces go to this place? Asked before the ranks meet. TUTTI_INVALID_ARGUMENT with a reason (set_error):
   * no. */
  tutti_status (*check)(void* self, const char* place);
  /* [control] Begins a trace. Errors as of check; an error fails the creation of the communicator. */
  tutti_status (*open)(void* self, const tutti_tracer_config* config, tutti_tracing** tracing);
  /* [tracer] n records, which are valid until it returns. An error drops these n records; the core counts them, and
   * logs the last error's text when the trace is closed. */
  tutti_status (*write)(tutti_tracing* tracing, const void* records, uint64_t n);
  /* [tracer] The end, with the last n records, at most 4: a tracer keeps room for them. No other call follows. */
  void (*close)(tutti_tracing* tracing, const void* records, uint64_t n);
} tutti_tracer;

#ifdef __cplusplus
}
#endif

TUTTI_MANDATORY(tutti_tracer_config, name);
TUTTI_MANDATORY(tutti_tracer, close);
#endif
