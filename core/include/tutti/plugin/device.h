/* SPDX-License-Identifier: Apache-2.0
 *
 * device/1: a kind of memory that is not the host's. executor/1: streams of work on it. A plugin offers both: its i-th
 * executor belongs to its i-th device. Neither knows anything of collectives: the core turns a schedule into commands
 * for one stream.
 *
 * Streams. A stream is the device's own handle (a cudaStream_t), made by the application or by create_stream; NULL is
 * the device's default stream. Commands of one stream are carried out in order; those of different streams are ordered
 * by events and flags only. No function here waits for the device, unless its comment says that it may.
 *
 * Flags. A flag is an aligned 4-byte value in host memory that map_host has made visible to streams. Flags order a
 * stream and the processors of the host, or streams of different processes. Streams of one process use events, and a
 * WAIT only for a WRITE that was enqueued before it: a WAIT for a later WRITE could hold up the stream that has to
 * carry that WRITE out.
 *
 * Threads: [any] any thread at any time.
 */
#ifndef TUTTI_PLUGIN_DEVICE_H
#define TUTTI_PLUGIN_DEVICE_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_DEVICE_ID "tutti.device/1"
#define TUTTI_EXECUTOR_ID "tutti.executor/1"
/* The drafts' stamps: hashes of the layouts below. The core refuses a plugin that was compiled with others. */
#define TUTTI_DEVICE_STAMP 0xbfcdb0e0u
#define TUTTI_EXECUTOR_STAMP 0xb5b84c79u

/* A point in a stream's work. Opaque; belongs to the plugin. */
typedef struct tutti_event tutti_event;

typedef struct tutti_device_caps {
  uint32_t struct_size;
  uint32_t memory_kind; /* the value of tutti_host.memory_kind for the device's name, never TUTTI_MEMORY_HOST */
  uint32_t devices;     /* how many this process sees, numbered from 0 */
  uint32_t reserved;
  uint64_t flags;  /* TUTTI_DEVICE_* */
  uint64_t dtypes; /* mask of 1 << TUTTI_FLOAT32 ...: REDUCE takes these types ... */
  uint64_t ops; /* ... with each of these operators, 1 << TUTTI_SUM ..., that is defined for the type (docs/types.md);
                   others are TUTTI_NOT_SUPPORTED. TUTTI_AVG is not among them: it is TUTTI_SUM with a divisor */
  uint64_t exact_dtypes; /* mask of types in which REDUCE by TUTTI_SUM takes TUTTI_COMMAND_EXACT: of TUTTI_FLOAT16,
                            TUTTI_BFLOAT16, TUTTI_FLOAT32 and TUTTI_FLOAT64, those that `dtypes` has or fewer */
} tutti_device_caps;

enum { TUTTI_DEVICE_EXPORTS = 1u << 0 /* export_memory and import_memory work between processes of this host */ };

/* One device of the kind. An unknown value is 0, -1 or NULL. */
typedef struct tutti_device_facts {
  uint32_t struct_size;
  int32_t numa; /* the NUMA node that is nearest to it; -1: not known, and the core asks the system by `pci` */
  const char* pci;          /* its PCI address in lower case: "0000:3b:00.0". Lives as long as the process */
  uint64_t link_latency_ns; /* estimate: a command that reads memory of another device of the host, or of the same one
                               in another process */
  uint64_t link_bandwidth;  /* estimate: bytes per second of such a command */
  uint64_t copy_bandwidth;  /* estimate: bytes per second of a copy between its memory and the host's */
} tutti_device_facts;

/* The allocation at an address. */
typedef struct tutti_pointer {
  uint32_t struct_size;
  uint32_t kind;   /* TUTTI_MEMORY_*; TUTTI_MEMORY_HOST: not memory of this plugin */
  uint32_t device; /* whose memory it is */
  uint32_t reserved;
  void* base;         /* of the allocation that holds it */
  uint64_t bytes;     /* of that allocation */
  uint64_t buffer_id; /* different for any two allocations of a process, also when an address is reused */
} tutti_pointer;

/* An allocation on its way to another process of the host. Frozen layout, 256 bytes, plain data: it may be copied
 * through sockets and shared memory. A descriptor, where there is one, travels beside it. */
typedef struct tutti_memory_export {
  uint32_t form; /* plugin-defined: how the bytes below are read */
  uint32_t device;
  uint64_t bytes;  /* of the allocation */
  uint64_t offset; /* of the exported address in it */
  uint64_t buffer_id;
  uint32_t data_bytes; /* how many of the bytes below the form has; the others are zero */
  uint32_t reserved;
  uint8_t data[216];
} tutti_memory_export;

typedef struct tutti_device {
  uint32_t struct_size;
  uint32_t stamp; /* TUTTI_DEVICE_STAMP */
  void* self;
  const char* name;    /* what users type: "cuda". Unique among devices. Lives as long as the process. */
  const char* summary; /* one line */

  /* [any] TUTTI_NOT_SUPPORTED (with set_error) where this machine has no such device or driver. */
  tutti_status (*query)(void* self, tutti_device_caps* caps);
  /* [any] Called for every buffer of every call: quick. Never fails for an address outside its memory. Memory that was
   * freed is TUTTI_INVALID_ARGUMENT where the device can tell. */
  tutti_status (*classify)(void* self, const void* address, tutti_pointer* pointer);
  /* [any] Memory of a device, aligned to 256 bytes. May wait for the device. */
  tutti_status (*allocate)(void* self, uint32_t device, uint64_t bytes, void** address);
  tutti_status (*release)(void* self, void* address);
  /* [any] Makes pages of host memory visible to all devices' streams; *device_address is where they see it. The memory
   * stays the caller's and is unmapped before it is freed. Both may wait for the device. */
  tutti_status (*map_host)(void* self, void* address, uint64_t bytes, void** device_address);
  tutti_status (*unmap_host)(void* self, void* address);
  /* [any] May streams of `device` read memory of `peer`? TUTTI_OK: they may from now on. May wait for the device. */
  tutti_status (*enable_peer)(void* self, uint32_t device, uint32_t peer);
  /* Optional, all or none. [any] *fd is -1, or a descriptor that the importer needs and that the caller closes. */
  tutti_status (*export_memory)(void* self, const void* address, tutti_memory_export* memory, int32_t* fd);
  /* [any] The base of the exporter's allocation as streams of `device` see it. `memory` is checked as untrusted input.
   * It and close_import may wait for the device. */
  tutti_status (*import_memory)(void* self, uint32_t device, const tutti_memory_export* memory, int32_t fd,
                                void** base);
  tutti_status (*close_import)(void* self, void* base);
  /* Optional. [any] A dma-buf of [address, address + bytes), which lies in one allocation: *fd is the caller's, and
   * [*offset, *offset + bytes) of it is that memory itself until the allocation is released. Adapters read and write
   * the memory by it (tutti_memory in transport.h). TUTTI_NOT_SUPPORTED where this machine's driver makes none. */
  tutti_status (*export_dmabuf)(void* self, const void* address, uint64_t bytes, int32_t* fd, uint64_t* offset);
  /* Optional. [any] Identifies the piece of hardware by 16 bytes. They are the same for a device in every process and
   * container of the host, however each numbers its devices. They differ for any two devices that can work at the same
   * time without sharing anything. Parts of a device that have processors of their own are devices. */
  tutti_status (*identify)(void* self, uint32_t device, uint8_t* id);
  /* Optional. [any] Where a device is, and estimates of its speed. An unknown device is an error. */
  tutti_status (*describe)(void* self, uint32_t device, tutti_device_facts* facts);
} tutti_device;

/* The commands. */
enum {
  TUTTI_COMMAND_COPY = 1,   /* dst = the one source, `count` bytes */
  TUTTI_COMMAND_REDUCE = 2, /* dst = source 0 op source 1 op ..., `count` elements: a left fold in the
                               accumulator type, divided by `divisor` unless that is 0, rounded once (SDK's
                               arithmetic.hpp has the rules, which are the host's) */
  TUTTI_COMMAND_WAIT =
      3,                    /* until *flag == value; what was written before it was set is visible afterwards. The core
                               relies on nothing for greater values: a later revision may wait for *flag >= value */
  TUTTI_COMMAND_WRITE = 4,  /* *flag = value, after all earlier commands of the stream and visibly so to the host */
  TUTTI_COMMAND_RECORD = 5, /* `event` is this point of the stream, from now on */
  TUTTI_COMMAND_AFTER = 6   /* until the work before `event`, as recorded when this is enqueued, is done */
};

enum {
  TUTTI_COMMAND_EXACT = 1u << 0 /* of a REDUCE by TUTTI_SUM: the real sum of all sources, divided by `divisor` unless
                                   that is 0, is rounded once, so that the order of the sources does not matter
                                   (SDK's exact_sum.hpp has the rules) */
};

/* One command. Frozen layout, 80 bytes; fields and flags that the kind does not use are zero, `reserved` always. An
 * executor refuses what it does not know in them with TUTTI_NOT_SUPPORTED. Addresses need no alignment. The destination
 * may be exactly one of the sources; apart from that nothing overlaps. */
typedef struct tutti_command {
  uint32_t kind; /* TUTTI_COMMAND_* */
  uint32_t dtype;
  uint32_t op;      /* not TUTTI_AVG: that is TUTTI_SUM with a divisor */
  uint32_t sources; /* how many addresses `src` has */
  void* dst;
  const void* const* src; /* read before enqueue returns */
  uint64_t count;
  uint64_t divisor;
  uint32_t* flag; /* as the device sees it */
  uint32_t value;
  uint32_t flags; /* TUTTI_COMMAND_EXACT */
  tutti_event* event;
  uint64_t reserved;
} tutti_command;

enum { TUTTI_STREAM_CAPTURING = 1u << 0 /* commands are recorded for later replays, not carried out */ };

/* The capabilities of the executor of one device. They must be exact: conformance tests what is claimed and what is
 * not. */
typedef struct tutti_executor_caps {
  uint32_t struct_size;
  uint32_t max_fused_commands; /* a list of enqueue_fused has at most so many commands and sources of commands, counted
                                  together; 0: it takes none */
  uint64_t max_fused_bytes;    /* and reads at most so many bytes, those of all sources together */
} tutti_executor_caps;

typedef struct tutti_executor {
  uint32_t struct_size;
  uint32_t stamp; /* TUTTI_EXECUTOR_STAMP */
  void* self;
  /* [any] Loads what the first commands on a device would load, so that no enqueue waits. May wait for the device. */
  tutti_status (*prepare)(void* self, uint32_t device);
  /* Optional, both or neither. [any] For tools and tests; applications use the device's own streams. Without them the
   * default stream alone is tested. */
  tutti_status (*create_stream)(void* self, uint32_t device, void** stream);
  tutti_status (*destroy_stream)(void* self, void* stream);
  /* [any] The device of a stream (of NULL: the thread's current one), TUTTI_STREAM_* flags, and in the upper 32 bits a
   * number that no other stream of the process has; 0: not known. For NULL it takes nothing of an unused device. */
  tutti_status (*stream_state)(void* self, void* stream, uint32_t* device, uint64_t* flags);
  tutti_status (*create_event)(void* self, uint32_t device, tutti_event** event);
  /* [any] No command names it any more. */
  void (*destroy_event)(void* self, tutti_event* event);
  /* [any] Is the work before the event done? TUTTI_AGAIN: not yet. An error is the device's, and its text names the
   * call. May wait for as long as another thread waits for the device. */
  tutti_status (*query_event)(void* self, tutti_event* event);
  /* [any; one thread per stream at a time] Appends all commands; none if one is wrong; some if the device fails. */
  tutti_status (*enqueue)(void* self, void* stream, const tutti_command* commands, uint32_t n);
  /* Optional. [any; one thread per stream at a time] As enqueue, as one piece of work that the device is given once: it
   * carries out the commands by itself, with the same results, and is busy where a WAIT waits. For COPY, REDUCE, WAIT
   * and WRITE within the limits of query; anything else is TUTTI_NOT_SUPPORTED. The caller guarantees that the awaited
   * flags are set without further work of this device, and that no other process waits on the same device meanwhile
   * (tutti_device.identify). */
  tutti_status (*enqueue_fused)(void* self, void* stream, const tutti_command* commands, uint32_t n);
  /* Optional, with enqueue_fused or neither. [any] The capabilities of a device's executor. An unknown device is an
   * error. */
  tutti_status (*query)(void* self, uint32_t device, tutti_executor_caps* caps);
} tutti_executor;

#ifdef __cplusplus
}
#endif

TUTTI_MANDATORY(tutti_device_caps, ops);
TUTTI_MANDATORY(tutti_device_facts, pci);
TUTTI_MANDATORY(tutti_pointer, buffer_id);
TUTTI_MANDATORY(tutti_device, enable_peer);
TUTTI_MANDATORY(tutti_executor_caps, max_fused_bytes);
TUTTI_MANDATORY(tutti_executor, enqueue);
#endif
