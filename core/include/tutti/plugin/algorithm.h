/* SPDX-License-Identifier: Apache-2.0
 *
 * algorithm/1: a pure function from a query to a schedule. The same query gives the same schedule, on every rank and
 * in every process: no I/O, no clock, no state, no pointers to data. There is one exception: a plugin may read data
 * once, in its init, such as schedules from a file. The data do not change afterwards, and `digest` in the table
 * identifies them. Ranks with different digests refuse each other when a communicator is made.
 *
 * A schedule is what one rank does: lanes of steps over chunks.
 *
 * Buffers. IN, OUT and SCRATCH. IN and OUT are made of equal blocks:
 *
 *   collective       IN blocks          OUT blocks        in-place means (by location)
 *   broadcast        1, root only       1                 IN = OUT (root)
 *   reduce           1                  1, root only      IN = OUT (root)
 *   all_reduce       1                  1                 IN = OUT
 *   gather           1                  n, root only      IN = OUT's block `rank` (root)
 *   all_gather       1                  n                 IN = OUT's block `rank`
 *   scatter          n, root only       1                 OUT = IN's block `rank` (root)
 *   reduce_scatter   n                  1                 OUT = IN's block `rank`
 *   all_to_all       n                  n                 IN = OUT
 *   barrier          none               none
 *   scan             1                  1                 IN = OUT
 *   exclusive_scan   1                  1, not at rank 0  IN = OUT
 *
 * A buffer that a rank does not have ("root only", "not at rank 0") does not exist in its schedule. Out of place, IN is
 * never written. The result of a scan at rank r is the reduction of ranks 0 ... r, of exclusive_scan that of ranks 0
 * ... r-1, with the operands in the order of ranks. Each result is complete at its own rank only: no other rank has its
 * FINAL step.
 *
 * Chunks. Each block is cut at the schedule's cut points (rationals strictly between 0 and 1) into pieces; with k cuts
 * there are k+1 pieces. Chunk number = block * pieces + piece. A cut falls at floor(p*len/q) elements, rounded down to
 * a multiple of 64 elements when len >= 4096 * cuts. So chunks differ in size, and a schedule knows a size only as an
 * extent {block class, piece}. In the equal forms all blocks are of class 0. A scratch chunk declares the extent that
 * it holds. Source, destination and both ends of a message have equal extents, chunk by chunk.
 *
 * Unequal blocks. The collectives that end in _V have the blocks of their equal form, but each block has a size of its
 * own, and so its own class:
 *
 *   collective         class of IN's block b    class of OUT's block b    a class's size is known to
 *   all_gather_v       rank                     b                         all ranks
 *   reduce_scatter_v   b                        rank                      all ranks
 *   gather_v           rank                     b                         the rank of its number, the root
 *   scatter_v          b                        rank                      the rank of its number, the root
 *   all_to_all_v       rank * n + b             b * n + rank              its sender and its receiver
 *
 * A rank touches only chunks whose size it knows. It knows the sizes of its own blocks of IN and OUT. A scratch chunk
 * must have a size that it knows. all_to_all_v has no form in place.
 *
 * Lanes. Steps of a lane are in order; lanes run concurrently. A step may start when its dependency has completed and
 * no incomplete earlier step of its lane touches a conflicting chunk. Messages match in order per (sender, receiver,
 * lane): the k-th SEND of lane l to rank r meets the k-th receiving step of lane l of r from this rank. An executor
 * keeps at least two consecutive steps of a lane in flight, so a lane of SEND; RECV on every rank of a ring makes
 * progress. A schedule must not rely on more, nor on any buffering.
 *
 * Slices. A schedule that declares TUTTI_SCHEDULE_SLICED may be run in S slices: all lanes' steps for slice 0 of
 * every chunk, then for slice 1, and so on. A dependency joins equal slices. Slice s of a chunk of `len` elements is
 * its elements from floor(s*len/S) to floor((s+1)*len/S). A step over a run of chunks moves slice s of each chunk of
 * the run, in the order of the chunks. It stays one step, and a SEND or RECV of a run stays one message. Extents are
 * equal chunk by chunk, so both ends know all sizes. Runs can be pipelined like single chunks.
 *
 * Levels. A stream is one sequence, in which a wait holds up everything after it, so a rank's steps need an order in
 * the stream. Steps may carry a level, from 1 on: all steps of all ranks, or none. Levels must satisfy three rules:
 *   - a step has a higher level than each earlier conflicting step of its lane and than its dependency
 *   - both ends of a message have the same level
 *   - the levels of one sender's messages to one receiver on one lane never fall
 * Levels of messages are the same in place and out of place. The number of a message's round satisfies all of this. In
 * slices the level of slice s of a step counts as level + s * D, and the three rules hold over slices too. D, at least
 * 1, is TUTTI_SCHEDULE_SLICE_LEVELS(D) in the schedule's flags. With levels a rank orders its steps by itself. Without
 * them the core makes all ranks' schedules on every rank and computes levels, which does not scale.
 *
 * Rounding. Each REDUCE and RECV_REDUCE rounds once. REDUCE over k chunks is a left fold with one rounding.
 */
#ifndef TUTTI_PLUGIN_ALGORITHM_H
#define TUTTI_PLUGIN_ALGORITHM_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_ALGORITHM_ID "tutti.algorithm/1"

enum { TUTTI_BUFFER_IN = 1, TUTTI_BUFFER_OUT = 2, TUTTI_BUFFER_SCRATCH = 3 };

/* The whole instruction set. */
enum {
  TUTTI_STEP_SEND = 1,        /* src -> peer. Completes when src may be overwritten. */
  TUTTI_STEP_RECV = 2,        /* peer -> dst. Completes when dst is visible to later steps. */
  TUTTI_STEP_RECV_REDUCE = 3, /* dst = src op incoming (TUTTI_STEP_INCOMING_LEFT: incoming op src). src may be dst. */
  TUTTI_STEP_COPY = 4,        /* dst = src */
  TUTTI_STEP_REDUCE = 5,      /* dst = source 0 op source 1 op ... (a left fold). dst may be one of the sources. */
  TUTTI_STEP_SIGNAL = 6,      /* no bytes: to peer, or with TUTTI_STEP_WAIT from peer. Never dropped. */
  TUTTI_STEP_NOP = 7 /* nothing; may carry a dependency. SIGNAL and NOP touch no chunk: no lane order binds them */
};

/* Step flags. */
enum {
  TUTTI_STEP_LOAD = 1u << 0,  /* src, or those sources of a REDUCE that are in IN, are raw user input: set exactly
                                 where a reducing collective reads IN */
  TUTTI_STEP_FINAL = 1u << 1, /* what this step writes is a complete result: avg divides here, by the number of ranks
                                 that contribute to it */
  TUTTI_STEP_INCOMING_LEFT = 1u << 2, /* RECV_REDUCE: the incoming value is the left operand */
  TUTTI_STEP_WAIT = 1u << 3           /* SIGNAL: wait for the peer's signal instead of sending one */
};

#define TUTTI_NO_DEPENDENCY 0xffffffffu

/* `chunks` consecutive chunks of a buffer from chunk `first`. Frozen layout, 16 bytes. */
typedef struct tutti_span {
  uint32_t buffer; /* TUTTI_BUFFER_* */
  uint32_t first;
  uint32_t chunks;
  uint32_t reserved;
} tutti_span;

/* One step. Frozen layout, 80 bytes. Fields that the kind does not use are zero. */
typedef struct tutti_step {
  uint32_t kind;            /* TUTTI_STEP_SEND ... */
  uint32_t flags;           /* TUTTI_STEP_LOAD ... */
  uint32_t peer;            /* SEND, RECV, RECV_REDUCE, SIGNAL */
  uint32_t sources;         /* REDUCE: how many source spans (>= 2) were passed along with the step */
  uint32_t dependency_lane; /* TUTTI_NO_DEPENDENCY, or the lane ... */
  uint32_t dependency_step; /* ... and the number of the step in it that must have completed (same slice) */
  uint32_t level; /* see Levels; 0: unknown */
  uint32_t reserved0;
  tutti_span dst;
  tutti_span src; /* SEND, COPY, RECV_REDUCE's local operand */
  uint64_t reserved1[2];
} tutti_step;

/* A cut point p/q of each block, 0 < p < q. Frozen layout. */
typedef struct tutti_cut {
  uint32_t p;
  uint32_t q;
} tutti_cut;

/* The symbolic size of a chunk: piece `piece` of a block of class `block_class`. In the equal forms class is 0. */
typedef struct tutti_extent {
  uint32_t block_class; /* see Unequal blocks */
  uint32_t piece;
} tutti_extent;

/* Figures of the path from one rank to another. Frozen layout. */
typedef struct tutti_link_figures {
  uint64_t latency_ns;
  uint64_t bytes_per_second;
} tutti_link_figures;

/* The places of the ranks and the links between them, by which the core itself chooses. The same on every rank. */
typedef struct tutti_topology {
  uint32_t struct_size;
  uint32_t nranks;
  void* self;
  const uint32_t* host_of_rank;    /* nranks entries: dense numbers in order of first rank */
  const uint32_t* process_of_rank; /* the same for processes; ranks of one process are its threads */
  /* [any] The figures of the transport that the core uses from one rank to another. */
  tutti_status (*link)(void* self, uint32_t from, uint32_t to, tutti_link_figures* figures);
  /* nranks entries: dense numbers of the pieces of hardware that the ranks are bound to, in order of first rank;
   * UINT32_MAX: bound to none, or it is not known which one */
  const uint32_t* device_of_rank;
  const int32_t* numa_of_rank; /* nranks entries: NUMA node of the rank's device, else of its process; -1: not known */
} tutti_topology;

/* The arguments of a schedule. All but `rank` and TUTTI_QUERY_IN_PLACE are the same on every rank. Fields up to
 * host_of_rank are always present, later ones if struct_size includes them (TUTTI_HAS_FIELD). */
typedef struct tutti_query {
  uint32_t struct_size;
  uint32_t collective;
  uint32_t nranks;
  uint32_t rank;
  uint32_t root;                /* 0 for collectives without one */
  uint32_t lanes;               /* the most lanes that the schedule may use */
  uint64_t flags;               /* TUTTI_QUERY_* */
  const uint32_t* host_of_rank; /* nranks entries: a dense number of the host of each rank, in order of first rank */
  /* The text after the algorithm's name: "4" for TUTTI_ALGO="all_to_all:bruck:4". NULL: none. supports() refuses a
   * text that it does not understand and says what it expected. */
  const char* parameters;
  /* The size class of a block: sizes from 2^k to 2^(k+1)-1 bytes give 2^(k+1)-1. 0: no bytes, or unknown, as in a
   * proof; the schedule must then serve every size. Choices and plans are kept by size class. */
  uint64_t block_bytes;
  const tutti_topology* topology; /* NULL: unknown, as in a proof */
} tutti_query;

enum { TUTTI_QUERY_IN_PLACE = 1u << 0 };

/* Schedule flags. */
enum {
  TUTTI_SCHEDULE_SLICED = 1u << 0 /* may be run slice by slice */
};
/* How many levels slices are apart (see Levels), below 2^24; 0, unknown, where steps have no levels. */
#define TUTTI_SCHEDULE_SLICE_LEVELS(levels) ((uint64_t)(levels) << 8)
#define TUTTI_SCHEDULE_SLICE_LEVELS_OF(flags) ((uint32_t)((flags) >> 8 & 0xffffffu))

/* Receives a schedule. Belongs to the caller of schedule(), valid until that returns; one thread. Every function
 * copies its arguments and returns TUTTI_OK, or the error that the algorithm should return in turn.
 *
 * Lanes. The transport chooses the rail of a lane. A later entry of the sink may bind lanes to rails: an algorithm that
 * wants it tests for it with TUTTI_HAS. */
typedef struct tutti_schedule_sink {
  uint32_t struct_size;
  uint32_t reserved;
  void* self;
  /* At most once, before the first step: the cut points, strictly increasing. Without it blocks are one piece. */
  tutti_status (*set_cuts)(void* self, const tutti_cut* cuts, uint32_t n);
  /* At most once, before the first step: the scratch chunks' extents, in order. `copies` is how many slices' scratch
   * exist at once (slice s uses copy s mod copies); 0: each slice has its own, nothing is reused. */
  tutti_status (*set_scratch)(void* self, const tutti_extent* chunks, uint32_t n, uint32_t copies);
  /* At most once, before the first step: TUTTI_SCHEDULE_* flags. */
  tutti_status (*set_flags)(void* self, uint64_t flags);
  /* Appends a step to a lane. `sources`: step->sources spans for REDUCE, else NULL. */
  tutti_status (*add_step)(void* self, uint32_t lane, const tutti_step* step, const tutti_span* sources);
} tutti_schedule_sink;

typedef struct tutti_algorithm {
  uint32_t struct_size;
  uint32_t reserved; /* 0 */
  void* self;
  const char* name;     /* what users type: "ring". Unique among algorithms. Lives as long as the process. */
  const char* summary;  /* one line */
  uint64_t collectives; /* mask of 1 << TUTTI_ALL_REDUCE ... */
  /* [any] TUTTI_OK when schedule() answers this query; TUTTI_NOT_SUPPORTED after host->set_error with the reason.
   * The answer must not depend on query->rank or TUTTI_QUERY_IN_PLACE. */
  tutti_status (*supports)(void* self, const tutti_query* query);
  /* [any] Emits query->rank's schedule into the sink. */
  tutti_status (*schedule)(void* self, const tutti_query* query, const tutti_schedule_sink* sink);
  /* Optional: a digest of what the answers depend on besides the query, read in init; 0: nothing. */
  uint64_t digest;
} tutti_algorithm;

#ifdef __cplusplus
}
#endif

TUTTI_MANDATORY(tutti_topology, link);
TUTTI_MANDATORY(tutti_query, host_of_rank);
TUTTI_MANDATORY(tutti_schedule_sink, add_step);
TUTTI_MANDATORY(tutti_algorithm, schedule);
#endif
