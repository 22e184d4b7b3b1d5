/* SPDX-License-Identifier: Apache-2.0
 *
 * The vocabulary that applications, plugins and the core share: status codes, data types, operators,
 * collectives, memory kinds, and the rules by which structs grow.
 *
 * Growth rules (docs/abi.md has them all):
 *  - A struct or table that crosses the boundary starts with `uint32_t struct_size`, set by whoever fills it. New
 *    fields are appended in whole 8-byte units and zero means the old behaviour. A field is present when
 *    offset + size <= struct_size: test it with TUTTI_HAS.
 *  - Each sized struct has a last mandatory field (TUTTI_MANDATORY). A struct that ends before it is refused. Later
 *    fields that the receiver does not know must be zero, else TUTTI_NOT_SUPPORTED: they may ask for something. Only
 *    tables of services for plugins (tutti_host, sinks) may offer more than the plugin knows.
 *  - Elements of hot arrays (tutti_transfer, tutti_completion, tutti_step, ...) have no struct_size: their layout
 *    is frozen, with reserved bytes that must be zero.
 *  - In an output struct the caller sets struct_size to the capacity it has; the callee fills what fits.
 *  - Flags: the receiver must understand bits 0 to 31 of a field of any width (else TUTTI_NOT_SUPPORTED). It may ignore
 *    bits 32 to 63.
 */
#ifndef TUTTI_PLUGIN_TYPES_H
#define TUTTI_PLUGIN_TYPES_H

#include <stddef.h>
#include <stdint.h>

/* States the last field that version 1 of a sized struct must have: struct_size is never less. Each header states it
 * for its structs; tutti/sized.hpp has the checks for C++. */
#define TUTTI_SIZE_UP_TO(type, field) (offsetof(type, field) + sizeof(((const type*)0)->field))
#ifdef __cplusplus
template <typename Struct>
struct tutti_mandatory;
#define TUTTI_MANDATORY(type, last)                                 \
  template <>                                                       \
  struct tutti_mandatory<type> {                                    \
    static constexpr uint32_t bytes = TUTTI_SIZE_UP_TO(type, last); \
    static constexpr const char* name = #type;                      \
  }
#else
#define TUTTI_MANDATORY(type, last) _Static_assert(TUTTI_SIZE_UP_TO(type, last) <= sizeof(type), #type)
#endif

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

/* True if `field` lies within the size that the author of `*pointer` filled. */
#define TUTTI_HAS_FIELD(type, pointer, field) ((pointer)->struct_size >= TUTTI_SIZE_UP_TO(type, field))
/* True if the optional function or pointer `field` is present by size and not null. */
#define TUTTI_HAS(type, pointer, field) (TUTTI_HAS_FIELD(type, pointer, field) && (pointer)->field != 0)

/* The result of a call. Zero is success, positive is not an error, negative is an error. */
typedef int32_t tutti_status;
enum {
  TUTTI_OK = 0,
  TUTTI_AGAIN = 1, /* nothing is wrong; not possible yet, call again after progress */

  TUTTI_INVALID_ARGUMENT = -1, /* the caller passed something that can never be right */
  TUTTI_NOT_SUPPORTED = -2,    /* legal, but not offered here; the error text says what is */
  TUTTI_NOT_FOUND = -3,        /* an unknown name */
  TUTTI_NO_RESOURCES = -4,     /* out of memory, descriptors, slots */
  TUTTI_TIMEOUT = -5,          /* a deadline passed */
  TUTTI_PEER_FAILED = -6,      /* another rank is gone or unreachable */
  TUTTI_ABORTED = -7,          /* ended by abort, revoke or shutdown */
  TUTTI_MISMATCH = -8,         /* ranks disagree about what they are doing or what they are */
  TUTTI_SYSTEM = -9,           /* the operating system refused; the error text has its words */
  TUTTI_INVALID_USAGE = -10,   /* right call, wrong moment: after destroy, from a second thread, in a forked child */
  TUTTI_INTERNAL = -11         /* a defect of Tutti or of a plugin */
};

/* Data types. Zero is not a type, so a zeroed struct names none by accident. docs/types.md has the table of which
 * operators go with which type, and the rules of each. */
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
  TUTTI_FLOAT64 = 12,
  TUTTI_FLOAT8_E4M3 = 13,   /* OCP 8-bit floating point, no infinities: beyond 448 is NaN (float8_e4m3fn) */
  TUTTI_FLOAT8_E5M2 = 14,   /* OCP 8-bit floating point, with infinities */
  TUTTI_BOOL = 15,          /* one byte: 0 is false, all else true; operators give 0 or 1 */
  TUTTI_COMPLEX64 = 16,     /* two float32: real and imaginary part */
  TUTTI_COMPLEX128 = 17,    /* two float64 */
  TUTTI_FLOAT32_INT32 = 18, /* {float value; int32_t index;}, 8 bytes: for minloc and maxloc */
  TUTTI_FLOAT64_INT64 = 19  /* {double value; int64_t index;}, 16 bytes */
};

/* Reduction operators. Integers wrap; integer avg is the wrapped sum divided, truncated toward zero; min and max
 * give NaN if any operand is NaN and order -0 before +0; every reducing step rounds once, to nearest even. */
enum { TUTTI_SUM = 1, TUTTI_PROD = 2, TUTTI_MIN = 3, TUTTI_MAX = 4, TUTTI_AVG = 5 };
/* Bit by bit, on integers and bool. */
enum { TUTTI_BAND = 6, TUTTI_BOR = 7, TUTTI_BXOR = 8 };
/* Logical, on integers and bool: 0 is false, all else true; gives 0 or 1. */
enum { TUTTI_LAND = 9, TUTTI_LOR = 10, TUTTI_LXOR = 11 };
/* On pairs, and only these: the pair with the least or greatest value, as min and max order them (NaN wins, -0 is less
 * than +0); of equal values the one with the lowest index. */
enum { TUTTI_MINLOC = 12, TUTTI_MAXLOC = 13 };
/* Operators from here on belong to applications (tutti_op_create). No device and no plugin gets one. */
enum { TUTTI_FIRST_USER_OP = 0x10000 };

/* Collectives that run as schedules. (send and recv are not schedules.) A mask of them has bit 1 << TUTTI_BROADCAST and
 * so on: all numbers are less than 64, and those that are not listed belong to Tutti. */
enum {
  TUTTI_BROADCAST = 1,
  TUTTI_REDUCE = 2,
  TUTTI_ALL_REDUCE = 3,
  TUTTI_GATHER = 4,
  TUTTI_ALL_GATHER = 5,
  TUTTI_SCATTER = 6,
  TUTTI_REDUCE_SCATTER = 7,
  TUTTI_ALL_TO_ALL = 8,
  TUTTI_BARRIER = 9,
  /* The same with blocks of unequal sizes (v-forms): see "Unequal blocks" in algorithm.h. */
  TUTTI_GATHER_V = 10,
  TUTTI_ALL_GATHER_V = 11,
  TUTTI_SCATTER_V = 12,
  TUTTI_REDUCE_SCATTER_V = 13,
  TUTTI_ALL_TO_ALL_V = 14,
  /* Prefix reductions, in the order of ranks: of ranks 0 ... r at rank r, or of ranks 0 ... r-1. */
  TUTTI_SCAN = 15,
  TUTTI_EXCLUSIVE_SCAN = 16
};

/* Kinds of memory, and masks of them (uint64_t{1} << kind). A device without a number here gets one by its name from
 * tutti_host.memory_kind. That number is valid in its process only. */
enum {
  TUTTI_MEMORY_HOST = 0,
  TUTTI_MEMORY_CUDA = 1,
  TUTTI_MEMORY_SIMULATED = 2, /* host memory that stands for a device's, for tests */
  TUTTI_FIRST_NAMED_MEMORY = 16,
  TUTTI_LAST_NAMED_MEMORY = 63
};

/* How far apart two ranks are. A transport states the farthest that it reaches. Compared by order: each includes those
 * before it; a fabric reaches the hosts that it joins. The numbers leave room for more. */
enum {
  TUTTI_REACH_PROCESS = 10, /* ranks of one process */
  TUTTI_REACH_HOST = 20,    /* processes of one host: of one running kernel, network namespace and user */
  TUTTI_REACH_FABRIC = 25,  /* hosts that a fabric joins (an NVLink domain): tutti_transport_caps.fabric names it */
  TUTTI_REACH_NETWORK = 30  /* hosts */
};

/* Log levels. */
enum { TUTTI_LOG_ERROR = 1, TUTTI_LOG_WARN = 2, TUTTI_LOG_INFO = 3, TUTTI_LOG_DEBUG = 4, TUTTI_LOG_TRACE = 5 };

#ifdef __cplusplus
}
#endif
#endif
