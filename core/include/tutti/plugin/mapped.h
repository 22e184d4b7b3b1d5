/* SPDX-License-Identifier: Apache-2.0
 *
 * mapped/1: memory that both ends of a link address in place. An optional interface of a transport, found by id.
 *
 * Objects
 *   share    memory of this rank that the peer of one link may map
 *   mapping  a share of the peer, as this process sees it
 * Both belong to their link. Each is given back by its own function before the endpoint is closed; close_endpoint gives
 * back those that are left.
 *
 * A share has a tag. The peer maps it by that tag. Tags of one link and direction are the caller's, and no two shares
 * that exist at one time have the same tag.
 *
 * One end shares, the other maps. Each end has two functions for what it offers or takes, and one for a tag that it
 * will not serve:
 *
 *   at the sharing end                            at the mapping end
 *   share         offers memory                   open_mapping   takes the offer
 *   share_state   has the peer taken it?
 *   withdraw      ends the offer                  close_mapping  ends the use
 *   decline       will not offer                  decline        will not take
 *
 * After a decline the peer does not wait: its open_mapping (or its share_state) returns the status of the decline.
 *
 * Memory of a share is either a device's, and then the caller's own, or host memory that the transport makes. Host
 * memory is zeroed, and both the processors and the streams of both ends read and write it. Device memory is read and
 * written by streams only. Ranks of one process may share, too: they see the memory itself.
 *
 * Flags. A flag is an aligned 4-byte value in a host share. A stream waits for it and sets it by TUTTI_COMMAND_WAIT and
 * TUTTI_COMMAND_WRITE at `device`. A processor does the same by atomic loads (acquire) and stores (release) at `host`.
 * A flag is set by one end and reset by the other, so it does not count. Each flag should have a cache line of its own.
 *
 * Order. Writes of a stream or a processor before it sets a flag are visible to each waiter after it has seen the flag.
 * This includes device memory.
 *
 * Loss. A mapping stays addressable until it is closed, also after the peer has failed or died. Its content from then
 * on is undefined. Flags of a lost peer are never set: the caller sets at `host` what its streams wait for, so that
 * they end. A process that has ended holds no mappings, so its peers may release their memory.
 *
 * Threads: [progress] as in transport.h. Nothing blocks on the peer. share, open_mapping, close_mapping and withdraw
 * may synchronise a device: no work that waits for a flag is pending on it.
 */
#ifndef TUTTI_PLUGIN_MAPPED_H
#define TUTTI_PLUGIN_MAPPED_H

#include "transport.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_MAPPED_ID "tutti.mapped/1"
/* The draft's stamp: a hash of the layouts below. The core refuses a plugin that was compiled with another. */
#define TUTTI_MAPPED_STAMP 0x82e74535u

/* Opaque objects of the plugin. */
typedef struct tutti_share tutti_share;
typedef struct tutti_mapping tutti_mapping;

/* The device whose streams address a share at one end. Lives until the call returns. */
typedef struct tutti_mapped_device {
  uint32_t struct_size;
  uint32_t kind;   /* TUTTI_MEMORY_* of the device, never TUTTI_MEMORY_HOST */
  uint32_t device; /* its number in this process */
  uint32_t reserved;
} tutti_mapped_device;

/* The memory to share. Lives until share returns. */
typedef struct tutti_share_config {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t tag;
  void* address;  /* in one allocation of the device, which stays the caller's; NULL: host memory that the transport
                     makes */
  uint64_t bytes; /* more than 0 */
  const tutti_mapped_device* device; /* the one that has the memory, or whose streams use the host memory */
} tutti_share_config;

/* Where memory is. The caller sets struct_size to the capacity it has. */
typedef struct tutti_mapped_place {
  uint32_t struct_size;
  uint32_t reserved;
  void* device;   /* as streams address it */
  void* host;     /* as processors address it; NULL for device memory */
  uint64_t bytes; /* of the share */
} tutti_mapped_place;

typedef struct tutti_mapped {
  uint32_t struct_size;
  uint32_t stamp; /* TUTTI_MAPPED_STAMP */
  /* [progress] Offers memory to the peer of a link, and fills *place with where this end has it. TUTTI_NOT_SUPPORTED:
   * memory of this kind is not shared, or this allocation cannot be exported. TUTTI_PEER_FAILED: the link has ended. */
  tutti_status (*share)(tutti_link* link, const tutti_share_config* config, tutti_share** share,
                        tutti_mapped_place* place);
  /* [progress] Has the peer mapped it? TUTTI_OK: it has. TUTTI_AGAIN: not yet, or not any more. Any other status is the
   * one with which the peer could not map it; set_error then has the peer's reason. TUTTI_PEER_FAILED: the peer is lost
   * and has not mapped it. */
  tutti_status (*share_state)(tutti_share* share);
  /* [progress] Ends the offer.
   * TUTTI_OK: the share is gone, and the peer does not address the memory any more. Device memory may be released.
   * TUTTI_AGAIN: the peer still has a mapping. Call again after progress, also after abort, which unmaps nothing.
   * TUTTI_PEER_FAILED: the share is gone, but the peer may live and address the memory. The caller keeps device memory
   * until this process ends; the transport keeps host memory. */
  tutti_status (*withdraw)(tutti_share* share);
  /* [progress] Maps the peer's share of that tag for streams of a device. TUTTI_OK: *mapping is there, *place filled;
   * the peer's share_state will be TUTTI_OK. TUTTI_AGAIN: the peer has not offered it yet; call again after progress.
   * The peer's share_state returns an error of this function, too. TUTTI_MISMATCH: the peer's share is on another kind
   * of device. The peer's offer is checked as untrusted input. */
  tutti_status (*open_mapping)(tutti_link* link, uint64_t tag, const tutti_mapped_device* device,
                               tutti_mapping** mapping, tutti_mapped_place* place);
  /* [progress] No command and no processor may use the mapping any more. The peer is notified. */
  tutti_status (*close_mapping)(tutti_mapping* mapping);
  /* [progress] This rank neither shares nor maps memory of that tag. At the peer, share_state of a share of the tag
   * (made before or later) returns `status`, and so does open_mapping of the tag; set_error then has `why`. Each
   * decline is reported once. Only one end may share memory of a tag that may be declined, so that it is clear which
   * use is meant. `status` is an error; `why` is copied, and may be cut. TUTTI_PEER_FAILED: the link has ended. */
  tutti_status (*decline)(tutti_link* link, uint64_t tag, tutti_status status, const char* why);
} tutti_mapped;

#ifdef __cplusplus
}
#endif

TUTTI_MANDATORY(tutti_mapped_device, reserved);
TUTTI_MANDATORY(tutti_share_config, device);
TUTTI_MANDATORY(tutti_mapped_place, bytes);
TUTTI_MANDATORY(tutti_mapped, decline);
#endif
