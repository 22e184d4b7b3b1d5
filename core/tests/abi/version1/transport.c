/* SPDX-License-Identifier: Apache-2.0
 *
 * transport/1: endpoints and links. */
#include "transport.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  uint64_t process, token;
} hello;

/* False: no room now. */
static int put(link_state* l, uint32_t lane, uint32_t mark, const void* data, uint64_t bytes) {
  ring* r = &l->out->rings[lane];
  slot* s = free_slot(r);
  if (!s) return 0;
  if (bytes) memcpy(s->data, data, bytes);
  publish(l->out, r, s, bytes, mark);
  return 1;
}

/* Events */

/* Room for one more event, besides those that are promised. */
static int has_room(endpoint* e) {
  if (e->n_events + e->promised < e->room_for_events) return 1;
  const uint64_t more = e->room_for_events * 2 + 16;
  tutti_completion* grown = realloc(e->events, more * sizeof *grown);
  if (!grown) return 0;
  e->events = grown;
  e->room_for_events = more;
  return 1;
}
static tutti_completion transfer_ended(const link_state* l, uint64_t cookie, tutti_status status, uint64_t bytes,
                                       uint32_t mark) {
  const tutti_completion record = {TUTTI_COMPLETION_TRANSFER, status, l->peer, mark, cookie, bytes, NULL, 0};
  return record;
}

/* The peer finds its boxes ended. */
static void leave(link_state* l) {
  drop_box(take_told(l->in->token));
  atomic_store(&l->in->ended, 1);
  wake(atomic_load(&l->in->writer));
  if (!l->out) return;
  atomic_store(&l->out->ended, 1);
  wake(atomic_load(&l->out->reader));
}

/* Every RECV that waits ends with `status`. Nothing is taken any more. */
static void end(link_state* l, tutti_status status, const char* why) {
  endpoint* e = l->owner;
  for (uint32_t lane = 0; lane < e->config.lanes; ++lane)
    for (lane_state* s = &l->lanes[lane]; s->n > 0; --s->n, --e->promised) {
      e->events[e->n_events++] = transfer_ended(l, s->waiting[s->first].cookie, status, s->waiting[s->first].bytes, 0);
      s->first = (s->first + 1) % DEPTH;
    }
  l->failed = status;
  l->why = why;
  leave(l);
}

/* Matches messages with RECVs while `*n` < `capacity`. */
static void match(link_state* l, tutti_completion* out, uint32_t capacity, uint32_t* n) {
  endpoint* e = l->owner;
  for (uint32_t lane = 0; lane < e->config.lanes; ++lane) {
    lane_state* s = &l->lanes[lane];
    slot* m = NULL;
    while (s->n > 0 && *n < capacity && (m = next_message(&l->in->rings[lane]))) {
      const tutti_transfer t = s->waiting[s->first];
      s->first = (s->first + 1) % DEPTH;
      --s->n, --e->promised;
      const int fits = t.bytes == m->bytes && t.mark == m->mark;
      if (fits && t.bytes) memcpy(t.data, m->data, t.bytes);
      e->received += m->bytes;
      out[(*n)++] = transfer_ended(l, t.cookie, fits ? TUTTI_OK : TUTTI_MISMATCH, m->bytes, m->mark);
      give_back(l->in, &l->in->rings[lane]);
    }
  }
}

static int waits_for_peer(const link_state* l) {
  for (uint32_t lane = 0; lane < l->owner->config.lanes; ++lane)
    if (l->lanes[lane].n > 0 || (l->out && next_message(&l->out->rings[lane]))) return 1;
  return 0;
}

/* The records of one link. `*texts` counts the texts that this progress has used. */
static void advance(link_state* l, tutti_completion* out, uint32_t capacity, uint32_t* n, uint32_t* texts) {
  endpoint* e = l->owner;
  if (l->failed == TUTTI_OK) {
    const unsigned ended = atomic_load(&l->in->ended) || (l->out && atomic_load(&l->out->ended));
    match(l, out, capacity, n);
    ring* control = &l->in->rings[e->config.lanes];
    for (slot* m; *n < capacity && *texts < TEXTS && (m = next_message(control)); give_back(l->in, control)) {
      memcpy(e->texts[*texts], m->data, m->bytes);
      const tutti_completion record = {TUTTI_COMPLETION_CONTROL, TUTTI_OK, l->peer, 0, 0, m->bytes,
                                       e->texts[(*texts)++],     0};
      out[(*n)++] = record;
      e->received += m->bytes;
    }
    if (ended && *n < capacity && waits_for_peer(l)) {
      end(l, TUTTI_PEER_FAILED, "it has closed its endpoint or given this rank up");
      l->untold = 1;
    }
  }
  if (l->untold && *n < capacity && *texts < TEXTS) {
    l->untold = 0;
    snprintf(e->reasons[*texts], sizeof e->reasons[0], "version1: rank %u: %s", l->peer, l->why);
    const tutti_completion record = {
        TUTTI_COMPLETION_PEER_FAILED, TUTTI_PEER_FAILED, l->peer, 0, 0, 0, e->reasons[(*texts)++], 0};
    out[(*n)++] = record;
  }
}

/* Endpoints */

static tutti_status open_domain(void* self, const tutti_domain_config* config, tutti_domain** domain) {
  (void)self;
  const tutti_status status = VERSION1_JUDGE(tutti_domain_config, config, device_pci);
  if (status != TUTTI_OK) return status;
  char* made = malloc(1);
  *domain = (tutti_domain*)made;
  return made ? TUTTI_OK : version1_refuse(TUTTI_NO_RESOURCES, "there is no memory for a domain");
}
static void close_domain(tutti_domain* domain) { free(domain); }

static tutti_status query(tutti_domain* domain, tutti_transport_caps* caps) {
  (void)domain;
  if (caps->struct_size < TUTTI_SIZE_UP_TO(tutti_transport_caps, max_outstanding))
    return version1_refuse(TUTTI_INVALID_ARGUMENT, "tutti_transport_caps has room for %u bytes", caps->struct_size);
  tutti_transport_caps known = {
      .reach = TUTTI_REACH_PROCESS,
      .memory_kinds = 1u << TUTTI_MEMORY_HOST,
      .inline_bytes = INLINE,
      .fragment_bytes = FRAGMENT,
      .receive_depth = DEPTH,
      .latency_ns = 1000,
      .bandwidth = 2000000000u,
      .flags = TUTTI_TRANSPORT_MARKS,
      .control_bytes = CONTROL,
  };
  known.struct_size = caps->struct_size < sizeof known ? caps->struct_size : (uint32_t)sizeof known;
  memcpy(caps, &known, known.struct_size);
  return TUTTI_OK;
}

static void close_endpoint(tutti_endpoint* handle) {
  endpoint* e = (endpoint*)handle;
  for (uint32_t peer = 0; peer < e->config.nranks; ++peer) {
    link_state* l = &e->links[peer];
    if (l->in) leave(l);
    drop_box(l->in);
    drop_box(l->out);
    free(l->lanes);
  }
  drop_waker(e->wake);
  free(e->events);
  free(e);
}

static tutti_status open_endpoint(tutti_domain* domain, const tutti_endpoint_config* config, tutti_endpoint** made) {
  (void)domain;
  const tutti_status status = VERSION1_JUDGE(tutti_endpoint_config, config, traffic_class);
  if (status != TUTTI_OK) return status;
  endpoint* e = calloc(1, sizeof *e + config->nranks * sizeof(link_state));
  if (!e) return version1_refuse(TUTTI_NO_RESOURCES, "there is no memory for an endpoint");
  memcpy(&e->config, config, config->struct_size < sizeof e->config ? config->struct_size : sizeof e->config);
  e->pair = *config->pair;
  e->wake = make_waker();
  if (!e->wake) {
    const int error = errno;
    free(e);
    return version1_refuse(TUTTI_NO_RESOURCES, "there is no eventfd: %s", strerror(error));
  }
  for (uint32_t peer = 0; peer < config->nranks; ++peer) e->links[peer].owner = e, e->links[peer].peer = peer;
  *made = (tutti_endpoint*)e;
  return TUTTI_OK;
}

static tutti_status failure(const link_state* l) { return version1_refuse(l->failed, "rank %u: %s", l->peer, l->why); }

/* Sends this rank's hello, once. TUTTI_AGAIN: no room now. */
static tutti_status say_hello(link_state* l) {
  endpoint* e = l->owner;
  if (l->said) return TUTTI_OK;
  if (!l->lanes && !(l->lanes = calloc(e->config.lanes ? e->config.lanes : 1, sizeof *l->lanes)))
    return version1_refuse(TUTTI_NO_RESOURCES, "rank %u: there is no memory for its lanes", l->peer);
  if (!l->in && !(l->in = make_box(e->config.lanes, e->wake)))
    return version1_refuse(TUTTI_NO_RESOURCES, "rank %u: there is no memory for its messages", l->peer);
  const hello text = {this_process(), l->in->token};
  if (!tell_box(l->in)) return version1_refuse(TUTTI_NO_RESOURCES, "rank %u: there is no memory to meet", l->peer);
  const tutti_status status = e->pair.send(e->pair.self, l->peer, &text, sizeof text);
  if (status == TUTTI_OK)
    l->said = 1;
  else
    drop_box(take_told(l->in->token));
  return status;
}

static tutti_status connect_peer(tutti_endpoint* handle, uint32_t peer, tutti_link** link) {
  link_state* l = &((endpoint*)handle)->links[peer];
  if (l->failed) return failure(l);
  const tutti_status status = say_hello(l);
  if (status < 0) return status;
  if (!l->said || !l->out) return TUTTI_AGAIN;
  *link = (tutti_link*)l;
  return TUTTI_OK;
}

static tutti_status receive_pair(tutti_endpoint* handle, uint32_t peer, const void* data, uint64_t bytes) {
  endpoint* e = (endpoint*)handle;
  link_state* l = &e->links[peer];
  hello text;
  if (l->failed) return TUTTI_OK;
  if (bytes != sizeof text || l->out)
    return version1_refuse(TUTTI_MISMATCH, "rank %u: a pair message of %llu bytes was not expected", peer,
                           (unsigned long long)bytes);
  memcpy(&text, data, sizeof text);
  const tutti_status status = say_hello(l);
  if (status < 0) return status;
  if (text.process != this_process()) {
    end(l, TUTTI_SYSTEM, "it is in another process; this transport connects threads of one process");
    return TUTTI_OK;
  }
  l->out = take_told(text.token);
  if (!l->out) { /* the peer has closed its endpoint in the meantime */
    l->out = make_box(e->config.lanes, e->wake);
    if (!l->out) return version1_refuse(TUTTI_NO_RESOURCES, "rank %u: there is no memory for its messages", peer);
    atomic_store(&l->out->ended, 1);
  }
  waker* none = NULL;
  if (atomic_compare_exchange_strong(&l->out->writer, &none, e->wake)) hold_waker(e->wake);
  atomic_fetch_add(&e->wake->news, 1);
  return TUTTI_OK;
}

static tutti_status check(const link_state* l, const tutti_transfer* t) {
  const int is_inline = t->flags & TUTTI_TRANSFER_INLINE, is_send = t->kind == TUTTI_TRANSFER_SEND;
  const char* what = is_send ? "SEND" : "RECV";
  if (t->flags & ~TUTTI_TRANSFER_INLINE)
    return version1_refuse(TUTTI_NOT_SUPPORTED, "rank %u: a flag of 0x%x is unknown", l->peer, (unsigned)t->flags);
  if (t->lane >= l->owner->config.lanes || (!is_send && t->kind != TUTTI_TRANSFER_RECV) || t->region)
    return version1_refuse(TUTTI_INVALID_ARGUMENT, "rank %u: lane %u, kind %u or the region is unknown", l->peer,
                           t->lane, (unsigned)t->kind);
  if (t->bytes > (is_inline ? INLINE : FRAGMENT) || (is_inline && !is_send))
    return version1_refuse(TUTTI_INVALID_ARGUMENT, "rank %u: a %s%s of %llu bytes", l->peer, is_inline ? "INLINE " : "",
                           what, (unsigned long long)t->bytes);
  return l->failed && !l->untold ? failure(l) : TUTTI_OK;
}

static tutti_status post(tutti_endpoint* handle, const tutti_transfer* t) {
  endpoint* e = (endpoint*)handle;
  link_state* l = (link_state*)t->link;
  const tutti_status status = check(l, t);
  if (status != TUTTI_OK) return status;
  if (l->untold || !has_room(e)) return TUTTI_AGAIN;
  lane_state* s = &l->lanes[t->lane];
  if (t->kind == TUTTI_TRANSFER_RECV) {
    if (s->n == DEPTH) return TUTTI_AGAIN;
    s->waiting[(s->first + s->n++) % DEPTH] = *t;
    ++e->promised;
    return TUTTI_OK;
  }
  if (!put(l, t->lane, t->mark, t->data, t->bytes)) return TUTTI_AGAIN;
  e->sent += t->bytes;
  if (!(t->flags & TUTTI_TRANSFER_INLINE))
    e->events[e->n_events++] = transfer_ended(l, t->cookie, TUTTI_OK, t->bytes, 0);
  return TUTTI_OK;
}

static tutti_status progress(tutti_endpoint* handle, tutti_completion* completions, uint32_t capacity, uint32_t* n) {
  endpoint* e = (endpoint*)handle;
  uint32_t texts = 0;
  e->seen = atomic_load(&e->wake->news);
  *n = (uint32_t)(e->n_events < capacity ? e->n_events : capacity);
  if (*n) memcpy(completions, e->events, *n * sizeof *completions);
  e->n_events -= *n;
  if (e->n_events) memmove(e->events, e->events + *n, e->n_events * sizeof *completions);
  for (uint32_t peer = 0; peer < e->config.nranks && e->n_events == 0; ++peer)
    if (e->links[peer].in) advance(&e->links[peer], completions, capacity, n, &texts);
  if (*n == capacity || texts == TEXTS) --e->seen; /* perhaps not all was shown */
  return TUTTI_OK;
}

static tutti_status send_control(tutti_link* handle, const void* data, uint64_t bytes) {
  link_state* l = (link_state*)handle;
  if (l->failed && !l->untold) return failure(l);
  if (bytes > CONTROL)
    return version1_refuse(TUTTI_INVALID_ARGUMENT, "a control message of %llu bytes", (unsigned long long)bytes);
  if (l->untold || !put(l, l->owner->config.lanes, 0, data, bytes)) return TUTTI_AGAIN;
  l->owner->sent += bytes;
  return TUTTI_OK;
}

static tutti_status fail_peer(tutti_endpoint* handle, uint32_t peer) {
  link_state* l = &((endpoint*)handle)->links[peer];
  l->untold = 0;
  if (l->failed) return TUTTI_OK;
  if (l->in) {
    end(l, TUTTI_PEER_FAILED, "this rank has given it up");
  } else {
    l->failed = TUTTI_PEER_FAILED;
    l->why = "this rank has given it up";
  }
  return TUTTI_OK;
}

static tutti_status abort_endpoint(tutti_endpoint* handle) {
  endpoint* e = (endpoint*)handle;
  for (uint32_t peer = 0; peer < e->config.nranks; ++peer) {
    link_state* l = &e->links[peer];
    l->untold = 0;
    l->failed = TUTTI_ABORTED;
    l->why = "this endpoint was aborted";
    if (l->in) end(l, TUTTI_ABORTED, l->why);
  }
  return TUTTI_OK;
}

const tutti_transport version1_transport = {
    .struct_size = sizeof(tutti_transport),
    .name = "version1",
    .summary = "messages between threads of one process, by every stable interface",
    .open_domain = open_domain,
    .close_domain = close_domain,
    .query = query,
    .open_endpoint = open_endpoint,
    .close_endpoint = close_endpoint,
    .connect = connect_peer,
    .receive_pair = receive_pair,
    .post = post,
    .progress = progress,
    .send_control = send_control,
    .fail_peer = fail_peer,
    .abort = abort_endpoint,
    .get_interface = version1_optional,
};
