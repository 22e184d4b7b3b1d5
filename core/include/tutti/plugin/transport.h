/* SPDX-License-Identifier: Apache-2.0
 *
 * transport/1: a way to move bytes between ranks. It knows nothing of collectives. Optional abilities are interfaces
 * of their own (view/1, wait_fd/1), found by id; they never become mandatory functions.
 *
 * Objects
 *   domain    one per process and communicator configuration. Owns registrations. Any thread.
 *   endpoint  one per communicator: rank `rank` of `nranks`, with `lanes` lanes to each peer. One thread at a time.
 *   link      an endpoint's connection to one peer. Belongs to its endpoint, lives until that is closed.
 *
 * Messages. Each (link, lane, direction) is a first-in first-out channel of messages. The k-th SEND of a lane at one
 * end meets the k-th RECV of that lane at the other; both have equal sizes (the core sees to it). There are no tags. A matched pair
 * completes whatever the state of other lanes and peers: a transport that multiplexes lanes over one socket or queue
 * pair sends only against the receiver's credit for that lane, or buffers. At least `receive_depth` (>= 2) receives per
 * (link, lane) are always accepted; a refused SEND is accepted after finitely many progress calls once its RECV is
 * posted. No message is larger than `fragment_bytes`: the core cuts larger ones, alike at both ends. Completions of
 * one (link, lane, kind) come in the order of posting. A message that is longer or shorter than its RECV completes the RECV
 * with TUTTI_MISMATCH; its SEND may have completed before. A SEND of no bytes may be INLINE whatever inline_bytes is.
 *
 * No function blocks. Nothing here cancels one transfer: fail_peer and abort end all of a peer's, or everything.
 *
 * Threads: [any] any thread at any time; [control] serialised by the core; [progress] the one thread that has the
 * endpoint at that moment, so no locks are needed for what an endpoint owns.
 */
#ifndef TUTTI_PLUGIN_TRANSPORT_H
#define TUTTI_PLUGIN_TRANSPORT_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_TRANSPORT_ID "tutti.transport/1"
#define TUTTI_VIEW_ID "tutti.view/1"
#define TUTTI_WAIT_FD_ID "tutti.wait_fd/1"
/* The drafts' stamps: hashes of the layouts below. The core refuses a plugin that was compiled with others. */
#define TUTTI_TRANSPORT_STAMP 0xf2fba625u
#define TUTTI_VIEW_STAMP 0x4aee8978u
#define TUTTI_WAIT_FD_STAMP 0x0ea136d0u

/* Control messages are at most so long. */
#define TUTTI_CONTROL_BYTES 256u

/* Opaque objects of the plugin. */
typedef struct tutti_domain tutti_domain;
typedef struct tutti_endpoint tutti_endpoint;
typedef struct tutti_link tutti_link;
typedef struct tutti_region tutti_region;

/* What a transport says of itself. It must be true in both directions: conformance tests claims and non-claims. */
typedef struct tutti_transport_caps {
  uint32_t struct_size;
  uint32_t reach;          /* TUTTI_REACH_* */
  uint64_t memory_kinds;   /* mask of 1 << TUTTI_MEMORY_* that post accepts */
  uint64_t inline_bytes;   /* a TUTTI_TRANSFER_INLINE send of at most so many bytes completes at return */
  uint64_t fragment_bytes; /* the largest message; at least 4096 */
  uint32_t receive_depth;  /* receives per (link, lane) that are always accepted; at least 2 */
  uint32_t reserved;
  uint64_t latency_ns;     /* estimate: one small message, one way */
  uint64_t bandwidth;      /* estimate: bytes per second, one link, one way */
  uint64_t flags;          /* TUTTI_TRANSPORT_* */
} tutti_transport_caps;

enum {
  TUTTI_TRANSPORT_NEEDS_FLUSH = 1u << 0 /* what a RECV brought into a device's memory is visible to that device only
                                           after flush */
};

/* Memory to register. */
typedef struct tutti_memory {
  uint32_t struct_size;
  uint32_t kind; /* TUTTI_MEMORY_* */
  void* address;
  uint64_t bytes;
  int32_t fd; /* a descriptor (memfd, dma-buf) of which [fd_offset, fd_offset + bytes) is this memory, or -1. Stays
                 the caller's; a transport that keeps it duplicates it. */
  uint32_t reserved;
  uint64_t fd_offset;
} tutti_memory;

typedef struct tutti_endpoint_config {
  uint32_t struct_size;
  uint32_t rank;
  uint32_t nranks;
  uint32_t lanes;
  const char* name;         /* of the communicator, for messages; lives until open returns */
  const uint8_t* secret;    /* shared by the job's ranks and nobody else; lives until open returns */
  uint64_t secret_bytes;    /* 0: there is none */
  uint64_t communicator_id; /* the same on all ranks, different for any two communicators alive in a job */
} tutti_endpoint_config;

/* Transfer kinds and flags. */
enum { TUTTI_TRANSFER_SEND = 1, TUTTI_TRANSFER_RECV = 2 };
enum { TUTTI_TRANSFER_INLINE = 1u << 0 }; /* SEND of at most inline_bytes: no completion record follows */

/* One send or receive. Frozen layout, 64 bytes. Memory of a device is named with its region, and never INLINE: no
 * processor can read or write it. */
typedef struct tutti_transfer {
  tutti_link* link;
  uint32_t lane;
  uint16_t kind;
  uint16_t flags;
  void* data; /* SEND: read until completion; RECV: written until completion */
  uint64_t bytes;
  tutti_region* region; /* the registration that holds [data, data + bytes), or NULL */
  uint64_t cookie;      /* handed back in the completion */
  uint64_t reserved[2];
} tutti_transfer;

enum {
  TUTTI_COMPLETION_TRANSFER = 1,   /* the transfer `cookie` ended with `status` */
  TUTTI_COMPLETION_CONTROL = 2,    /* a control message: `data`, `bytes`, from `peer`; data lives until next progress */
  TUTTI_COMPLETION_PEER_FAILED = 3 /* `peer` is lost: every transfer with it has ended or ends in this batch or the
                                      next; `data` is a NUL-terminated reason that lives until the next progress */
};

/* Frozen layout, 48 bytes. */
typedef struct tutti_completion {
  uint32_t kind;
  tutti_status status;
  uint32_t peer;
  uint32_t reserved0;
  uint64_t cookie;
  uint64_t bytes;
  const void* data;
  uint64_t reserved1;
} tutti_completion;

typedef struct tutti_transport {
  uint32_t struct_size;
  uint32_t stamp; /* TUTTI_TRANSPORT_STAMP */
  void* self;
  const char* name;    /* what users type: "shm". Unique among transports. Lives until deinit. */
  const char* summary; /* one line */

  /* [control] Fills caps. TUTTI_NOT_SUPPORTED (with set_error) where this machine lacks what it needs. */
  tutti_status (*query)(void* self, tutti_transport_caps* caps);

  /* [control] */
  tutti_status (*open_domain)(void* self, tutti_domain** domain);
  /* [control] Every endpoint was closed and every region deregistered before. */
  void (*close_domain)(tutti_domain* domain);
  /* Optional, both or neither. [any] Registers memory so that transfers may name it. The memory stays the caller's and
   * outlives the region. */
  tutti_status (*register_memory)(tutti_domain* domain, const tutti_memory* memory, tutti_region** region);
  /* [any] No transfer names the region any more. */
  tutti_status (*deregister_memory)(tutti_domain* domain, tutti_region* region);

  /* [control] */
  tutti_status (*open_endpoint)(tutti_domain* domain, const tutti_endpoint_config* config, tutti_endpoint** endpoint);
  /* [control] What was sent and completed still arrives; whatever is pending is dropped without a completion. The core makes
   * all ranks meet before it closes an endpoint in an orderly end. */
  void (*close_endpoint)(tutti_endpoint* endpoint);
  /* [control] Writes the opaque bytes by which others connect here. *bytes is the capacity on entry, the length on
   * return; at most 4096. TUTTI_NO_RESOURCES (with the needed length in *bytes) when the capacity is too small. */
  tutti_status (*get_address)(tutti_endpoint* endpoint, void* address, uint64_t* bytes);
  /* [progress] Connects to `peer`, whose get_address gave `address`. TUTTI_OK: *link is ready. TUTTI_AGAIN: under way,
   * call again with the same arguments after progress. A later call for a connected peer gives the same link. Both ends may
   * call at the same time; the end that does not call needs only progress for the other's connection to come about.
   * `address` is checked as untrusted input. peer == own rank is never asked. */
  tutti_status (*connect)(tutti_endpoint* endpoint, uint32_t peer, const void* address, uint64_t bytes,
                          tutti_link** link);

  /* [progress] Takes the first *accepted transfers of the batch, in order within each (link, lane, kind). Refusal of one (a full
   * queue) ends the batch there with TUTTI_OK and *accepted < n: call again after progress. An error status tells that
   * transfers[*accepted] can never be taken. */
  tutti_status (*post)(tutti_endpoint* endpoint, const tutti_transfer* transfers, uint32_t n, uint32_t* accepted);
  /* [progress] Advances everything and writes at most `capacity` completions; *n is how many. An error status is of the
   * endpoint as a whole. */
  tutti_status (*progress)(tutti_endpoint* endpoint, tutti_completion* completions, uint32_t capacity, uint32_t* n);
  /* [progress] Sends a control message of at most TUTTI_CONTROL_BYTES: it needs no posted receive, keeps the order of control
   * messages on its link and is copied before return. TUTTI_AGAIN: no room now. */
  tutti_status (*send_control)(tutti_link* link, const void* data, uint64_t bytes);

  /* [progress] Gives up a peer: every pending transfer with it completes with TUTTI_PEER_FAILED, and later ones are
   * refused with it. Memory of those transfers is not touched any more once they have completed. No PEER_FAILED
   * completion follows: the caller knows. */
  tutti_status (*fail_peer)(tutti_endpoint* endpoint, uint32_t peer);
  /* [progress] Ends everything: each pending transfer completes with TUTTI_ABORTED, later posts are refused with it. */
  tutti_status (*abort)(tutti_endpoint* endpoint);

  /* [control] An optional interface of this transport (TUTTI_VIEW_ID ...) or NULL. Lives until deinit. */
  const void* (*get_interface)(void* self, const char* id);

  /* Mandatory with TUTTI_TRANSPORT_NEEDS_FLUSH. [progress] Makes what RECVs of this link brought into [data,
   * data + bytes) of a region of device memory visible to work that the device is given after TUTTI_OK: those that have
   * completed before the first call. TUTTI_AGAIN: under way, call again with the same arguments after progress. */
  tutti_status (*flush)(tutti_link* link, tutti_region* region, const void* data, uint64_t bytes);
} tutti_transport;

/* view/1: messages are read and written where they lie, without a copy between user memory and the transport's.
 *
 * It is another way to do the same SENDs and RECVs: a message written by reserve/commit or send_region may be met by a
 * posted RECV, and a posted SEND by try_receive. On one (link, lane, direction) a caller does not reserve while a posted SEND of it is
 * incomplete, nor try_receive while a posted RECV of it is incomplete. Hot: no lock, no clock, no error store;
 * failures appear in the endpoint's progress. All functions [progress]. */
typedef struct tutti_view {
  uint32_t struct_size;
  uint32_t stamp; /* TUTTI_VIEW_STAMP */
  /* The next message of the lane, or NULL: none yet. Its bytes stay readable until release. Asking again before release gives the
   * same message. A message of no bytes gives a non-NULL pointer. */
  const void* (*try_receive)(tutti_link* link, uint32_t lane, uint64_t* bytes);
  /* Gives the message that try_receive showed back to the transport. */
  void (*release)(tutti_link* link, uint32_t lane);
  /* Room for the next message of `bytes` <= fragment_bytes, aligned to 64 bytes unless it is shorter than 64, or NULL: none yet.
   * One reservation per lane at a time; asking again before commit gives the same room. */
  void* (*try_reserve)(tutti_link* link, uint32_t lane, uint64_t bytes);
  /* Sends what was written into the reservation. All earlier stores of the calling thread, non-temporal ones
   * included, are visible to the receiver before the message. */
  void (*commit)(tutti_link* link, uint32_t lane, uint64_t bytes);
  /* Optional, both or neither. Sends `bytes` <= fragment_bytes at `offset` of a registered region by reference: the receiver's
   * try_receive shows the region itself. TUTTI_AGAIN: no room now. *ticket names the message ... */
  tutti_status (*send_region)(tutti_link* link, uint32_t lane, tutti_region* region, uint64_t offset, uint64_t bytes,
                              uint64_t* ticket);
  /* ... which has been released by the receiver when released() > ticket: its bytes may then be overwritten. The value
   * never decreases. After a peer has failed it is UINT64_MAX. */
  uint64_t (*released)(tutti_link* link, uint32_t lane);
} tutti_view;

/* wait_fd/1: sleeping instead of polling. All functions [progress]. */
typedef struct tutti_wait_fd {
  uint32_t struct_size;
  uint32_t stamp; /* TUTTI_WAIT_FD_STAMP */
  /* A descriptor for poll(2) with POLLIN. It stays the transport's and valid until the endpoint is closed. */
  tutti_status (*get_fd)(tutti_endpoint* endpoint, int32_t* fd);
  /* From now on the descriptor becomes readable when there is anything to progress. TUTTI_OK: armed, go to sleep.
   * TUTTI_AGAIN: something is there already, do not. */
  tutti_status (*arm)(tutti_endpoint* endpoint);
  /* After the sleep, before progress: clears the descriptor and the wish to be woken. */
  void (*disarm)(tutti_endpoint* endpoint);
} tutti_wait_fd;

#ifdef __cplusplus
}
#endif
#endif
