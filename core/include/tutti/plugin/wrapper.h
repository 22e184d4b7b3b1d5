/* SPDX-License-Identifier: Apache-2.0
 *
 * wrapper/1: puts a transport over any other one, to process all that a job sends (plugins/checksum). TUTTI_WRAP lists
 * the plugins whose wrapper/1 a communicator puts over each of its transports, the innermost first. A plugin that wraps
 * one transport, named in its own settings, needs no wrapper/1: it offers a transport/1 and finds the other by
 * tutti_host.find_interface.
 */
#ifndef TUTTI_PLUGIN_WRAPPER_H
#define TUTTI_PLUGIN_WRAPPER_H

#include "transport.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_WRAPPER_ID "tutti.wrapper/1"
/* The draft's stamp: a hash of the layout below. The core refuses a plugin that was compiled with another. */
#define TUTTI_WRAPPER_STAMP 0x8b5cfe77u

typedef struct tutti_wrapper {
  uint32_t struct_size;
  uint32_t stamp; /* TUTTI_WRAPPER_STAMP */
  void* self;
  const char* summary; /* one line */
  /* [control] *outer is a transport over `inner`, with the name of `inner`; the same table each time. Both tables live
   * as long as the process. All ranks of a communicator wrap a transport, or none. The wrapper may keep 64 bytes of
   * each fragment for itself: its fragment_bytes may be so much smaller. */
  tutti_status (*wrap)(void* self, const tutti_transport* inner, const tutti_transport** outer);
} tutti_wrapper;

#ifdef __cplusplus
}
#endif

TUTTI_MANDATORY(tutti_wrapper, wrap);
#endif
