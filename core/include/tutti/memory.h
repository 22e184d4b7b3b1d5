/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that transports address directly: of the process, and windows of a communicator. tutti.h includes this.
 */
#ifndef TUTTI_MEMORY_H
#define TUTTI_MEMORY_H

#include <tutti/plugin/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

struct tutti_comm;
typedef struct tutti_window tutti_window;

/* Memory that transports can address directly (shared memory between processes of a host), aligned to 4096 bytes,
 * zeroed. Use it for buffers of large collectives. Belongs to the process, for use with all communicators. Forked
 * children share it: the parent and its operations see what a child writes there. Where the system refuses memory that
 * other processes can map, it is ordinary memory, and its messages are copied. */
tutti_status tutti_mem_alloc(uint64_t bytes, void** address);
/* No operation may use the memory any more. */
tutti_status tutti_mem_free(void* address);
/* Makes memory that the application has mapped (MAP_SHARED) from descriptor `fd` (a memfd) at fd_offset directly
 * addressable. It stays the application's; fd may be closed afterwards. Device memory is TUTTI_NOT_SUPPORTED: see
 * tutti_comm_register. */
tutti_status tutti_mem_register(void* address, uint64_t bytes, int32_t fd, uint64_t fd_offset);
/* No operation may use the memory any more. */
tutti_status tutti_mem_deregister(void* address);

/* ---- Windows ---------------------------------------------------------------------------------------------
 *
 * A window is memory that all ranks of a communicator have registered together (as by NCCL's ncclCommWindowRegister).
 * Other processes of the host read device memory of a window in place, which saves a copy. Transports get host memory
 * of a window registered once.
 *
 * Rule. A collective on device memory uses windows when its buffers lie in windows that are used in place, whatever its
 * size, also in a captured graph. The buffers that decide are `in` and `out` of all_reduce, all_gather, reduce_scatter
 * and all_to_all, `out` of broadcast, and `in` of reduce and gather. Each of them must be at the same offset of the
 * same window on all ranks, or in no window on any rank; all_reduce, all_gather, reduce_scatter and all_to_all are then
 * in place on all ranks or on none. Each rank decides by itself, so a call sends no message and waits for no other
 * rank. Checked mode compares the places: TUTTI_MISMATCH. Otherwise a difference is found at the first call of a shape
 * or at the deadline. The first call of a shape in windows waits until all ranks have come to it. scatter does not use
 * windows. tutti_comm_plan and tutti_comm_traffic say "window". */

enum { TUTTI_WINDOW_ZERO_COPY = 1u << 0 /* fail where the window would be staged */ };
/* Options of the functions below; NULL: all defaults. */
typedef struct tutti_window_options {
  uint32_t struct_size;
  uint32_t flags;      /* TUTTI_WINDOW_*; of tutti_comm_deregister: must be 0 */
  uint64_t timeout_ns; /* 0: the communicator's */
} tutti_window_options;

/* Collective: every rank registers `bytes` bytes at its `address`, all on the host or all on a device: all or part of
 * one allocation. The ranks are threads of one process or processes. The call waits until the device has finished the
 * communicator's pending calls. The memory stays the application's and must not be freed before tutti_comm_deregister
 * has returned TUTTI_OK or the communicator has been destroyed. A call on device memory that was freed earlier is
 * TUTTI_INVALID_ARGUMENT.
 *
 * All ranks get the same answer. Where memory cannot be exported, mapped or registered with a transport, the window is
 * made but staged: calls work as without it, and tutti_comm_window says why; with TUTTI_WINDOW_ZERO_COPY on any rank it
 * is TUTTI_NOT_SUPPORTED instead. Ranks that register different sizes or kinds of memory: TUTTI_MISMATCH naming both. A
 * range that overlaps another window of the communicator: TUTTI_INVALID_ARGUMENT naming the rank. After these errors
 * the communicator is usable. A rank that dies, or does not come by the deadline, breaks it. */
tutti_status tutti_comm_register(struct tutti_comm* comm, void* address, uint64_t bytes, const tutti_window_options* options,
                                 tutti_window** window);
/* Collective, for the same window on all ranks. Waits until the communicator's pending operations have ended on all
 * ranks; afterwards no other process maps the memory, and the handle is invalid. Graphs that use it must not be
 * replayed any more. A handle that is no window of the communicator is TUTTI_INVALID_ARGUMENT at once. On a broken
 * communicator it returns the communicator's error; tutti_comm_destroy then frees the window. */
tutti_status tutti_comm_deregister(struct tutti_comm* comm, tutti_window* window, const tutti_window_options* options);

typedef struct tutti_window_facts {
  uint32_t struct_size; /* set by the caller */
  uint32_t in_place;    /* 1: used in place; 0: staged */
  void* address;
  uint64_t bytes;
  const char* reason; /* of a staged one: which rank cannot, and why; else "". Lives as long as the window */
  uint64_t id;        /* the same on all ranks */
} tutti_window_facts;
/* Tells whether a window is used in place, and why not. The communicator's own thread. */
tutti_status tutti_comm_window(const struct tutti_comm* comm, const tutti_window* window, tutti_window_facts* facts);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

TUTTI_MANDATORY(tutti_window_options, timeout_ns);
TUTTI_MANDATORY(tutti_window_facts, id);
#endif
