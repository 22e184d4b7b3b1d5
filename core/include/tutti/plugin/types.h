/* SPDX-License-Identifier: Apache-2.0
 *
 * The vocabulary that applications, plugins and the core share: status codes, data types, operators,
 * collectives, memory kinds, and the rules by which structs grow.
 *
 * Growth rules (docs/abi.md has them all):
 *  - A struct or table that crosses the boundary starts with `uint32_t struct_size`, set by whoever fills it. New
 *    fields are appended in whole 8-byte units and zero means the old behaviour. A field is present when
 *    offset + size <= struct_size: test it with TUTTI_HAS.
 *  - Elements of hot arrays (tutti_transfer, tutti_completion, tutti_step, ...) have no struct_size: their layout
 *    is frozen, with reserved bytes that must be zero.
 *  - In an output struct the caller sets struct_size to the capacity it has; the callee fills what fits.
 *  - Flags: the low 32 bits must be understood by the receiver (else TUTTI_NOT_SUPPORTED), the high 32 may be ignored.
 */
#ifndef TUTTI_PLUGIN_TYPES_H
#define TUTTI_PLUGIN_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_ABI_MAJOR 1u
#define TUTTI_ABI_MINOR 0u

#if defined(__GNUC__)
#define TUTTI_EXPORT __attribute__((visibility("default")))
#else
#define TUTTI_EXPORT
#endif

/* Is `field` of the struct that `pointer` names within the size that its author filled? */
#define TUTTI_HAS_FIELD(type, pointer, field) \
  ((pointer)->struct_size >= offsetof(type, field) + sizeof(((const type*)0)->field))
/* Is the optional function or pointer `field` there: present by size and not null? */
#define TUTTI_HAS(type, pointer, field) (TUTTI_HAS_FIELD(type, pointer, field) && (pointer)->field != 0)

/* What a call came to. Zero is success, positive is no error, negative is an error. */
typedef int32_t tutti_status;
enum {
  TUTTI_OK = 0,
  TUTTI_AGAIN = 1, /* nothing is wrong; not possible yet, call again after progress */

  TUTTI_INVALID_ARGUMENT = -1, /* the caller passed something that can never be right */
  TUTTI_NOT_SUPPORTED = -2,    /* legal, but not offered here; the error text says what is */
  TUTTI_NOT_FOUND = -3,        /* a name that nobody answers to */
  TUTTI_NO_RESOURCES = -4,     /* out of memory, descriptors, slots */
  TUTTI_TIMEOUT = -5,          /* a deadline passed */
  TUTTI_PEER_FAILED = -6,      /* another rank is gone or unreachable */
  TUTTI_ABORTED = -7,          /* ended by abort, revoke or shutdown */
  TUTTI_MISMATCH = -8,         /* ranks disagree about what they are doing or what they are */
  TUTTI_SYSTEM = -9,           /* the operating system refused; the error text has its words */
  TUTTI_INVALID_USAGE = -10,   /* right call, wrong moment: after destroy, from a second thread, in a forked child */
  TUTTI_INTERNAL = -11         /* a defect of Tutti or of a plugin */
};

/* Data types. Zero is none, so that a zeroed struct names nothing by accident. */
enum {
  TUTTI_INT8 = 1,
  TUTTI_INT16 = 2,
  TUTTI_INT32 = 3,
  TUTTI_INT64 = 4,
  TUTTI_UINT8 = 5,
  TUTTI_UINT16 = 6,
  TUTTI_UINT32 = 7,
  TUTTI_UINT64 = 8,
  TUTTI_FLOAT16 = 9,   /* IEEE 754 binary16 */
  TUTTI_BFLOAT16 = 10, /* the upper half of a binary32 */
  TUTTI_FLOAT32 = 11,
  TUTTI_FLOAT64 = 12
};

/* Reduction operators. Integers wrap; integer avg is the wrapped sum divided, truncated toward zero; min and max
 * give NaN if any operand is NaN and order -0 before +0; every reducing step rounds once, to nearest even. */
enum { TUTTI_SUM = 1, TUTTI_PROD = 2, TUTTI_MIN = 3, TUTTI_MAX = 4, TUTTI_AVG = 5 };

/* Collectives that run as schedules. (send and recv are not schedules.) */
enum {
  TUTTI_BROADCAST = 1,
  TUTTI_REDUCE = 2,
  TUTTI_ALL_REDUCE = 3,
  TUTTI_GATHER = 4,
  TUTTI_ALL_GATHER = 5,
  TUTTI_SCATTER = 6,
  TUTTI_REDUCE_SCATTER = 7,
  TUTTI_ALL_TO_ALL = 8,
  TUTTI_BARRIER = 9
};

/* Kinds of memory, and masks of them (1u << kind). */
enum {
  TUTTI_MEMORY_HOST = 0,
  TUTTI_MEMORY_CUDA = 1,
  TUTTI_MEMORY_SIMULATED = 2 /* host memory in the place of a device's, for tests */
};

/* How far apart two ranks are; a transport says the farthest that it reaches. */
enum {
  TUTTI_REACH_PROCESS = 1, /* ranks of one process */
  TUTTI_REACH_HOST = 2,    /* processes of one host */
  TUTTI_REACH_NETWORK = 3  /* hosts */
};

/* Log levels. */
enum { TUTTI_LOG_ERROR = 1, TUTTI_LOG_WARN = 2, TUTTI_LOG_INFO = 3, TUTTI_LOG_DEBUG = 4, TUTTI_LOG_TRACE = 5 };

#ifdef __cplusplus
}
#endif
#endif
