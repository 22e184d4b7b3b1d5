/* SPDX-License-Identifier: Apache-2.0
 *
 * Boxes of messages, and what wakes those who wait for them. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "transport.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of `told` */
static struct told {
  struct told* next;
  box* at;
}* told;

static uint64_t random_number(void) {
  uint64_t number = 0;
  while (number == 0)
    if (getrandom(&number, sizeof number, 0) != sizeof number) number = 0;
  return number;
}
uint64_t this_process(void) {
  static uint64_t drawn;
  pthread_mutex_lock(&mutex);
  if (drawn == 0) drawn = random_number();
  const uint64_t number = drawn ^ (uint64_t)getpid();
  pthread_mutex_unlock(&mutex);
  return number;
}

void wake(waker* w) {
  if (!w) return;
  atomic_fetch_add(&w->news, 1);
  const uint64_t one = 1;
  if (atomic_exchange(&w->armed, 0) && write(w->fd, &one, sizeof one) < 0 && errno != EAGAIN) abort();
}
void clear(waker* w) {
  uint64_t count;
  if (read(w->fd, &count, sizeof count) < 0 && errno != EAGAIN) abort();
}
waker* make_waker(void) {
  waker* w = calloc(1, sizeof *w);
  if (!w) return NULL;
  w->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (w->fd < 0) return free(w), NULL;
  atomic_init(&w->holders, 1);
  return w;
}
waker* hold_waker(waker* w) {
  atomic_fetch_add(&w->holders, 1);
  return w;
}
void drop_waker(waker* w) {
  if (!w || atomic_fetch_sub(&w->holders, 1) != 1) return;
  close(w->fd);
  free(w);
}

box* make_box(uint32_t lanes, waker* reader) {
  box* b = NULL;
  const size_t bytes = sizeof *b + (lanes + 1u) * sizeof(ring);
  if (posix_memalign((void**)&b, 64, bytes) != 0) return NULL;
  memset(b, 0, sizeof *b);
  for (uint32_t l = 0; l <= lanes; ++l) atomic_init(&b->rings[l].written, 0), atomic_init(&b->rings[l].taken, 0);
  atomic_init(&b->holders, 1);
  atomic_init(&b->reader, hold_waker(reader));
  b->token = random_number();
  return b;
}
void drop_box(box* b) {
  if (!b || atomic_fetch_sub(&b->holders, 1) != 1) return;
  drop_waker(atomic_load(&b->reader));
  drop_waker(atomic_load(&b->writer));
  free(b);
}

int tell_box(box* b) {
  struct told* entry = malloc(sizeof *entry);
  if (!entry) return 0;
  atomic_fetch_add(&b->holders, 1);
  pthread_mutex_lock(&mutex);
  *entry = (struct told){told, b};
  told = entry;
  pthread_mutex_unlock(&mutex);
  return 1;
}
box* take_told(uint64_t token) {
  box* found = NULL;
  pthread_mutex_lock(&mutex);
  for (struct told** t = &told; *t; t = &(*t)->next)
    if ((*t)->at->token == token) {
      struct told* const entry = *t;
      found = entry->at;
      *t = entry->next;
      free(entry);
      break;
    }
  pthread_mutex_unlock(&mutex);
  return found;
}

slot* free_slot(ring* r) {
  const uint64_t written = atomic_load(&r->written);
  return written - atomic_load(&r->taken) < DEPTH ? &r->slots[written % DEPTH] : NULL;
}
void publish(box* to, ring* r, slot* s, uint64_t bytes, uint32_t mark) {
  s->bytes = bytes;
  s->mark = mark;
  atomic_fetch_add(&r->written, 1);
  wake(atomic_load(&to->reader));
}
slot* next_message(ring* r) {
  const uint64_t taken = atomic_load(&r->taken);
  return atomic_load(&r->written) != taken ? &r->slots[taken % DEPTH] : NULL;
}
void give_back(box* from, ring* r) {
  atomic_fetch_add(&r->taken, 1);
  wake(atomic_load(&from->writer));
}
