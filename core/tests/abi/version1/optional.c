/* SPDX-License-Identifier: Apache-2.0
 *
 * view/1, wait_fd/1 and rails/1 of the transport. */
#include <string.h>

#include "transport.h"

/* view/1 */

static const void* try_receive(tutti_link* handle, uint32_t lane, uint64_t* bytes) {
  link_state* l = (link_state*)handle;
  slot* m = l->failed ? NULL : next_message(&l->in->rings[lane]);
  if (!m) return NULL;
  *bytes = m->bytes;
  return m->data;
}
static void release(tutti_link* handle, uint32_t lane) {
  link_state* l = (link_state*)handle;
  slot* m = next_message(&l->in->rings[lane]);
  if (!m) return;
  l->owner->received += m->bytes;
  give_back(l->in, &l->in->rings[lane]);
}
static void* try_reserve(tutti_link* handle, uint32_t lane, uint64_t bytes) {
  link_state* l = (link_state*)handle;
  slot* s = l->failed || bytes > FRAGMENT ? NULL : free_slot(&l->out->rings[lane]);
  return s ? s->data : NULL;
}
static void commit(tutti_link* handle, uint32_t lane, uint64_t bytes) {
  link_state* l = (link_state*)handle;
  slot* s = l->failed ? NULL : free_slot(&l->out->rings[lane]);
  if (!s) return;
  atomic_thread_fence(memory_order_seq_cst);
  publish(l->out, &l->out->rings[lane], s, bytes, l->lanes[lane].mark);
  l->owner->sent += bytes;
}
static void set_mark(tutti_link* handle, uint32_t lane, uint32_t mark) {
  ((link_state*)handle)->lanes[lane].mark = mark;
}
static uint32_t get_mark(tutti_link* handle, uint32_t lane) {
  slot* m = next_message(&((link_state*)handle)->in->rings[lane]);
  return m ? m->mark : 0;
}
static const tutti_view view = {
    .struct_size = sizeof view,
    .try_receive = try_receive,
    .release = release,
    .try_reserve = try_reserve,
    .commit = commit,
    .set_mark = set_mark,
    .get_mark = get_mark,
};

/* wait_fd/1 */

static tutti_status get_fd(tutti_endpoint* handle, int32_t* fd) {
  *fd = ((endpoint*)handle)->wake->fd;
  return TUTTI_OK;
}
static tutti_status arm(tutti_endpoint* handle) {
  endpoint* e = (endpoint*)handle;
  atomic_store(&e->wake->armed, 1);
  if (e->n_events == 0 && atomic_load(&e->wake->news) == e->seen) return TUTTI_OK;
  atomic_store(&e->wake->armed, 0);
  clear(e->wake);
  return TUTTI_AGAIN;
}
static void disarm(tutti_endpoint* handle) {
  endpoint* e = (endpoint*)handle;
  atomic_store(&e->wake->armed, 0);
  clear(e->wake);
}
static const tutti_wait_fd wait_fd = {.struct_size = sizeof wait_fd, .get_fd = get_fd, .arm = arm, .disarm = disarm};

/* rails/1: the memory of the process is the one rail. */

static tutti_rail the_rail(void) {
  static const tutti_rail_address place = {"version1:0", "", "process", 1};
  const tutti_rail rail = {.struct_size = sizeof rail,
                           .chosen = 1,
                           .name = "memory",
                           .medium = "memory",
                           .state = "active",
                           .why = "it is the only one",
                           .bandwidth = 2000000000u,
                           .numa = -1,
                           .addresses = &place,
                           .n_addresses = 1};
  return rail;
}
static tutti_status of_host(void* self, const tutti_rail_sink* sink) {
  (void)self;
  const tutti_rail rail = the_rail();
  sink->rail(sink->self, &rail);
  return TUTTI_OK;
}
static tutti_status of_endpoint(tutti_endpoint* handle, const tutti_rail_sink* sink) {
  const endpoint* e = (const endpoint*)handle;
  tutti_rail rail = the_rail();
  rail.sent_bytes = e->sent;
  rail.received_bytes = e->received;
  sink->rail(sink->self, &rail);
  return TUTTI_OK;
}
static const tutti_rails rails = {.struct_size = sizeof rails, .of_host = of_host, .of_endpoint = of_endpoint};

const void* version1_optional(void* self, const char* id) {
  (void)self;
  if (strcmp(id, TUTTI_VIEW_ID) == 0) return &view;
  if (strcmp(id, TUTTI_WAIT_FD_ID) == 0) return &wait_fd;
  if (strcmp(id, TUTTI_RAILS_ID) == 0) return &rails;
  return NULL;
}
