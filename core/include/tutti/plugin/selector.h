/* SPDX-License-Identifier: Apache-2.0
 *
 * selector/1: chooses the candidate that serves a call: a tuner, or a table of measurements. TUTTI_SELECTOR names the
 * selector; all ranks name the same one.
 *
 * The choice is a pure function: every rank asks with equal data and must get the same answer, or the call hangs. It
 * uses no clock, no random numbers and no data of this rank alone. Ranks may ask in different orders. One answer serves
 * all counts whose bytes have the same highest bit: `count` is the smallest of them. Where a collective/1 may serve the
 * collective, the core asks for each count.
 *
 * Threads: [any] any thread at any time.
 */
#ifndef TUTTI_PLUGIN_SELECTOR_H
#define TUTTI_PLUGIN_SELECTOR_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_SELECTOR_ID "tutti.selector/1"
/* The draft's stamp: a hash of the layouts below. The core refuses a plugin that was compiled with another. */
#define TUTTI_SELECTOR_STAMP 0x79794dfcu

enum { TUTTI_CANDIDATE_NATIVE = 1u << 0 /* it is a collective/1, not an algorithm */ };

/* Frozen layout, 64 bytes. */
typedef struct tutti_candidate {
  const char* name;
  const char* refused;   /* why it cannot serve the call; NULL: it can */
  uint64_t predicted_ns; /* the time of the call by the core's model */
  uint64_t slices;       /* of each lane; 1: no pipelining */
  uint64_t flags;        /* TUTTI_CANDIDATE_* */
  uint64_t reserved[3];
} tutti_candidate;

/* A call and its candidates, the core's own choice first. Everything lives until choose returns. */
typedef struct tutti_selection {
  uint32_t struct_size;
  uint32_t collective;
  uint32_t nranks;
  uint32_t root;  /* 0 for collectives without one */
  uint64_t count; /* elements of a block */
  uint64_t element_bytes;
  const uint32_t* host_of_rank; /* nranks entries, as in tutti_query */
  const tutti_candidate* candidates;
  uint64_t n;
} tutti_selection;

typedef struct tutti_selector {
  uint32_t struct_size;
  uint32_t stamp; /* TUTTI_SELECTOR_STAMP */
  void* self;
  const char* name;    /* what users type. Unique among selectors. Lives as long as the process. */
  const char* summary; /* one line */
  /* [any] *index is the number of a candidate that is not refused. An error ends the call with its text. */
  tutti_status (*choose)(void* self, const tutti_selection* selection, uint64_t* index);
} tutti_selector;

#ifdef __cplusplus
}
#endif

TUTTI_MANDATORY(tutti_selection, n);
TUTTI_MANDATORY(tutti_selector, choose);
#endif
