/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of the transport: boxes of messages (box.c), endpoints and links (transport.c), optional interfaces
 * (optional.c).
 *
 * Ranks are threads of one process. A rank owns one box for each peer: a ring of DEPTH messages for each lane, and one
 * for control messages. The peer writes into it. Each end tells the token of its box in a pair message, and the other
 * finds the box by it. A ring has one writer and one reader, so it needs no lock. Boxes and wakers are counted: the
 * last that holds one frees it. */
#ifndef VERSION1_TRANSPORT_H
#define VERSION1_TRANSPORT_H

#include <stdatomic.h>

#include "plugin.h"

enum { DEPTH = 4, FRAGMENT = 16384, CONTROL = 256, INLINE = 64, TEXTS = 16 };

/* Wakes the thread that sleeps at an endpoint. */
typedef struct {
  atomic_uint holders, news, armed;
  int fd;
} waker;

typedef struct {
  _Alignas(64) unsigned char data[FRAGMENT];
  uint64_t bytes;
  uint32_t mark;
} slot;

typedef struct {
  _Alignas(64) atomic_uint_fast64_t written;
  _Alignas(64) atomic_uint_fast64_t taken;
  slot slots[DEPTH];
} ring;

typedef struct {
  atomic_uint holders, ended;
  _Atomic(waker*) reader;
  _Atomic(waker*) writer;
  uint64_t token;
  ring rings[];
} box;

typedef struct endpoint endpoint;

typedef struct {
  tutti_transfer waiting[DEPTH]; /* RECVs, the oldest at `first` */
  uint32_t first, n;
  uint32_t mark; /* of set_mark */
} lane_state;

typedef struct {
  endpoint* owner;
  uint32_t peer;
  box *in, *out;       /* out: once the peer's hello has come */
  uint32_t said;       /* this rank's hello is sent */
  tutti_status failed; /* not TUTTI_OK: nothing is taken any more */
  uint32_t untold;     /* the record of a loss has not been written yet */
  const char* why;
  lane_state* lanes;
} link_state;

struct endpoint {
  tutti_endpoint_config config;
  tutti_pair_messages pair;
  waker* wake;
  unsigned seen; /* wake->news at the last progress */
  tutti_completion* events;
  uint64_t n_events, room_for_events, promised; /* promised: RECVs that wait, each an event one day */
  unsigned char texts[TEXTS][CONTROL];
  char reasons[TEXTS][128];
  uint64_t sent, received;
  link_state links[];
};

/* box.c */
uint64_t this_process(void); /* a number that no other process has, a forked child neither */
waker* make_waker(void);     /* NULL: errno tells why */
waker* hold_waker(waker* w);
void drop_waker(waker* w); /* NULL: nothing */
void wake(waker* w);       /* NULL: nothing */
void clear(waker* w);
box* make_box(uint32_t lanes, waker* reader); /* NULL: no memory */
void drop_box(box* b);                        /* NULL: nothing */
int tell_box(box* b);                         /* 0: no memory */
box* take_told(uint64_t token); /* the box that was told, which then belongs to the caller; NULL: it is withdrawn */
slot* free_slot(ring* r);       /* NULL: no room now */
slot* next_message(ring* r);    /* NULL: none yet */
void publish(box* to, ring* r, slot* s, uint64_t bytes, uint32_t mark);
void give_back(box* from, ring* r);

/* optional.c: view/1, wait_fd/1 or rails/1, or NULL */
const void* version1_optional(void* self, const char* id);

#endif
