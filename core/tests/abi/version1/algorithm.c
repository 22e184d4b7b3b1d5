/* SPDX-License-Identifier: Apache-2.0
 *
 * algorithm/1: the ranks stand in a line.
 *   broadcast   the root hands the data to each other rank
 *   all_reduce  a sum goes along the line, piece by piece, and its end hands the result to all
 *   barrier     rank 0 hears from all ranks, then tells all
 */
#include <string.h>

#include "plugin.h"

typedef struct {
  const tutti_schedule_sink* sink;
  tutti_status status;
} writer;

static void add(writer* w, uint32_t lane, tutti_step step) {
  if (step.dependency_lane == 0) step.dependency_lane = TUTTI_NO_DEPENDENCY;
  if (w->status == TUTTI_OK) w->status = w->sink->add_step(w->sink->self, lane, &step, NULL);
}

static tutti_span span(uint32_t buffer, uint32_t chunk) {
  const tutti_span made = {buffer, chunk, 1, 0};
  return made;
}
static tutti_step message(uint32_t kind, uint32_t peer, tutti_span of, uint32_t level) {
  tutti_step step = {.kind = kind, .peer = peer, .level = level};
  *(kind == TUTTI_STEP_SEND ? &step.src : &step.dst) = of;
  return step;
}
static tutti_step copy(uint32_t flags, uint32_t chunk, uint32_t level) {
  const tutti_step step = {.kind = TUTTI_STEP_COPY,
                           .flags = flags,
                           .level = level,
                           .dst = span(TUTTI_BUFFER_OUT, chunk),
                           .src = span(TUTTI_BUFFER_IN, chunk)};
  return step;
}

static void broadcast(const tutti_query* q, writer* w) {
  if (q->rank != q->root) {
    add(w, 0, message(TUTTI_STEP_RECV, q->root, span(TUTTI_BUFFER_OUT, 0), 1));
    return;
  }
  for (uint32_t peer = 0; peer < q->nranks; ++peer)
    if (peer != q->root) add(w, 0, message(TUTTI_STEP_SEND, peer, span(TUTTI_BUFFER_IN, 0), 1));
  if (!(q->flags & TUTTI_QUERY_IN_PLACE)) add(w, 0, copy(0, 0, 2));
}

/* One piece, on a lane of its own: levels are the places in the line, then the way back. */
static void reduce_piece(const tutti_query* q, writer* w, uint32_t lane, uint32_t piece) {
  const uint32_t last = q->nranks - 1, rank = q->rank;
  if (last == 0) {
    add(w, lane, copy(TUTTI_STEP_LOAD | TUTTI_STEP_FINAL, piece, 1));
    return;
  }
  if (rank == 0) {
    tutti_step first = message(TUTTI_STEP_SEND, 1, span(TUTTI_BUFFER_IN, piece), 1);
    first.flags = TUTTI_STEP_LOAD;
    add(w, lane, first);
  } else {
    tutti_step sum = message(TUTTI_STEP_RECV_REDUCE, rank - 1,
                             span(rank == last ? TUTTI_BUFFER_OUT : TUTTI_BUFFER_SCRATCH, piece), rank);
    sum.flags = TUTTI_STEP_LOAD | TUTTI_STEP_INCOMING_LEFT | (rank == last ? TUTTI_STEP_FINAL : 0u);
    sum.src = span(TUTTI_BUFFER_IN, piece);
    add(w, lane, sum);
    if (rank != last) add(w, lane, message(TUTTI_STEP_SEND, rank + 1, span(TUTTI_BUFFER_SCRATCH, piece), rank + 1));
  }
  if (rank != last) add(w, lane, message(TUTTI_STEP_RECV, last, span(TUTTI_BUFFER_OUT, piece), last + 1));
  for (uint32_t peer = 0; rank == last && peer < last; ++peer)
    add(w, lane, message(TUTTI_STEP_SEND, peer, span(TUTTI_BUFFER_OUT, piece), last + 1));
}

static void all_reduce(const tutti_query* q, writer* w) {
  static const tutti_cut half = {1, 2};
  static const tutti_extent pieces[] = {{0, 0}, {0, 1}};
  const int scratch = q->rank > 0 && q->rank + 1 < q->nranks;
  w->status = w->sink->set_cuts(w->sink->self, &half, 1);
  if (w->status == TUTTI_OK && scratch) w->status = w->sink->set_scratch(w->sink->self, pieces, 2, 2);
  if (w->status == TUTTI_OK)
    w->status = w->sink->set_flags(w->sink->self, TUTTI_SCHEDULE_SLICED | TUTTI_SCHEDULE_SLICE_LEVELS(q->nranks + 1));
  for (uint32_t piece = 0; piece < 2; ++piece) reduce_piece(q, w, q->lanes > 1 ? piece : 0, piece);
}

static tutti_step signal(uint32_t peer, uint32_t flags, uint32_t level) {
  const tutti_step step = {.kind = TUTTI_STEP_SIGNAL, .flags = flags, .peer = peer, .level = level};
  return step;
}
static void barrier(const tutti_query* q, writer* w) {
  for (uint32_t level = 1; level <= 2; ++level)
    for (uint32_t peer = 1; peer < q->nranks; ++peer)
      if (q->rank == 0)
        add(w, 0, signal(peer, level == 1 ? TUTTI_STEP_WAIT : 0u, level));
      else if (q->rank == peer)
        add(w, 0, signal(0, level == 1 ? 0u : TUTTI_STEP_WAIT, level));
}

static tutti_status supports(void* self, const tutti_query* q) {
  (void)self;
  const tutti_status status = VERSION1_JUDGE(tutti_query, q, host_of_rank);
  if (status != TUTTI_OK) return status;
  if (!(version1_algorithm.collectives >> q->collective & 1))
    return version1_refuse(TUTTI_NOT_SUPPORTED, "collective %u is not served", q->collective);
  if (q->flags & 0xffffffffu & ~(uint64_t)TUTTI_QUERY_IN_PLACE)
    return version1_refuse(TUTTI_NOT_SUPPORTED, "the query asks for something newer than version 1");
  if (TUTTI_HAS(tutti_query, q, parameters) && *q->parameters)
    return version1_refuse(TUTTI_NOT_SUPPORTED, "takes no parameters, but got \"%s\"", q->parameters);
  return TUTTI_OK;
}

static tutti_status schedule(void* self, const tutti_query* q, const tutti_schedule_sink* sink) {
  writer w = {sink, supports(self, q)};
  if (w.status != TUTTI_OK) return w.status;
  if (q->collective == TUTTI_BROADCAST) broadcast(q, &w);
  if (q->collective == TUTTI_ALL_REDUCE) all_reduce(q, &w);
  if (q->collective == TUTTI_BARRIER) barrier(q, &w);
  return w.status;
}

const tutti_algorithm version1_algorithm = {
    .struct_size = sizeof(tutti_algorithm),
    .name = "version1",
    .summary = "a line of ranks",
    .collectives = 1u << TUTTI_BROADCAST | 1u << TUTTI_ALL_REDUCE | 1u << TUTTI_BARRIER,
    .supports = supports,
    .schedule = schedule,
    .digest = 1,
};
