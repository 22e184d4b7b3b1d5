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
 * end meets the k-th RECV of that lane at the other; the core makes their sizes equal. There are no tags. A matched
 * pair completes whatever the state of other lanes and peers. So a transport with many lanes over one socket or queue
 * pair buffers, or sends only against the receiver's credit for the lane. At least `receive_depth` (at least 2)
 * receives per (link, lane) are always accepted. A refused SEND is accepted after finitely many progress calls once
 * its RECV is posted. No message is larger than `fragment_bytes`: the core cuts larger ones, alike at both ends.
 * Completions of one (link, lane, kind) come in the order of posting. A message that is longer or shorter than its RECV
 * completes the RECV with TUTTI_MISMATCH; its SEND may have completed before. A SEND of no bytes may be INLINE whatever
 * inline_bytes is.
 *
 * Marks. A transport with TUTTI_TRANSPORT_MARKS carries 32 bits with each message, beside its bytes: in a header or
 * descriptor, where they cost nothing. The core marks each message with its call, so that calls that differ are found
 * whenever their messages meet. A message whose mark is not that of its RECV is treated like one of another size; its
 * bytes may have been written to the RECV's memory.
 *
 * No function blocks. A single transfer cannot be cancelled: abort ends all, and fail_peer, where there is one, those
 * of a peer.
 *
 * Connecting. Two endpoints of one transport connect by pair messages: the core carries them over the job's control
 * plane, authenticated, complete, each once, in order per (sender, receiver). So a transport needs no secret, no
 * handshake of its own and no listener for strangers. An endpoint that must accept something from outside (a socket)
 * puts a one-time random token into a pair message and accepts only connections that present it.
 *
 * Connecting fails at both ends or at neither. connect returns TUTTI_OK at one end only when the other end cannot fail
 * any more for a reason of its own. An end that cannot connect says so by pair message, and connect returns its status
 * at both ends; a socket that this end closes is no loss of a peer. If both ends fail at once, each may return its own
 * status. After TUTTI_NO_RESOURCES, TUTTI_SYSTEM or TUTTI_NOT_SUPPORTED the core leaves the transport out for these two
 * ranks, and takes the next one. Any other error ends the communicator.
 *
 * Loss. Between the loss of a peer and its PEER_FAILED record, post and send_control continue as if nothing had
 * happened: they accept, or have no room, and do not return an error. After the record post, send_control and connect
 * return TUTTI_PEER_FAILED for that peer. A peer that has closed its endpoint is lost only if an operation with it is
 * still pending: a RECV for which it has not sent a message, or a SEND that it did not accept. The record then says
 * that the peer has closed its endpoint. Otherwise there is no record.
 *
 * Threads: [any] any thread at any time; [control] serialised by the core; [progress] the one thread that has the
 * endpoint at that moment, not always the same one. State of an endpoint needs no locks.
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

/* Every transport carries control messages of this size; tutti_transport_caps.control_bytes may be larger. */
#define TUTTI_CONTROL_BYTES 240u
/* The largest pair message, in bytes. */
#define TUTTI_PAIR_BYTES 4096u

/* Opaque objects of the plugin. */
typedef struct tutti_domain tutti_domain;
typedef struct tutti_endpoint tutti_endpoint;
typedef struct tutti_link tutti_link;
typedef struct tutti_region tutti_region;

/* The capabilities of a domain: its device and adapters may decide them. They must be exact: conformance tests what is
 * claimed and what is not. */
typedef struct tutti_transport_caps {
  uint32_t struct_size;
  uint32_t reach;          /* TUTTI_REACH_* */
  uint64_t memory_kinds;   /* mask of 1 << TUTTI_MEMORY_* that post accepts */
  uint64_t inline_bytes;   /* a TUTTI_TRANSFER_INLINE send of at most this size completes at return */
  uint64_t fragment_bytes; /* the largest message; at least 4096 */
  uint32_t receive_depth;  /* receives per (link, lane) that are always accepted; at least 2 */
  uint32_t reserved;
  uint64_t latency_ns;      /* estimate: one small message, one way */
  uint64_t bandwidth;       /* estimate: bytes per second, one link, one way */
  uint64_t flags;           /* TUTTI_TRANSPORT_* */
  uint32_t control_bytes;   /* the longest control message; at least TUTTI_CONTROL_BYTES */
  uint32_t max_outstanding; /* an endpoint's accepted transfers without a completion; 0: no limit of its own. At it
                               the core posts at most one for each (link, lane, direction); SENDs may be refused */
  const char* fabric; /* TUTTI_REACH_FABRIC: the id of the fabric, equal on all hosts that it joins. Lives as long as
                         the process. NULL otherwise */
} tutti_transport_caps;

enum {
  TUTTI_TRANSPORT_NEEDS_FLUSH = 1u << 0, /* data that a RECV wrote to device memory becomes visible to that device only
                                            after flush */
  TUTTI_TRANSPORT_MARKS = 1u << 1        /* messages carry marks: tutti_transfer.mark, tutti_completion.mark, and in
                                            view/1 set_mark and get_mark */
};

/* Memory to register. NULL with UINT64_MAX bytes: all host memory of the process, also what it will have; offsets in
 * such a region are addresses. A transport that cannot returns TUTTI_NOT_SUPPORTED. */
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

/* The settings of a domain. Valid until open_domain returns. */
typedef struct tutti_domain_config {
  uint32_t struct_size;
  uint32_t device_kind; /* the memory that most transfers will name: TUTTI_MEMORY_*; TUTTI_MEMORY_HOST: no device */
  uint32_t device;      /* its number, for another kind than TUTTI_MEMORY_HOST */
  uint32_t reserved;
  const char* device_pci; /* its PCI address, "0000:3b:00.0"; NULL: not known. Prefer an adapter near it */
} tutti_domain_config;

/* How an endpoint sends pair messages. Lives as long as the endpoint. */
typedef struct tutti_pair_messages {
  uint32_t struct_size;
  uint32_t reserved;
  void* self; /* first argument of send */
  /* [progress] Sends at most TUTTI_PAIR_BYTES bytes to the peer's endpoint of the same transport, which gets them by
   * receive_pair. They are copied before return and need no link. TUTTI_AGAIN: no room now, try after progress.
   * TUTTI_PEER_FAILED: the peer is lost. It may be called within receive_pair, and not within open_endpoint. */
  tutti_status (*send)(void* self, uint32_t peer, const void* data, uint64_t bytes);
} tutti_pair_messages;

/* All pointers but `pair` live until open_endpoint returns. */
typedef struct tutti_endpoint_config {
  uint32_t struct_size;
  uint32_t rank;
  uint32_t nranks;
  uint32_t lanes;           /* to each peer: the final number, so credits can be computed from it */
  const char* name;         /* of the communicator, for messages */
  uint64_t communicator_id; /* the same on all ranks, different for any two communicators alive in a job */
  const tutti_pair_messages* pair;
  const char* address;    /* not NULL: the job has no secret, and its ranks met by this address of this host. A
                             transport that listens must listen on this address only */
  uint64_t timeout_ns;    /* how long the core waits for a connection. A transport that waits for an answer from outside
                             (an address that does not reply) gives up no later */
  uint32_t traffic_class; /* the IP traffic class (DSCP and ECN bits) of what is sent; 0: the default */
  uint32_t reserved;
  uint64_t family; /* not 0: this process's endpoints of the same family belong to one rank, of a communicator and of
                      its parts, and may share what they need of the system: connections, listening sockets, the
                      descriptor of wait_fd/1. Different threads may use them at the same time. 0: nothing is shared */
} tutti_endpoint_config;

/* Transfer kinds and flags. */
enum { TUTTI_TRANSFER_SEND = 1, TUTTI_TRANSFER_RECV = 2 };
enum { TUTTI_TRANSFER_INLINE = 1u << 0 }; /* SEND of at most inline_bytes: no completion record follows */

/* One send or receive. Frozen layout, 64 bytes. Device memory is named with its region and is never INLINE, because
 * the processor cannot access it. */
typedef struct tutti_transfer {
  tutti_link* link;
  uint32_t lane;
  uint16_t kind;
  uint16_t flags;
  void* data; /* SEND: read until completion; RECV: written until completion */
  uint64_t bytes;
  tutti_region* region; /* the registration that holds [data, data + bytes), or NULL */
  uint64_t cookie;      /* handed back in the completion */
  uint32_t mark;        /* TUTTI_TRANSPORT_MARKS: of the SEND's message, or that a RECV's must have */
  uint32_t reserved0;
  uint64_t reserved1;
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
  uint32_t mark; /* TUTTI_TRANSPORT_MARKS: of a RECV's message, also with TUTTI_MISMATCH. 0 in all other records */
  uint64_t cookie;
  uint64_t bytes; /* of a control message; of a RECV's message, with TUTTI_MISMATCH of the message that came */
  const void* data;
  uint64_t reserved1;
} tutti_completion;

typedef struct tutti_transport {
  uint32_t struct_size;
  uint32_t reserved; /* 0 */
  void* self;
  const char* name;    /* what users type: "shm". Unique among transports. Lives as long as the process. */
  const char* summary; /* one line */

  /* [control] TUTTI_NOT_SUPPORTED (with set_error) where this machine lacks what the transport needs. */
  tutti_status (*open_domain)(void* self, const tutti_domain_config* config, tutti_domain** domain);
  /* [control] Every endpoint was closed and every region deregistered before. */
  void (*close_domain)(tutti_domain* domain);
  /* [control] Fills caps, with the same values each time. A transport over others reports what remains of their
   * capabilities. It may return TUTTI_NOT_SUPPORTED as open_domain does: the core then closes the domain. */
  tutti_status (*query)(tutti_domain* domain, tutti_transport_caps* caps);
  /* Optional, both or neither. [any] Registers memory so that transfers may name it. The memory stays the caller's and
   * outlives the region. */
  tutti_status (*register_memory)(tutti_domain* domain, const tutti_memory* memory, tutti_region** region);
  /* [any] No transfer names the region any more. */
  tutti_status (*deregister_memory)(tutti_domain* domain, tutti_region* region);

  /* [control] */
  tutti_status (*open_endpoint)(tutti_domain* domain, const tutti_endpoint_config* config, tutti_endpoint** endpoint);
  /* [control] Completed sends still arrive; pending operations are dropped without a completion. In an orderly end all
   * ranks meet before the core closes an endpoint. */
  void (*close_endpoint)(tutti_endpoint* endpoint);
  /* [progress] Connects to `peer`. TUTTI_OK: *link is ready. TUTTI_AGAIN: under way, call again after progress. A later
   * call for a connected peer gives the same link. Both ends may call at the same time; the end that does not call
   * needs only progress and receive_pair for the other's connection to complete. An error is final for this peer, at
   * both ends ("Connecting" above). Errors: TUTTI_NO_RESOURCES, TUTTI_SYSTEM or TUTTI_NOT_SUPPORTED where this
   * transport cannot connect the two; TUTTI_TIMEOUT for a peer that does not answer; TUTTI_PEER_FAILED for a lost one;
   * TUTTI_MISMATCH for settings that do not work together. `peer` is never the own rank. */
  tutti_status (*connect)(tutti_endpoint* endpoint, uint32_t peer, tutti_link** link);
  /* Mandatory for a transport that sends pair messages. [progress] A pair message of `peer`, at any time from
   * open_endpoint on, whether this end has called connect or not; `data` lives until return. It comes from the same
   * transport of a rank of this job, perhaps of another version: unknown bytes are TUTTI_INVALID_ARGUMENT or
   * TUTTI_MISMATCH. Its errors have the effect of connect's. */
  tutti_status (*receive_pair)(tutti_endpoint* endpoint, uint32_t peer, const void* data, uint64_t bytes);

  /* [progress] Begins a transfer, behind the earlier ones of its (link, lane, kind). `transfer` itself lives until
   * return. TUTTI_AGAIN: it is not accepted, because there is no room now (a full queue); call again after progress. An
   * error status means that it can never be accepted. Several posts are followed by one progress, before the core
   * returns to the application: a transport may collect transfers that are not INLINE, and begin them all there. */
  tutti_status (*post)(tutti_endpoint* endpoint, const tutti_transfer* transfer);
  /* [progress] Advances everything and writes at most `capacity` completions; *n is how many. An error status is of the
   * endpoint as a whole. */
  tutti_status (*progress)(tutti_endpoint* endpoint, tutti_completion* completions, uint32_t capacity, uint32_t* n);
  /* [progress] Sends a control message of at most caps.control_bytes: it needs no posted receive, keeps the order of
   * control messages on its link and is copied before return. TUTTI_AGAIN: no room now. */
  tutti_status (*send_control)(tutti_link* link, const void* data, uint64_t bytes);

  /* Optional: the core does not call it yet. [progress] Gives up a peer: every pending transfer with it completes with
   * TUTTI_PEER_FAILED, and later ones are refused with it. Memory of those transfers is not touched any more once they
   * have completed. No PEER_FAILED completion follows, since the caller knows. */
  tutti_status (*fail_peer)(tutti_endpoint* endpoint, uint32_t peer);
  /* [progress] Ends everything: each pending transfer completes with TUTTI_ABORTED, later posts are refused with it. */
  tutti_status (*abort)(tutti_endpoint* endpoint);

  /* [control] An optional interface of this transport (TUTTI_VIEW_ID ...) or NULL. Lives as long as the process. */
  const void* (*get_interface)(void* self, const char* id);

  /* Mandatory with TUTTI_TRANSPORT_NEEDS_FLUSH. [progress] RECVs of this link that completed before the first call have
   * written [data, data + bytes) of a region of device memory. Work that the device is given after TUTTI_OK sees those
   * bytes. TUTTI_AGAIN: under way, call again with the same arguments after progress. */
  tutti_status (*flush)(tutti_link* link, tutti_region* region, const void* data, uint64_t bytes);
} tutti_transport;

/* view/1: messages are read and written where they lie, without a copy between user memory and the transport's.
 *
 * It is another way to do the same SENDs and RECVs: a message written by reserve/commit or send_region may be met by a
 * posted RECV, and a posted SEND by try_receive. On one (link, lane, direction) a caller must not call try_reserve
 * while a posted SEND is incomplete, nor try_receive while a posted RECV is incomplete. Hot: no lock, no clock, no
 * error store; failures appear in the endpoint's progress. All functions [progress]. */
typedef struct tutti_view {
  uint32_t struct_size;
  uint32_t reserved; /* 0 */
  /* The next message of the lane, or NULL: none yet. The bytes stay readable until release. Another call before release
   * returns the same message. A message of no bytes returns a non-NULL pointer. */
  const void* (*try_receive)(tutti_link* link, uint32_t lane, uint64_t* bytes);
  /* Returns the message of try_receive to the transport. */
  void (*release)(tutti_link* link, uint32_t lane);
  /* Room for the next message of `bytes` <= fragment_bytes, aligned to 64 bytes unless it is shorter than 64, or NULL:
   * none yet. One reservation per lane at a time; asking again before commit gives the same room. */
  void* (*try_reserve)(tutti_link* link, uint32_t lane, uint64_t bytes);
  /* Sends the bytes written into the reservation. All earlier stores of the calling thread, including non-temporal
   * ones, are visible to the receiver before the message. */
  void (*commit)(tutti_link* link, uint32_t lane, uint64_t bytes);
  /* Optional, both or neither. Sends `bytes` <= fragment_bytes at `offset` of a registered region by reference: the
   * receiver sees the region itself, or fetches the bytes out of it. TUTTI_AGAIN: no room now. TUTTI_NOT_SUPPORTED: not
   * these bytes, to this peer, now; they can be sent in the other ways. *ticket names the message ... */
  tutti_status (*send_region)(tutti_link* link, uint32_t lane, tutti_region* region, uint64_t offset, uint64_t bytes,
                              uint64_t* ticket);
  /* ... which has been released by the receiver when released() > ticket: its bytes may then be overwritten. The value
   * never decreases. After a peer has failed it is UINT64_MAX. */
  uint64_t (*released)(tutti_link* link, uint32_t lane);
  /* Optional. Like try_receive, for a caller that wants the bytes at `room`, which has space for *bytes bytes until
   * release. A transport that has to fetch the message writes it to `room` if it fits, and then returns `room`. */
  const void* (*try_receive_into)(tutti_link* link, uint32_t lane, void* room, uint64_t* bytes);
  /* Mandatory with TUTTI_TRANSPORT_MARKS, both. Messages that are committed or sent by region on the lane from now on
   * have this mark; it is 0 at first. */
  void (*set_mark)(tutti_link* link, uint32_t lane, uint32_t mark);
  /* The mark of the message that try_receive has returned; until release. */
  uint32_t (*get_mark)(tutti_link* link, uint32_t lane);
} tutti_view;

/* wait_fd/1: sleeping instead of polling. All functions [progress]. */
typedef struct tutti_wait_fd {
  uint32_t struct_size;
  uint32_t reserved; /* 0 */
  /* A descriptor for poll(2) with POLLIN. It stays the transport's and valid until the endpoint is closed. Endpoints of
   * one family may have the same. */
  tutti_status (*get_fd)(tutti_endpoint* endpoint, int32_t* fd);
  /* Arms the descriptor: it becomes readable when there is anything to progress. That is a completion, a message, a
   * loss, a connection, or room for a SEND or control message that was refused. TUTTI_OK: armed, go to sleep.
   * TUTTI_AGAIN: there is something already, do not sleep. */
  tutti_status (*arm)(tutti_endpoint* endpoint);
  /* After the sleep, before progress: clears the descriptor and the request to be woken. */
  void (*disarm)(tutti_endpoint* endpoint);
} tutti_wait_fd;

#ifdef __cplusplus
}
#endif

TUTTI_MANDATORY(tutti_transport_caps, max_outstanding);
TUTTI_MANDATORY(tutti_memory, fd_offset);
TUTTI_MANDATORY(tutti_domain_config, device_pci);
TUTTI_MANDATORY(tutti_pair_messages, send);
TUTTI_MANDATORY(tutti_endpoint_config, traffic_class);
TUTTI_MANDATORY(tutti_transport, get_interface);
TUTTI_MANDATORY(tutti_view, commit);
TUTTI_MANDATORY(tutti_wait_fd, disarm);
#endif
