/* SPDX-License-Identifier: Apache-2.0
 *
 * The flight record: the last operations of one rank of one communicator, in a small file that the rank maps and that
 * outlives it. tutti-info --hang reads it; so may other tools.
 *
 * The file is header | state | services | operations | transfers, each at the offset that the header states. The header
 * is written once, before the file gets its name, and has a checksum. The rank changes everything else by plain stores
 * without a lock, also during a read. So a reader must expect torn or false values, check each before use, and read
 * twice to learn whether something moves.
 *
 * The file has mode 0600 in a folder of mode 0700. It holds sizes, types, names and times, but no user data and no
 * secret. Numbers are in the byte order of the host that wrote them. Times in ns are of CLOCK_MONOTONIC of that host;
 * times in ticks are of the processor's counter, which `begin` and `look` relate to ns.
 */
#ifndef TUTTI_FLIGHT_RECORD_H
#define TUTTI_FLIGHT_RECORD_H
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_FLIGHT_MAGIC 0x474c464954545554u /* "TUTTIFLG" */
#define TUTTI_FLIGHT_VERSION 4u /* version 3 has operations that end before `tag` */
#define TUTTI_FLIGHT_SUFFIX ".flight" /* of the file's name */

enum {
  TUTTI_FLIGHT_OPERATIONS = 256, /* the last collectives: number k is at place k mod 256 */
  TUTTI_FLIGHT_TRANSFERS = 64,   /* the last sends and receives, likewise */
  TUTTI_FLIGHT_SERVICES = 64,    /* names of what served them */
  TUTTI_FLIGHT_WAITS = 16        /* lanes of the oldest operation that is under way */
};

/* The phases of a rank. Those before READY are the steps of making the communicator. */
enum {
  TUTTI_FLIGHT_MEETING = 1,    /* rendezvous: some ranks may not have arrived */
  TUTTI_FLIGHT_COMPARING = 2,  /* they compare versions and configuration */
  TUTTI_FLIGHT_OPENING = 3,    /* this rank opens its transports */
  TUTTI_FLIGHT_DESCRIBING = 4, /* they exchange addresses */
  TUTTI_FLIGHT_READY = 5,      /* operations */
  TUTTI_FLIGHT_ENDING = 6,     /* destroying: all ranks meet once more */
  TUTTI_FLIGHT_FAILED = 7      /* note says why; the last phase */
};

/* Values of `op` that are not operators' numbers. */
enum {
  TUTTI_FLIGHT_PREMUL_SUM = 0xfffd,
  TUTTI_FLIGHT_USER_OP = 0xfffe,        /* an operator of the application */
  TUTTI_FLIGHT_ORDERED_USER_OP = 0xffff /* one that does not commute */
};

#define TUTTI_FLIGHT_TRANSFER ((uint64_t)1 << 63) /* set in a number: that of a send or receive */
#define TUTTI_FLIGHT_ANY_TAG 1u                   /* of a receive: it takes every tag */

/* Written once. */
typedef struct tutti_flight_header {
  uint64_t magic;
  uint32_t version;
  uint32_t header_bytes;
  uint64_t file_bytes;
  uint32_t state_offset;
  uint32_t state_bytes;
  uint32_t services_offset; /* TUTTI_FLIGHT_SERVICES of service_bytes */
  uint32_t service_bytes;
  uint32_t operations_offset; /* TUTTI_FLIGHT_OPERATIONS of operation_bytes */
  uint32_t operation_bytes;
  uint32_t transfers_offset; /* TUTTI_FLIGHT_TRANSFERS of transfer_bytes */
  uint32_t transfer_bytes;
  uint64_t host;          /* where `pid` is valid: FNV-1a-64 of "BOOT/NAMESPACE", the kernel's boot id (where
                             a sandbox hides it, the host's name) and the inode of
                             /proc/self/ns/pid */
  uint64_t pid;
  uint64_t thread;        /* that made the communicator */
  uint64_t process_start; /* field 22 of /proc/PID/stat: tells a later process with the same number apart */
  uint64_t begin_ns;      /* the same moment, when the record began, on two clocks */
  uint64_t begin_ticks;
  uint64_t ticks_per_second; /* as known at that moment */
  uint64_t created;          /* seconds since 1970 */
  char host_name[64];        /* NUL-terminated, like all text here */
  char program[64];
  uint64_t checksum; /* FNV-1a-64 of the header before it */
} tutti_flight_header;

/* One lane of the oldest operation under way, as of the rank's last look around in a wait. */
typedef struct tutti_flight_wait {
  uint64_t operation; /* its number, plus one; 0: nothing is here */
  uint32_t lane;
  uint32_t step; /* of the lane's schedule */
  uint64_t slice;
  uint64_t slices;
  uint32_t kind; /* TUTTI_STEP_* */
  uint32_t peer; /* UINT32_MAX: none */
  uint64_t bytes; /* of the step's message */
  uint64_t done;
  char transport[16];
} tutti_flight_wait;

/* Changes while the communicator lives. */
typedef struct tutti_flight_state {
  uint32_t phase;
  uint32_t rank;   /* UINT32_MAX: not known yet */
  uint32_t nranks; /* 0: not known yet */
  uint32_t waits;  /* how many of wait[] hold */
  uint64_t communicator; /* random, equal on all ranks; 0: not agreed on yet */
  uint64_t meeting;      /* hash of where and as which job the ranks meet: equal on all ranks */
  uint64_t phase_ns;     /* when the phase began */
  uint64_t look_ns;      /* when the rank last looked around in a wait: the same moment on two clocks */
  uint64_t look_ticks;
  uint64_t moved_ns;     /* when the rank last saw its oldest operation move */
  uint64_t transfers;    /* sends and receives issued */
  uint64_t awaited;      /* the operation that a call waits for: the `number` of a collective, or that of a send or
                            receive with TUTTI_FLIGHT_TRANSFER. 0: none */
  uint64_t site_of;      /* the value of `awaited` to which `site` belongs */
  char name[64];  /* the communicator's */
  char place[128]; /* where the ranks meet, in words */
  char note[512];  /* FAILED: why */
  char site[128];  /* where the program makes the call that waits, once it has waited for a while: "train.py:14",
                      "step+0x4a", "program+0x12f0" (from the start of its file). "": not known */
  tutti_flight_wait wait[TUTTI_FLIGHT_WAITS];
} tutti_flight_state;

/* Names of the algorithm and transports of calls: `service` of an operation is the index of a row. */
typedef struct tutti_flight_service {
  char algorithm[32];
  char transports[32];
} tutti_flight_service;

/* A collective. */
typedef struct tutti_flight_operation {
  uint64_t number; /* in the order of issue, plus one; written last. 0: nothing is here */
  uint64_t count;
  uint64_t begin_ticks;
  uint64_t end_ticks; /* 0: not complete */
  uint8_t collective; /* TUTTI_BROADCAST ... */
  uint8_t dtype;
  uint16_t op; /* TUTTI_SUM ..., TUTTI_FLIGHT_PREMUL_SUM ... */
  uint32_t root;
  uint16_t service;
  uint8_t in_place;
  uint8_t order; /* of a reduction: TUTTI_ORDER_CANONICAL, TUTTI_ORDER_EXACT; else 0 */
  int32_t status; /* when complete */
  uint64_t plan;  /* hash of how it is carried out, equal on all ranks */
  uint64_t slices; /* in which it is carried out; 0: not known */
  uint64_t tag;    /* the application's (tutti_options.tag); 0: none */
  uint32_t algorithms; /* a hash of tutti_options.algorithms; 0: the communicator's */
  uint32_t reserved;
} tutti_flight_operation;

/* A send or receive. */
typedef struct tutti_flight_transfer {
  uint64_t number; /* as above */
  uint64_t bytes;
  uint64_t begin_ticks;
  uint64_t end_ticks;
  uint32_t sending;
  uint32_t peer; /* UINT32_MAX: a receive from any rank */
  uint32_t tag;
  int32_t status;
  uint32_t service;
  uint32_t flags; /* TUTTI_FLIGHT_ANY_TAG */
  uint64_t reserved;
} tutti_flight_transfer;

#ifdef __cplusplus
}
#endif
#endif
