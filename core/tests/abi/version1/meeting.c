/* SPDX-License-Identifier: Apache-2.0
 *
 * meeting/1 for ranks that are threads of one process: those that name the same place meet there, "N@NAME" numbers N
 * ranks as they come. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plugin.h"

typedef struct table {
  struct table* next;
  char* place;
  uint32_t nranks, came, left, brought, took;
  uint64_t round;
  int aborted;
  char* bytes;
  uint64_t size;
} table;

typedef struct {
  table* at;
  uint32_t rank;
  uint64_t timeout_ns;
} room;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* held wherever a table is touched */
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static table* tables;

static table* find_table(const char* place) {
  for (table* t = tables; t; t = t->next)
    if (t->came < t->nranks && strcmp(t->place, place) == 0) return t;
  table* made = calloc(1, sizeof *made);
  if (!made) return NULL;
  made->place = strdup(place);
  if (!made->place) return free(made), NULL;
  made->next = tables;
  return tables = made;
}

static void drop_table(table* dropped) {
  for (table** t = &tables; *t; t = &(*t)->next)
    if (*t == dropped) {
      *t = dropped->next;
      break;
    }
  free(dropped->place);
  free(dropped->bytes);
  free(dropped);
}

static tutti_status take_seat(const tutti_meeting_config* config, uint32_t numbered, room* seat) {
  table* t = find_table(config->place);
  if (!t) return version1_refuse(TUTTI_NO_RESOURCES, "there is no memory for a meeting");
  if (t->nranks == 0) t->nranks = config->nranks ? config->nranks : numbered;
  if (config->nranks && config->nranks != t->nranks)
    return version1_refuse(TUTTI_MISMATCH, "this rank says %u ranks, others say %u", config->nranks, t->nranks);
  seat->at = t;
  seat->rank = config->nranks ? config->rank : t->came;
  seat->timeout_ns = config->timeout_ns;
  ++t->came;
  return TUTTI_OK;
}

static tutti_status open(void* self, const tutti_meeting_config* config, tutti_room** made, uint32_t* rank,
                         uint32_t* nranks) {
  (void)self;
  tutti_status status = VERSION1_JUDGE(tutti_meeting_config, config, timeout_ns);
  if (status != TUTTI_OK) return status;
  char* end = NULL;
  const unsigned long numbered = strtoul(config->place, &end, 10);
  if (config->nranks == 0 && (end == config->place || *end != '@' || numbered == 0 || numbered > UINT32_MAX))
    return version1_refuse(TUTTI_INVALID_ARGUMENT, "the place \"%s\" numbers no ranks: expected N@NAME", config->place);
  room* seat = malloc(sizeof *seat);
  if (!seat) return version1_refuse(TUTTI_NO_RESOURCES, "there is no memory for a room");
  pthread_mutex_lock(&mutex);
  status = take_seat(config, (uint32_t)numbered, seat);
  if (status == TUTTI_OK) *nranks = seat->at->nranks;
  pthread_mutex_unlock(&mutex);
  if (status != TUTTI_OK) return free(seat), status;
  *rank = seat->rank;
  *made = (tutti_room*)seat;
  return TUTTI_OK;
}

static struct timespec after(uint64_t ns) {
  struct timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  const uint64_t sum = (uint64_t)time.tv_nsec + ns % 1000000000u;
  time.tv_sec += (time_t)(ns / 1000000000u + sum / 1000000000u);
  time.tv_nsec = (long)(sum % 1000000000u);
  return time;
}

/* Sleeps until `*value` is not `old`, or, with `until_zero`, until it is 0. */
static tutti_status await_change(room* seat, const struct timespec* end, const uint64_t* round, uint64_t old,
                                 const uint32_t* zero) {
  table* t = seat->at;
  while (!t->aborted && (round ? *round == old : *zero != 0))
    if (pthread_cond_timedwait(&moved, &mutex, end) == ETIMEDOUT)
      return version1_refuse(TUTTI_TIMEOUT, "%u of %u ranks have come", t->brought, t->nranks);
  return t->aborted ? version1_refuse(TUTTI_ABORTED, "a rank has given the meeting up") : TUTTI_OK;
}

/* Each round has two halves: all bring their bytes, then all take everybody's. */
static tutti_status gather(room* seat, const void* mine, uint64_t bytes, void* all) {
  table* t = seat->at;
  const struct timespec end = after(seat->timeout_ns);
  tutti_status status = await_change(seat, &end, NULL, 0, &t->took);
  if (status != TUTTI_OK) return status;
  if (t->brought == 0) {
    char* grown = realloc(t->bytes, bytes * t->nranks + 1);
    if (!grown) return version1_refuse(TUTTI_NO_RESOURCES, "there is no memory for %u texts", t->nranks);
    t->bytes = grown;
    t->size = bytes;
  }
  if (t->size != bytes) return version1_refuse(TUTTI_MISMATCH, "the ranks gather different numbers of bytes");
  if (bytes) memcpy(t->bytes + seat->rank * bytes, mine, bytes);
  const uint64_t round = t->round;
  if (++t->brought == t->nranks) ++t->round;
  pthread_cond_broadcast(&moved);
  status = await_change(seat, &end, &t->round, round, NULL);
  if (status != TUTTI_OK) return status;
  if (bytes) memcpy(all, t->bytes, bytes * t->nranks);
  if (++t->took == t->nranks) t->took = t->brought = 0;
  pthread_cond_broadcast(&moved);
  return TUTTI_OK;
}

static tutti_status all_gather(tutti_room* handle, const void* mine, uint64_t bytes, void* all) {
  pthread_mutex_lock(&mutex);
  const tutti_status status = gather((room*)handle, mine, bytes, all);
  pthread_mutex_unlock(&mutex);
  return status;
}

static void abort_meeting(tutti_room* handle) {
  pthread_mutex_lock(&mutex);
  ((room*)handle)->at->aborted = 1;
  pthread_cond_broadcast(&moved);
  pthread_mutex_unlock(&mutex);
}

static void close_room(tutti_room* handle) {
  room* seat = (room*)handle;
  pthread_mutex_lock(&mutex);
  if (++seat->at->left == seat->at->nranks) drop_table(seat->at);
  pthread_mutex_unlock(&mutex);
  free(seat);
}

const tutti_meeting version1_meeting = {
    .struct_size = sizeof(tutti_meeting),
    .name = "version1",
    .summary = "threads of one process that name the same place",
    .open = open,
    .all_gather = all_gather,
    .abort = abort_meeting,
    .close = close_room,
};
