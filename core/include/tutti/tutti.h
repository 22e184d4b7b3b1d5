/* SPDX-License-Identifier: Apache-2.0
 *
 * Tutti's C API: communicators and collectives; registered memory (memory.h) and reports (reports.h) with them.
 *
 * Every function returns a tutti_status (types.h): zero is success. tutti_comm_error returns the text of a
 * communicator's last error: who, expected against actual, and what to do. Structs are sized: zero them, set
 * struct_size, fill in what you need. Zero means the default.
 *
 * Threads. One thread at a time uses a communicator. Different threads may use different communicators at once. Any
 * wait inside Tutti also advances the pending operations of the process's other communicators. tutti_comm_abort,
 * tutti_comm_revoke, tutti_comm_async_error, tutti_comm_lost and the tutti_mem_* functions may be called by any thread
 * at any time, also while another thread is in tutti_comm_destroy.
 *
 * Processes. After fork() a child may only exec or exit. In the child, every call on a communicator or request of the
 * parent returns TUTTI_INVALID_USAGE and does not affect the parent. tutti_request_free frees the child's copy.
 *
 * Counts are elements. For gather, all_gather, scatter, reduce_scatter and all_to_all they are per rank: `count`
 * elements from or to each rank. A collective is in place when `in` and `out` are equal at these offsets: broadcast,
 * reduce, all_reduce, all_to_all, scans: out == in; gather and all_gather: in == out + rank * count; scatter and
 * reduce_scatter: out == in + rank * count. Some ranks may call in place and others not. Any other overlap is an error.
 * Buffers that a rank does not use are ignored and may be NULL: `in` of broadcast and scatter, `out` of reduce and
 * gather, on ranks other than the root; `out` of exclusive_scan on rank 0.
 */
#ifndef TUTTI_H
#define TUTTI_H

#include <tutti/memory.h>
#include <tutti/plugin/entry.h>
#include <tutti/plugin/types.h>
#include <tutti/reports.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

typedef struct tutti_comm tutti_comm;
typedef struct tutti_request tutti_request;

/* "0.1.0". */
const char* tutti_version(void);
/* "peer failed" for TUTTI_PEER_FAILED. Never NULL. */
const char* tutti_status_text(tutti_status status);

/* ---- Communicators ---------------------------------------------------------------------------------------- */

/* Exchanges `bytes` bytes with every rank: all[r * bytes ...] = rank r's `mine`. Blocks. Only tutti_comm_create calls
 * it, on the thread of that call and equally often on all ranks: the function and its context must live until
 * tutti_comm_create has returned. The connect timeout does not apply inside it. The function must bound its own waiting
 * and return an error (below 0) if a rank does not arrive: tutti_comm_create waits until it returns. */
typedef tutti_status (*tutti_all_gather_function)(void* context, const void* mine, uint64_t bytes, void* all);

enum {
  TUTTI_COMM_PROGRESS_THREAD = 1u << 0, /* a thread of the communicator advances asynchronous operations */
  TUTTI_COMM_JOIN = 1u << 1,            /* joins a communicator that grows: rendezvous is the id of its
                                           tutti_comm_invite; rank and nranks must be 0 and are assigned */
  TUTTI_COMM_CHECK_CALLS = 1u << 2, /* checked mode, as by TUTTI_CHECK=1: before each collective all ranks compare their
                                       calls; all ranks set it or none */
  TUTTI_COMM_CANONICAL_ORDER = 1u << 3, /* as by TUTTI_ORDER=canonical: the order of reductions (TUTTI_ORDER_*) is
                                           canonical; all ranks set it or none */
  TUTTI_COMM_EXACT_SUMS = 1u << 4 /* as by TUTTI_ORDER=exact: the order of reductions is exact; all ranks set it or
                                     none, and not with the one before */
};

/* The order in which reductions of numbers that round combine the ranks' contributions: that of the communicator
 * (TUTTI_ORDER, TUTTI_COMM_CANONICAL_ORDER, TUTTI_COMM_EXACT_SUMS), or of one call (tutti_options). */
enum {
  TUTTI_ORDER_DEFAULT = 0,   /* the communicator's */
  TUTTI_ORDER_FREE = 1,      /* whichever is fastest: it may differ between sizes, machines and versions */
  TUTTI_ORDER_CANONICAL = 2, /* a fixed tree over the numbers of the ranks: the same bits whatever algorithm, transport,
                                placement or memory carries them */
  TUTTI_ORDER_EXACT = 3      /* none: sums and averages are exact and rounded once, so that their bits depend on the
                                contributions alone. docs/exact-sums.md */
};

/* How the float32 numbers of one call travel (tutti_options). Contributions are rounded once, the rank's own too; sums
 * are float32; the result is rounded once more, so that all ranks get equal bits, unless each rank gets its own
 * (reduce_scatter). core/gradients/README.md has the error bounds. */
enum {
  TUTTI_WIRE_PLAIN = 0,    /* as they are; every type */
  TUTTI_WIRE_FLOAT16 = 1,  /* half the bytes; beyond 65504 is infinity */
  TUTTI_WIRE_BFLOAT16 = 2, /* half the bytes; the range of float32 */
  TUTTI_WIRE_FLOAT8 = 3    /* about a quarter: blocks of 32 float8_e4m3 with a power of two as scale; infinity is NaN */
};

/* The settings of a communicator. Strings are copied. A setting that must be equal on all ranks and is not is an error
 * that names two ranks and both values.
 *
 * A communicator is bound to one device per rank, or to none, when it is made. Its calls take host memory and memory of
 * that device. Memory of another device is TUTTI_INVALID_ARGUMENT. A call asks the device what `in` is (`out` where
 * there is no `in`), unless it lies in memory of tutti_mem_alloc or tutti_mem_register. `out` must be the same kind of
 * memory; the device is asked about it where `in` is device memory, and in checked mode. A communicator that is bound
 * to no device asks no device and treats every address as host memory. */
typedef struct tutti_comm_config {
  uint32_t struct_size;
  uint32_t flags;         /* TUTTI_COMM_* */
  const char* name;       /* for messages; NULL: "world" */
  const char* rendezvous; /* where the ranks meet:
                             NULL or "env"       the launcher's environment (TUTTI_*, torchrun, Open MPI, Hydra, Slurm,
                                                 PMIx, Kubernetes), and over the launcher where it offers that
                             "tcp://HOST:PORT"   rank 0 listens there
                             "id:..."            a tutti_unique_id's text
                             "file:/PATH"        a folder that all ranks see
                             "local:NAME"        ranks are threads of this process
                             "plugin:NAME:PLACE" by the plugin whose meeting/1 is called NAME; ":PLACE" is optional */
  uint32_t rank;          /* used when nranks is not 0 */
  uint32_t nranks;        /* 0: from the environment */
  uint64_t connect_timeout_ns; /* meeting and connecting; 0: TUTTI_CONNECT_TIMEOUT (seconds), else 30 s */
  uint64_t timeout_ns;         /* an operation without progress; 0: TUTTI_TIMEOUT (seconds), else 600 s */
  uint32_t windows;            /* operations in flight; 0: 4 */
  uint32_t lanes;              /* of each window; 0: 4 */
  uint64_t scratch_limit;      /* bytes of scratch that one operation may use; 0: 1 GiB */
  const char* transports;      /* which may be used, "shm,tcp"; NULL: TUTTI_TRANSPORT, else all that reach */
  const char* algorithms;      /* "all_reduce:ring,tree;all_gather:^doubling"; NULL: TUTTI_ALGO, else all */
  tutti_all_gather_function all_gather; /* not NULL: the ranks meet by this instead of `rendezvous` */
  void* all_gather_context;
  char* error; /* where tutti_comm_create writes why it failed, NUL-terminated, at most error_bytes; may be NULL.
                  Without it, and where struct_size was not set, the log has the text */
  uint64_t error_bytes;
  const char* device; /* the device to which this rank of the communicator is bound; it may differ between ranks:
                         NULL           TUTTI_DEVICE, else the calling thread's current device of the first kind that
                                        works here, in the order in which tutti-info lists them; none where none does
                         "none"         none: the communicator is for host memory alone
                         "cuda"         the calling thread's current device of that kind
                         "cuda:1"       device 1 of that kind
                         "cuda:local"   the device whose number is the launcher's local rank, modulo the number of
                                        devices */
} tutti_comm_config;

/* Collective: every rank calls it with the same configuration, apart from `rank`; returns when all have arrived, or
 * with an error by the deadline. config NULL: all defaults. */
tutti_status tutti_comm_create(const tutti_comm_config* config, tutti_comm** comm);
/* Collective: waits (at most the connect timeout) for all ranks, so that nothing sent is lost, then frees everything.
 * Pending requests end with TUTTI_ABORTED. The handle is invalid afterwards, whatever the status. Using it returns
 * TUTTI_INVALID_USAGE, and is undefined once 1,024 more communicators of the process have been destroyed. */
tutti_status tutti_comm_destroy(tutti_comm* comm);
/* Ends every pending operation of all ranks with TUTTI_ABORTED and `reason`; afterwards only error queries, shrink,
 * invite, grow and destroy work. It also ends a tutti_comm_destroy that waits for other ranks. Any thread.
 *
 * A call on device memory that another rank makes meanwhile returns
 *   TUTTI_OK        when its work was in the stream before that rank learned of the abort. The operation was pending:
 *                   its request ends with TUTTI_ABORTED, its work in the stream is released, outputs are undefined.
 *   TUTTI_ABORTED   when that rank learned of it first, or while the call waited for other ranks. There is no request.
 *                   Work that it has put into the stream is released, too. Its buffers are free again,
 *                   unless tutti_comm_error says what has to stay untouched.
 * The timing decides between the two. A stream that has completed does not show whether the call was carried out:
 * tutti_comm_async_error does. */
tutti_status tutti_comm_abort(tutti_comm* comm, const char* reason);
/* The same, for a rank that has seen a failure that others may not see, so that all can continue by
 * tutti_comm_shrink. */
tutti_status tutti_comm_revoke(tutti_comm* comm, const char* reason);
/* Lets the application end this thread's waits for other ranks before their deadlines. The waiting thread calls
 * `ask(context)` about ten times a second in tutti_comm_create, split, invite, shrink, grow, register, deregister and
 * destroy. If it returns another value than 0, the call ends with TUTTI_ABORTED, the other ranks learn that this rank
 * was interrupted, and a communicator that was waited on is broken. NULL, the default: nothing is called. `ask` may
 * call tutti_comm_abort, and no other function for that communicator. Meetings of plugins and of the application's own
 * all-gather end by their own rules. Collectives, sends and receives do not call `ask`: use tutti_request_wait_for with
 * short timeouts. */
typedef int32_t (*tutti_interrupt_function)(void* context);
void tutti_set_interrupt(tutti_interrupt_function ask, void* context);
/* Lets the application do work of its own while this thread waits for other ranks: a wait that moves nothing calls
 * `work(context)` at about each 64th poll and before it sleeps, then for a millisecond at most. It is for another
 * communication library, on whose progress the other ranks depend. `work` must be short and must not call Tutti for the
 * communicator that waits. Each thread has its own. NULL, the default: nothing is called. */
typedef void (*tutti_idle_function)(void* context);
void tutti_set_idle(tutti_idle_function work, void* context);
/* Sets where this thread makes its next calls ("train.py:14"), for reports of calls that wait. The text is copied; if
 * it is longer than 127 bytes, its end is kept. "": not known, nothing is reported. NULL, the default: once a call has
 * waited for 0.1 s, the library looks for the return address into the program, and reports it as symbol+offset, or
 * file+offset where the symbol is not exported. Meant for bindings to languages with a stack of their own. */
void tutti_set_call_site(const char* site);
/* TUTTI_OK, or the error that has broken the communicator (a lost peer, an abort), also while this rank is not inside
 * Tutti. Any thread. Work that is in streams already ends a moment later: wait for the stream before you reuse its
 * buffers. */
tutti_status tutti_comm_async_error(const tutti_comm* comm);
/* Text of the last error on this communicator; "" when there was none. The failure that broke it stays in the text:
 * which rank, why, and what this rank was doing. Valid until its next failing call. */
const char* tutti_comm_error(const tutti_comm* comm);
/* The ranks known to be lost, ascending: dead ones, stopped ones, those that aborted, and those that missed a deadline.
 * A rank that only noticed a failure is not among them. *n is the capacity of ranks on entry and the number of lost
 * ranks on return. Any thread. */
tutti_status tutti_comm_lost(const tutti_comm* comm, uint32_t* ranks, uint64_t* n);
/* Its name, for messages; "" for a handle that is not valid. Lives as long as the communicator. */
const char* tutti_comm_name(const tutti_comm* comm);
uint32_t tutti_comm_rank(const tutti_comm* comm);
uint32_t tutti_comm_nranks(const tutti_comm* comm);

/* Where a rank is. Hosts are told apart by TUTTI_HOST_ID, else by the system (its boot and its network namespace), so
 * containers may be hosts of their own. A launcher's LOCAL_RANK may differ. */
typedef struct tutti_host_facts {
  uint32_t struct_size;  /* set by the caller */
  uint32_t host;         /* the host's number: 0, 1 ... in the order of the hosts' first ranks */
  uint32_t hosts;        /* how many hosts the communicator's ranks are on */
  uint32_t local_rank;   /* the rank's number among the communicator's ranks on its host, in their order: 0, 1 ... */
  uint32_t local_nranks; /* how many of the communicator's ranks are on its host */
  uint32_t reserved;     /* 0 */
} tutti_host_facts;
/* The facts of any rank: those of this one by rank = tutti_comm_rank(comm). Sends no message; works also when the
 * communicator is broken. TUTTI_INVALID_ARGUMENT: no such rank, or a facts->struct_size that was not set. */
tutti_status tutti_comm_host(const tutti_comm* comm, uint32_t rank, tutti_host_facts* facts);

/* An address and a secret that one rank makes and the application hands to all (by MPI, a file, its own sockets). */
typedef struct tutti_unique_id {
  char text[512]; /* NUL-terminated "id:..."; use it as config.rendezvous. Keep it private: it contains the secret */
} tutti_unique_id;
/* The calling process listens from now on, so rank 0 of the communicator that uses the id must be in this process. */
tutti_status tutti_unique_id_create(tutti_unique_id* id);

/* ---- Splitting ---------------------------------------------------------------------------------------------
 *
 * A communicator can be split into parts, communicators of some of its ranks (as by MPI_Comm_split and ncclCommSplit).
 * A part has its parent's settings and devices. It has its own order of calls, its own windows and its own failures: an
 * abort or a missed deadline concerns it alone, and a dead rank breaks the communicators that contain it. Parts and
 * parent can be used at the same time, also from several threads, and parts can be split again. On device memory the
 * first call of a shape waits until other communicators of the process have nothing pending on the device. So where
 * several ranks share a device, order these calls so that the waits form no cycle: docs/streams.md.
 *
 * All parts of a family share one control plane, which the ranks make when they split for the first time. Each further
 * part costs no meeting, no thread and no connection; its endpoints and links open when they are first used. Parts and
 * parent are destroyed in any order. A process forwards the family's control messages even after its own communicators
 * have been destroyed. If it ends before the others, they may lose contact with each other. */

enum {
  TUTTI_SPLIT_BY_COLOR = 0,
  TUTTI_SPLIT_BY_HOST = 1,  /* the ranks of one color on a host */
  TUTTI_SPLIT_BY_NUMA = 2,  /* the ranks of one color at a NUMA node: that of the rank's device, else of its process */
  TUTTI_SPLIT_BY_DEVICE = 3 /* the ranks of one color that are bound to one piece of hardware */
};
/* The color of a rank that is to be in no part. */
#define TUTTI_NO_COLOR 0xffffffffu
typedef struct tutti_split {
  uint32_t struct_size;
  uint32_t by;    /* TUTTI_SPLIT_BY_*: the same on all ranks */
  uint32_t color; /* ranks of one color come into one part; TUTTI_NO_COLOR: this rank comes into none */
  uint32_t flags; /* no flag is defined: must be 0 */
  int64_t key;    /* the order in the part: by key, then by rank in the parent */
  const char* name; /* of the part, for messages; the same on all its ranks. NULL: the parent's name, the number of the
                       split and what the part is: "world.2:7", "world.3:host0" */
  uint64_t timeout_ns; /* for other ranks to come; 0: the communicator's */
} tutti_split;
/* Collective over all ranks of `comm`. `how` NULL: one part of all ranks in their order, a duplicate. *part is NULL on
 * a rank that is in no part: because of its color, or because its NUMA node or device is not known. Either every rank
 * gets its part or none does: an argument or a limit of one rank fails the call on all, naming the rank, and the
 * communicator stays usable. A rank that dies or misses the deadline breaks it. So does an abort of `comm` by a rank
 * that has its part already: on ranks without theirs the call fails, and the part is aborted. Pending operations go
 * on. */
tutti_status tutti_comm_split(tutti_comm* comm, const tutti_split* how, tutti_comm** part);

/* ---- Going on after a failure ------------------------------------------------------------------------------
 *
 * A communicator that has lost a rank stays broken. The surviving ranks make a new one, in their old order and with
 * the old configuration, and destroy the old one at any time. Pending operations must have ended, as they do when the
 * communicator breaks. On a healthy communicator these calls work too, and it stays usable. Of the options only
 * timeout_ns is used: how long to wait for live ranks; 0: the connect timeout. A stopped rank is left out after about
 * 3 s. If it stops while the ranks confirm the new communicator, the others wait until it continues or dies: either all
 * live ranks have the new communicator or none has. */

struct tutti_options;
/* Collective over the surviving ranks. *shrunk is the same group on all of them, even if further ranks die
 * meanwhile. */
tutti_status tutti_comm_shrink(tutti_comm* comm, const struct tutti_options* options, tutti_comm** shrunk);
/* Collective over the surviving ranks: all get the same id, for processes that are to join. Hand it to them in any way
 * and keep it private. They call tutti_comm_create with it as rendezvous and with TUTTI_COMM_JOIN. */
tutti_status tutti_comm_invite(tutti_comm* comm, const struct tutti_options* options, tutti_unique_id* id);
/* Collective over the surviving ranks: *grown has them first, then `newcomers` processes in order of arrival. If not
 * all arrive, the call fails on all ranks and the id cannot be used again. */
tutti_status tutti_comm_grow(tutti_comm* comm, const tutti_unique_id* id, uint32_t newcomers,
                             const struct tutti_options* options, tutti_comm** grown);

/* ---- Operations ---------------------------------------------------------------------------------------- */

enum { TUTTI_PERSISTENT = 1u << 0 /* the call starts nothing: tutti_request_start does, as often as is wanted */ };
/* Options of one call; NULL: all defaults. Ranks whose algorithms, order or tag differ in one call get TUTTI_MISMATCH,
 * as where other arguments differ. Strings are not used after the call. A call that has no such field, as a send,
 * refuses it by TUTTI_INVALID_ARGUMENT. */
typedef struct tutti_options {
  uint32_t struct_size;
  uint32_t flags;      /* TUTTI_PERSISTENT, of collectives, sends, receives and groups of them */
  uint64_t timeout_ns; /* 0: the communicator's */
  void* stream;        /* of the device that holds the buffers (a cudaStream_t); NULL: its default stream. Must be NULL
                          for host memory */
  const char* algorithms; /* of collectives: those that may carry out this call, as "ring", "flat,direct" or "^ring"; in
                             place of the communicator's. NULL, "": the communicator's. One that does not exist is
                             TUTTI_NOT_FOUND; where none can serve it is TUTTI_NOT_SUPPORTED */
  uint32_t order;         /* of reductions: TUTTI_ORDER_* */
  uint32_t wire;          /* TUTTI_WIRE_*: not plain only for float32 in host memory, of broadcast, all_gather(_v) and, as
                             sum or avg (as min or max too, but for float8), of all_reduce, reduce and
                             reduce_scatter(_v), in the free order. One rank alone rounds nothing */
  uint64_t tag;           /* of collectives: the application's name for the call, which errors, hang verdicts and
                             traces show; 0: none */
} tutti_options;

/* Each takes `request`: NULL blocks until the operation is complete on this rank; otherwise the call returns at once
 * and *request represents the operation. All ranks issue the collectives of a communicator in the same order. Until
 * completion outputs must not be read and inputs not written.
 *
 * On device memory
 *   it returns     when the work is in options.stream, ordered with what the stream does before and after
 *   a request      tells when the device is done
 *   it waits       always for the ranks of its process, until they come to the same call; for other ranks when the call
 *                  is the first of its kind between them, or has more work than the device's queue takes
 *   an error       after the return is not in the call's status: see tutti_comm_abort, tutti_comm_async_error
 *   a capture      (the stream is being captured) records the call for replays, without a request. Between threads of
 *                  one process any call may be recorded. Between processes a call may be recorded if all ranks are on
 *                  one host, its memory is mapped ("mapped" or "window" in tutti_comm_plan), and its shape, in place or
 *                  not, is one of the last 256 that were called
 *   replays        come in the same order on all ranks. The application orders each with the communicator's other work,
 *                  and destroys the communicator when they are over. No deadline watches them. When the communicator
 *                  breaks they end, and their output is undefined
 *
 * All ranks must pass the same collective, count, type, operator and root. In checked mode (TUTTI_COMM_CHECK_CALLS)
 * every disagreement is TUTTI_MISMATCH on all ranks, naming both calls, and nothing has been written; the log warns
 * where ranks use two communicators in different order. Without it a difference is TUTTI_MISMATCH where it is found: at
 * the first use of a call; on host memory, over a transport with TUTTI_TRANSPORT_MARKS, when a message of another call
 * comes; when sizes differ; at the deadline of a wait; or in tutti_comm_destroy. Calls that differ but receive nothing
 * from each other (two broadcasts from different roots) succeed. On device memory, calls that have been used before may
 * give wrong results until the difference is found. The error names both calls if they are among the last 32.
 * docs/reliability.md has the details. */
tutti_status tutti_broadcast(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype, uint32_t root,
                             const tutti_options* options, tutti_request** request);
tutti_status tutti_reduce(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype, uint32_t op,
                          uint32_t root, const tutti_options* options, tutti_request** request);
tutti_status tutti_all_reduce(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype, uint32_t op,
                              const tutti_options* options, tutti_request** request);
tutti_status tutti_gather(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype, uint32_t root,
                          const tutti_options* options, tutti_request** request);
tutti_status tutti_all_gather(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype,
                              const tutti_options* options, tutti_request** request);
tutti_status tutti_scatter(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype, uint32_t root,
                           const tutti_options* options, tutti_request** request);
tutti_status tutti_reduce_scatter(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype,
                                  uint32_t op, const tutti_options* options, tutti_request** request);
tutti_status tutti_all_to_all(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype,
                              const tutti_options* options, tutti_request** request);
tutti_status tutti_barrier(tutti_comm* comm, const tutti_options* options, tutti_request** request);
/* Prefix reductions, as MPI_Scan and MPI_Exscan: rank r gets the reduction of `in` of ranks 0 ... r, or of ranks 0 ...
 * r-1, with the operands in the order of ranks whatever the algorithm. avg divides by the number of these ranks.
 * tutti_exclusive_scan: rank 0 has no result, and its `out` is not written: fill it beforehand with a value that suits
 * the operator. */
tutti_status tutti_scan(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype, uint32_t op,
                        const tutti_options* options, tutti_request** request);
tutti_status tutti_exclusive_scan(tutti_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype,
                                  uint32_t op, const tutti_options* options, tutti_request** request);

/* Operators of the application, for reducing collectives on host memory.
 *
 * The function sets inout[i] = inout[i] op in[i] for `count` elements of type `dtype`. inout is the left operand. Both
 * are aligned to the type and do not overlap. The operator must be associative: the result is x0 op x1 op ... with the
 * ranks' contributions in the order of ranks and brackets as the algorithm places them. Without
 * TUTTI_OP_NOT_COMMUTATIVE it must also commute, and operands come in any order. A block is combined in parts, of any
 * number of elements. With one rank the result is a copy, and the function is not called.
 *
 * Threads: the function is called by any thread that advances the communicator: the caller's, one that waits in another
 * communicator of the process, or the progress thread. For one communicator only one thread calls it at a time. It must
 * not call Tutti, except tutti_op_set_error. It must not throw. Ranks of one process may call their functions at the
 * same time.
 *
 * It returns TUTTI_OK, or an error below 0. An error breaks the communicator on all ranks, with a text that names the
 * rank and the operator. */
typedef tutti_status (*tutti_op_function)(void* inout, const void* in, uint64_t count, uint32_t dtype, void* context);
enum { TUTTI_OP_NOT_COMMUTATIVE = 1u << 0 /* x op y may differ from y op x: operands stay in the order of ranks */ };
typedef struct tutti_op_config {
  uint32_t struct_size;
  uint32_t flags;   /* TUTTI_OP_* */
  const char* name; /* 1 to 23 characters; copied. Ranks compare it, and whether it commutes, as they do types */
  tutti_op_function function; /* it and its context live until tutti_op_free, or the communicator's end */
  void* context;
  uint64_t dtypes; /* the types that it takes, a mask of uint64_t{1} << TUTTI_FLOAT32 ...; 0: all */
} tutti_op_config;
/* Local. *op is a number to be passed as `op` of this communicator's calls on this rank. Parts and successors of the
 * communicator do not have it. */
tutti_status tutti_op_create(tutti_comm* comm, const tutti_op_config* config, uint32_t* op);
/* Local. An operator, as NCCL's ncclRedOpCreatePreMulSum and PyTorch's PREMUL_SUM: the sum of the ranks' contributions,
 * each multiplied by the factor of its rank, which may differ. Product and sum are those of TUTTI_PROD and TUTTI_SUM:
 * the product is rounded to the type, also with one rank, and then every step of the sum. `factor` is an element in
 * host memory, which is read at once. `dtype` must have a product. The operator serves calls of this type on host
 * memory. It may be freed while calls that use it are under way. */
tutti_status tutti_op_create_premul_sum(tutti_comm* comm, uint32_t dtype, const void* factor, uint32_t* op);
/* Local. The number is not used again. TUTTI_INVALID_USAGE, and the operator stays, while an operation that uses it is
 * under way. */
tutti_status tutti_op_free(tutti_comm* comm, uint32_t op);
/* In an operator's function: why it is about to return an error. NULL: no reason. */
void tutti_op_set_error(const char* text);

/* With blocks of unequal sizes, as MPI_Allgatherv and so on. `counts[b]` is the number of elements of the block of rank
 * b and may be 0. `displacements[b]` is the element of the buffer at which that block begins; NULL: the blocks lie one
 * after another. Both have an entry for each rank, and are not used after the call has returned. Blocks of `out` must
 * not overlap. A buffer without elements may be NULL. The rules of the calls above hold here. New counts cost nothing
 * extra: nothing is planned again. On device memory each new table of counts reorders the steps of a plan, without
 * waiting for another rank; windows are not read in place. In all_to_all_v, gather_v and scatter_v a rank without any
 * elements states by its arguments that the call is on device memory: it sets options.stream, or passes an address of
 * device memory as one of its buffers.
 *
 *   all_gather_v, reduce_scatter_v   All ranks pass the same counts. Displacements may differ.
 *   all_to_all_v                     out_counts[b] here is in_counts[r] at rank b, where r is this rank.
 *   gather_v, scatter_v              `count` is this rank's. counts and displacements are those of the root, where
 *                                    counts[root] is `count`. Other ranks pass NULL, or anything.
 *
 * In place: all_gather_v, gather_v at the root: in == out + displacements[rank]. reduce_scatter_v, scatter_v at the
 * root: out == in + displacements[rank]. all_to_all_v has no form in place.
 *
 * If counts contradict each other, checked mode finds it and names both ranks and both counts. Without it, messages
 * whose sizes differ are TUTTI_MISMATCH; on device memory between processes the stream may have passed them by then,
 * and where the bytes go through the host the difference may not be found. A block that is empty at one end only may go
 * unnoticed, or end a wait at its deadline. */
tutti_status tutti_all_gather_v(tutti_comm* comm, const void* in, void* out, const uint64_t* counts,
                                const uint64_t* displacements, uint32_t dtype, const tutti_options* options,
                                tutti_request** request);
tutti_status tutti_reduce_scatter_v(tutti_comm* comm, const void* in, void* out, const uint64_t* counts,
                                    const uint64_t* displacements, uint32_t dtype, uint32_t op,
                                    const tutti_options* options, tutti_request** request);
tutti_status tutti_all_to_all_v(tutti_comm* comm, const void* in, const uint64_t* in_counts,
                                const uint64_t* in_displacements, void* out, const uint64_t* out_counts,
                                const uint64_t* out_displacements, uint32_t dtype, const tutti_options* options,
                                tutti_request** request);
tutti_status tutti_gather_v(tutti_comm* comm, const void* in, uint64_t count, void* out, const uint64_t* counts,
                            const uint64_t* displacements, uint32_t dtype, uint32_t root, const tutti_options* options,
                            tutti_request** request);
tutti_status tutti_scatter_v(tutti_comm* comm, const void* in, const uint64_t* counts, const uint64_t* displacements,
                             void* out, uint64_t count, uint32_t dtype, uint32_t root, const tutti_options* options,
                             tutti_request** request);

/* Point to point, outside the order of collectives. A receive matches the earliest send of its peer with its tag; it
 * must be as long as the send, else TUTTI_MISMATCH at the receiver. Sends may complete before they are received, or
 * wait for the receiver: do not rely on either. A receiver keeps at most 64 sends of a peer that it has not received
 * yet; further ones wait behind them. Sending to oneself is an error, except in a group.
 *
 * On device memory, which both ends have to be,
 *   it returns     when the work is in options.stream; a request tells when the device is done
 *   it matches     the k-th receive of a peer with the peer's k-th send to this rank, of device memory. Sizes and tags
 *                  must be equal. A difference, or host memory at one end, is TUTTI_MISMATCH on all ranks and breaks
 *                  the communicator, since bytes may be on their way; no byte lands outside a buffer. Between processes
 *                  this may be found only after the stream has passed the receive: the request waits until both
 *                  sides agree, and tutti_comm_async_error reports it
 *   it waits       within a process for the other side's call. To and from another process: when the two exchange
 *                  device memory for the first time, for a send behind 64 others, and, where several ranks share this
 *                  process, until the bytes have gone
 *   the stream     waits in a receive for its send, and in a send for its receive where more is sent than is buffered
 *                  (4 MiB to another process, nothing within one). So two ranks that send to each other and then
 *                  receive may wait until the timeout: use a group
 *   a capture      is refused
 *   no elements    a transfer of 0 elements works as on the host, without the device; in a group with device memory it
 *                  delays the request, not the stream */
tutti_status tutti_send(tutti_comm* comm, const void* data, uint64_t count, uint32_t dtype, uint32_t peer, uint32_t tag,
                        const tutti_options* options, tutti_request** request);
tutti_status tutti_receive(tutti_comm* comm, void* data, uint64_t count, uint32_t dtype, uint32_t peer, uint32_t tag,
                           const tutti_options* options, tutti_request** request);

/* Which message a receive or a probe is for, and which it has met. */
enum { TUTTI_ANY_PEER = 1u << 0, TUTTI_ANY_TAG = 1u << 1 };
typedef struct tutti_envelope {
  uint32_t struct_size; /* set by the caller */
  uint32_t flags;       /* TUTTI_ANY_*: from any other rank, with any tag; then peer or tag is only written */
  uint32_t peer;
  uint32_t tag;
  uint64_t bytes; /* written: the message's length */
} tutti_envelope;
/* Receives from any rank, or with any tag, as *envelope says. It takes the earliest send that has come; if none has,
 * the next one that no earlier receive takes. Host memory only; sends of device memory are never met. The send must
 * have this length, as with tutti_receive; tutti_probe tells its length. *envelope is written when the call completes
 * without an error, and must live until then. */
tutti_status tutti_receive_any(tutti_comm* comm, void* data, uint64_t count, uint32_t dtype, tutti_envelope* envelope,
                               const tutti_options* options, tutti_request** request);
/* Waits at most timeout_ns for a message of host memory that matches *envelope, and writes its peer, tag and length. It
 * is the message that a receive of this peer and tag, issued now, would get; it is not received. 0: looks and advances
 * once; UINT64_MAX: waits until one comes. TUTTI_AGAIN: none has; the communicator stays usable. */
tutti_status tutti_probe(tutti_comm* comm, tutti_envelope* envelope, uint64_t timeout_ns);

/* A group: any number of sends and receives that progress together, so none waits for another. It completes when all
 * have completed. If one fails, the group ends with that error. Between two ranks, in one direction, the order of the
 * array decides what matches. No receive may overlap another buffer of the group. Sends to oneself are received in the
 * same group, in order. All memory is the host's, or all is of one device.
 *
 * On device memory exchanges of any length complete if everything that two ranks send each other in one group of one
 * rank is in one group of the other. Otherwise they may wait for each other as single calls do. */
enum { TUTTI_SEND = 1, TUTTI_RECEIVE = 2 };
typedef struct tutti_message {
  void* data; /* a send only reads it */
  uint64_t count;
  uint32_t dtype;
  uint32_t peer;
  uint32_t tag;
  uint32_t direction;   /* TUTTI_SEND or TUTTI_RECEIVE */
  uint64_t reserved[4]; /* must be 0 */
} tutti_message;
tutti_status tutti_exchange(tutti_comm* comm, const tutti_message* messages, uint64_t n, const tutti_options* options,
                            tutti_request** request);

/* Groups of calls, as by ncclGroupStart and ncclGroupEnd: sends, receives and collectives of any kind that begin and
 * end together, so none waits for another. Between tutti_group_begin and tutti_group_end each call only checks its
 * arguments: it takes no request, and no timeout_ns of its own. One that returns an error is not in the group.
 * Buffers must live, and the application must not change them, until the group is complete. No call may write memory
 * that another call of the group uses. All ranks make the group's collectives in the same order. Sends to oneself are
 * received in the same group, in order.
 *
 * Small collectives of host memory with the same operator (not of the application), type, root, algorithms, order and
 * tag travel as one call: one message carries many. A reduction may then bracket its operands as one large call does.
 *
 * tutti_group_end begins the calls and ends the group, even if it fails. Its request (NULL: it blocks) is complete when
 * all are; if one fails, the group ends with that error. With TUTTI_PERSISTENT each start begins all of them. On device
 * memory calls go into their streams in the order in which they were made, sends and receives last and in one
 * stream. */
tutti_status tutti_group_begin(tutti_comm* comm);
tutti_status tutti_group_end(tutti_comm* comm, const tutti_options* options, tutti_request** request);
/* Forgets the calls: nothing has begun. */
tutti_status tutti_group_cancel(tutti_comm* comm);

/* Advances, then returns TUTTI_OK: complete; TUTTI_AGAIN: not yet; else the error with which the operation ended. */
tutti_status tutti_request_test(tutti_request* request);
/* Waits until complete. */
tutti_status tutti_request_wait(tutti_request* request);
/* Waits at most timeout_ns: TUTTI_AGAIN when that has passed (the operation continues). */
tutti_status tutti_request_wait_for(tutti_request* request, uint64_t timeout_ns);
/* The text of a complete request's error, or that this is a forked child; else "". Lives as long as the request. */
const char* tutti_request_error(const tutti_request* request);
/* Starts the operation of a persistent request (as MPI_Start). A call with TUTTI_PERSISTENT is local: it checks its
 * arguments, makes its plan and gives a complete request, which represents the call until tutti_request_free. Each
 * start counts as a call made at that moment, in the order of calls, and completes as a call with a request does.
 * Buffers and envelopes stay the application's and must live until the request is freed; their contents may be new in
 * each start. Arrays of counts, displacements and messages are copied. An operator of the application can be freed
 * after the request. Starting on a captured stream records the call. A start that fails leaves the request complete
 * with its error. TUTTI_INVALID_USAGE: the request is not persistent, has not completed, or its communicator was
 * destroyed. tutti_comm_error has the text. */
tutti_status tutti_request_start(tutti_request* request);
/* Waits until the request is complete, then frees it. NULL is allowed. Destroying a communicator completes its
 * requests; they must still be freed. */
void tutti_request_free(tutti_request* request);

/* ---- Plugins ----------------------------------------------------------------------------------------------- */

/* Registers a plugin that is linked into the program: tutti_plugin_register(&tutti_plugin_entry_shm). Before the first
 * communicator is made. */
tutti_status tutti_plugin_register(const tutti_plugin_entry_table* entry);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

TUTTI_MANDATORY(tutti_comm_config, nranks);
TUTTI_MANDATORY(tutti_options, timeout_ns);
TUTTI_MANDATORY(tutti_op_config, dtypes);
TUTTI_MANDATORY(tutti_envelope, bytes);
TUTTI_MANDATORY(tutti_host_facts, reserved);
TUTTI_MANDATORY(tutti_split, timeout_ns);
#endif
