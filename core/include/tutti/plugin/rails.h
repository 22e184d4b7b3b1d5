/* SPDX-License-Identifier: Apache-2.0
 *
 * rails/1: an optional interface of network transports (transport.h, get_interface). It reports the parts of this
 * host's network that the transport sees, which ones it would use and why, and how much each has carried. It serves
 * people and reports and decides nothing.
 *
 * A rail is a port of an adapter, or a network interface.
 */
#ifndef TUTTI_PLUGIN_RAILS_H
#define TUTTI_PLUGIN_RAILS_H

#include "transport.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_RAILS_ID "tutti.rails/1"

/* Frozen layout, 32 bytes. */
typedef struct tutti_rail_address {
  const char* text;      /* "10.1.0.1/24" */
  const char* interface; /* its network interface: "eth0"; "": not known */
  const char* kind;      /* "IPv4", "RoCE v2, GID 3" */
  uint64_t usable;       /* 1: peers learn it */
} tutti_rail_address;

typedef struct tutti_rail {
  uint32_t struct_size;
  uint32_t chosen;    /* 1: it is used, or would be */
  const char* name;   /* "mlx5_0:1", "eth0" */
  const char* medium; /* "InfiniBand", "RoCE", "Ethernet" */
  const char* state;  /* "active", "down" */
  const char* why;    /* why it is chosen, or is not */
  uint64_t bandwidth; /* bytes per second, one way; 0: not known */
  int32_t numa;       /* node; -1: not known */
  uint32_t mtu;       /* bytes; 0: not known */
  const tutti_rail_address* addresses;
  uint64_t n_addresses;
  uint64_t sent_bytes; /* of messages, over this rail by this endpoint so far */
  uint64_t received_bytes;
} tutti_rail;

/* Receives a list. The argument of `rail` is valid until the call returns. */
typedef struct tutti_rail_sink {
  uint32_t struct_size;
  uint32_t reserved;
  void* self;
  void (*rail)(void* self, const tutti_rail* rail);
} tutti_rail_sink;

typedef struct tutti_rails {
  uint32_t struct_size;
  uint32_t reserved; /* 0 */
  /* [control] Reports every rail of this host. An endpoint that this thread opened now would use the chosen ones. If no
   * rail can be chosen, each states the reason. TUTTI_NOT_SUPPORTED (with set_error): the host has no rail. */
  tutti_status (*of_host)(void* self, const tutti_rail_sink* sink);
  /* Optional. [progress] The rails that an endpoint uses, with the bytes that each has carried. */
  tutti_status (*of_endpoint)(tutti_endpoint* endpoint, const tutti_rail_sink* sink);
} tutti_rails;

#ifdef __cplusplus
}
#endif

TUTTI_MANDATORY(tutti_rail, received_bytes);
TUTTI_MANDATORY(tutti_rail_sink, rail);
TUTTI_MANDATORY(tutti_rails, of_host);
#endif
