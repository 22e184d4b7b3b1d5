/* SPDX-License-Identifier: Apache-2.0
 *
 * The trace of one rank of one communicator. Tracers get its records (tutti/plugin/tracer.h); the tracer "file" writes
 * them with TUTTI_TRACE=FOLDER, and tutti-trace reads them; so may other tools.
 *
 * A file is a header and then records of header.record_bytes each, in the order in which they were written. Each
 * record begins with its kind. A reader skips kinds that it does not know, and ignores an incomplete record at the end
 * of a file. Numbers are in the byte order of the host that wrote them. Times in ticks are of the processor's counter;
 * CLOCK records relate them to CLOCK_MONOTONIC of the host. The file holds sizes, types, names and times, but no user
 * data and no secret.
 */
#ifndef TUTTI_TRACE_H
#define TUTTI_TRACE_H
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_TRACE_MAGIC 0x4352544954545554u /* "TUTTITRC" */
#define TUTTI_TRACE_VERSION 2u
#define TUTTI_TRACE_SUFFIX ".tutti-trace" /* of the file's name */

/* The kinds of records. */
enum {
  TUTTI_TRACE_SERVICE = 1,    /* tutti_trace_service */
  TUTTI_TRACE_CALL = 2,       /* tutti_trace_call */
  TUTTI_TRACE_STEP = 3,       /* tutti_trace_step: carried out */
  TUTTI_TRACE_WAIT = 4,       /* tutti_trace_step: nothing moved, and this step was the one waited for */
  TUTTI_TRACE_TRANSFER = 5,   /* tutti_trace_transfer */
  TUTTI_TRACE_CLOCK = 6,      /* tutti_trace_clock */
  TUTTI_TRACE_PEER_CLOCK = 7, /* tutti_trace_peer_clock */
  TUTTI_TRACE_LINK = 8,       /* tutti_trace_link: at the end of the communicator */
  TUTTI_TRACE_LOST = 9,       /* tutti_trace_lost */
  TUTTI_TRACE_END = 10,       /* tutti_trace_lost: the communicator was destroyed; the last record */
  TUTTI_TRACE_TAG = 11        /* tutti_trace_tag: before the TUTTI_TRACE_CALL of a call that has one */
};

/* Bits of tutti_trace_step.flags. */
enum {
  TUTTI_TRACE_SENDING = 1,   /* to the peer; else from it */
  TUTTI_TRACE_FORWARDED = 2, /* a send that forwards what another step receives: its begin says nothing of the link */
  TUTTI_TRACE_TRANSFERS = 4  /* no step of a collective: a send or receive */
};

typedef struct tutti_trace_header {
  uint64_t magic;
  uint32_t version;
  uint32_t header_bytes;
  uint32_t record_bytes;
  uint32_t rank;
  uint32_t nranks;
  uint32_t pid;
  uint64_t communicator;    /* random, equal on all ranks */
  uint64_t clock;           /* hash of the host's boot and time namespace: equal where CLOCK_MONOTONIC is the same */
  uint64_t created_ns;      /* CLOCK_REALTIME */
  uint64_t least_step_call; /* steps are recorded for calls of at least this many bytes */
  char name[64];            /* the communicator's; NUL-terminated, like all text here unless it fills its field */
  char host_name[64];
  char program[56];
  uint64_t checksum; /* FNV-1a-64 of the header before it */
} tutti_trace_header;

/* The algorithm and transports of calls: `service` of a call is the number of such a record. */
typedef struct tutti_trace_service {
  uint32_t kind;
  uint32_t service;
  char algorithm[28];
  char transports[28];
} tutti_trace_service;

/* A collective, written when it is complete. */
typedef struct tutti_trace_call {
  uint32_t kind;
  int32_t status;
  uint64_t sequence; /* in the order of issue, equal on all ranks */
  uint64_t begin_ticks;
  uint64_t end_ticks;
  uint64_t count;
  uint64_t plan;      /* hash of how it is carried out, equal on all ranks */
  uint8_t collective; /* TUTTI_BROADCAST ... */
  uint8_t dtype;
  uint16_t op; /* as in tutti_flight_operation */
  uint32_t root;
  uint16_t service;
  uint16_t in_place;
  uint32_t slices; /* 0: not known */
} tutti_trace_call;

/* The application's tag of a collective (tutti_options.tag), which is not 0. */
typedef struct tutti_trace_tag {
  uint32_t kind;
  uint32_t reserved0;
  uint64_t sequence; /* of its call */
  uint64_t tag;
  uint64_t reserved[5];
} tutti_trace_tag;

/* A step of one slice, or a wait. */
typedef struct tutti_trace_step {
  uint32_t kind;
  uint32_t peer;     /* UINT32_MAX: none */
  uint64_t sequence; /* of its call; of a send or receive its number */
  uint64_t begin_ticks;
  uint64_t end_ticks;
  uint64_t bytes;
  uint32_t lane;
  uint32_t step; /* of the lane's schedule */
  uint32_t slice;
  uint16_t step_kind; /* TUTTI_STEP_* */
  uint16_t flags;     /* TUTTI_TRACE_SENDING ... */
  char transport[8];
} tutti_trace_step;

/* A send or receive, written when it is complete. */
typedef struct tutti_trace_transfer {
  uint32_t kind;
  uint32_t peer;
  uint64_t number; /* in the order of issue at this rank */
  uint64_t begin_ticks;
  uint64_t end_ticks;
  uint64_t bytes;
  uint32_t sending;
  uint32_t tag;
  int32_t status;
  uint32_t service;
  uint64_t reserved;
} tutti_trace_transfer;

/* The same moment on two clocks. */
typedef struct tutti_trace_clock {
  uint32_t kind;
  uint32_t reserved0;
  uint64_t ns;
  uint64_t ticks;
  uint64_t reserved[5];
} tutti_trace_clock;

/* One round in which two ranks exchanged time stamps. Each stamp was made before the other rank received it. In ns of
 * CLOCK_MONOTONIC. */
typedef struct tutti_trace_peer_clock {
  uint32_t kind;
  uint32_t peer;
  uint64_t clock;        /* the peer's tutti_trace_header.clock */
  uint64_t sent_ns;      /* this rank's stamp, its own clock */
  uint64_t peer_sent_ns; /* the peer's stamp, the peer's clock */
  uint64_t received_ns;  /* when this rank had it, its own clock */
  uint64_t round;
  uint64_t reserved[2];
} tutti_trace_peer_clock;

typedef struct tutti_trace_link {
  uint32_t kind;
  uint32_t peer;
  uint64_t sent_bytes;
  uint64_t received_bytes;
  char transport[40];
} tutti_trace_link;

/* Records that found no room, since the beginning. */
typedef struct tutti_trace_lost {
  uint32_t kind;
  uint32_t reserved0;
  uint64_t lost;
  uint64_t reserved[6];
} tutti_trace_lost;

#ifdef __cplusplus
}
#endif
#endif
