/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradient buckets: the tensors of a data-parallel step, summed or averaged over the ranks while the backward pass goes
 * on.
 *
 * Tensors are declared once, in any order, and are cut into buckets. In each step the application marks each tensor
 * once, in any order: ready, or unused on this rank. A bucket starts as soon as its last tensor is marked and all
 * buckets before it have started. tutti_gradients_wait ends the step: every tensor that is in use then holds the
 * result, the same bits on all ranks. core/gradients/README.md has the error bounds of the wire formats.
 *
 * Order. In the first step buckets follow the declared order. Its tutti_gradients_wait cuts them anew, once, by the
 * order in which rank 0 has marked the tensors; a rank whose order differs only waits longer. So the first to become
 * ready should travel first whatever the declaration says. With TUTTI_GRADIENTS_DECLARED_ORDER the declared order
 * stays. Buckets take tensors of one type; a bucket of each type is open at a time. Within a bucket tensors have their
 * declared order: tensors that are declared in the order of their addresses and lie one after another are reduced where
 * they are, others are copied.
 *
 * Reports. The calls of a bucket have its number plus 1 as their tag (tutti_options), which reports, hang verdicts and
 * traces show.
 *
 * Memory. Create and the first two steps allocate. Later steps allocate nothing, except that a bucket allocates its
 * copy in the first step that needs it.
 *
 *   tutti_gradients* g;
 *   tutti_gradients_create(comm, &config, tensors, n, &g);
 *   for each step: { for each tensor: { compute; tutti_gradients_ready(g, i, data, count); }
 *                    tutti_gradients_wait(g); }
 *   tutti_gradients_destroy(g);
 *
 * Threads: one thread at a time uses a tutti_gradients. It works in its own duplicates of the communicator, so its
 * calls need no order relative to others.
 */
#ifndef TUTTI_GRADIENTS_H
#define TUTTI_GRADIENTS_H

#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

typedef struct tutti_gradients tutti_gradients;

enum {
  TUTTI_GRADIENTS_FEEDBACK = 1u << 0, /* error feedback: the rounding error of a step is added in the next one */
  TUTTI_GRADIENTS_THREAD = 1u << 1,   /* a thread of its own starts buckets, rounds and advances them. Else ready, test
                                         and wait do that; between them a progress thread of the communicator
                                         (TUTTI_COMM_PROGRESS_THREAD) advances what is on its way */
  TUTTI_GRADIENTS_DEVICE = 1u << 2,   /* tensors are memory of the communicator's device, those of a bucket one after
                                         another without gaps; only TUTTI_WIRE_PLAIN, without TUTTI_GRADIENTS_THREAD.
                                         The declared order stays, a bucket has consecutive tensors, and no tensor is
                                         unused. A communicator has one device: several devices take a set for each */
  TUTTI_GRADIENTS_DECLARED_ORDER = 1u << 3 /* buckets follow the declared order in all steps */
};

typedef struct tutti_gradients_config {
  uint32_t struct_size;
  uint32_t flags;              /* TUTTI_GRADIENTS_* */
  uint64_t bucket_bytes;       /* most bytes of a bucket, unless one tensor alone is larger; 0: 25 MiB */
  uint64_t first_bucket_bytes; /* of the first one of each type, so that communication starts early; 0: 1 MiB */
  uint32_t wire;               /* TUTTI_WIRE_*: how float32 tensors travel; plain serves every type */
  uint32_t op;                 /* TUTTI_SUM or TUTTI_AVG; 0: TUTTI_AVG */
  uint64_t timeout_ns;         /* of each operation; 0: the communicator's */
  void* stream;                /* with TUTTI_GRADIENTS_DEVICE: where buckets are summed, after what computes them */
  char* error;                 /* where tutti_gradients_create writes why it failed; may be NULL */
  uint64_t error_bytes;
  uint32_t order;         /* TUTTI_ORDER_*, in which the contributions to a bucket are summed; with a wire format, which
                             rounds them before, only TUTTI_ORDER_DEFAULT */
  uint32_t reserved;      /* 0 */
  const char* algorithms; /* those that may carry out the buckets' all_reduce, as in tutti_options; with feedback, their
                             reduce_scatter and all_gather. With a wire format those that sum must reduce all
                             contributions at once, as flat does. NULL: the communicator's. Copied */
} tutti_gradients_config;

/* One tensor. An array has no struct_size: reserved room that must be 0. */
typedef struct tutti_tensor {
  uint64_t count;
  uint32_t dtype;
  uint32_t reserved0;
  const char* name; /* for messages; NULL: its number alone. Copied */
  uint64_t reserved1[2];
} tutti_tensor;

/* The counters run from creation on. */
typedef struct tutti_gradients_facts {
  uint32_t struct_size; /* set by the caller */
  uint32_t buckets;     /* of a step; the end of the first one may change it */
  uint64_t steps;
  uint64_t started;    /* buckets, of all steps */
  uint64_t early;      /* of them, those that were complete when tutti_gradients_wait was called */
  uint64_t exposed_ns; /* spent in tutti_gradients_wait */
  uint64_t sent_bytes; /* by this rank to others; with TUTTI_GRADIENTS_THREAD not brought up to date during a step */
} tutti_gradients_facts;

/* Collective: all ranks declare equal tensors and settings. A difference, or a wrong argument of one rank, is an error
 * on all of them that names it, and `comm` stays usable. A NULL argument or a struct_size that was not set is only this
 * rank's error. config NULL: all defaults. */
tutti_status tutti_gradients_create(tutti_comm* comm, const tutti_gradients_config* config, const tutti_tensor* tensors,
                                    uint64_t n, tutti_gradients** gradients);
/* Collective, as tutti_comm_destroy; a step that is under way ends with TUTTI_ABORTED. NULL is allowed. */
tutti_status tutti_gradients_destroy(tutti_gradients* gradients);
/* Ends the step of all ranks with TUTTI_ABORTED and `reason`; afterwards only errors and destroy work. Any thread, also
 * while another one waits. The data of tensors that are marked stays in use until tutti_gradients_destroy has
 * returned. */
tutti_status tutti_gradients_abort(tutti_gradients* gradients, const char* reason);

/* States that tensor `tensor` is complete, at `data`. The application must neither read, write nor free it until
 * tutti_gradients_wait has returned: host memory that is freed early cannot be told from memory in use; of device
 * memory it is an error where the bucket starts afterwards. `count` must be the declared one. TUTTI_INVALID_USAGE: it
 * was marked already in this step. */
tutti_status tutti_gradients_ready(tutti_gradients* gradients, uint64_t tensor, void* data, uint64_t count);
/* States that this rank does not use tensor `tensor` in this step: it contributes zeros, and its result is written
 * nowhere here. The ranks may differ. TUTTI_GRADIENTS_DEVICE: TUTTI_NOT_SUPPORTED. */
tutti_status tutti_gradients_unused(tutti_gradients* gradients, uint64_t tensor);
/* Advances. TUTTI_OK: all buckets that have started are complete; TUTTI_AGAIN: not yet. */
tutti_status tutti_gradients_test(tutti_gradients* gradients);
/* Waits until all buckets are complete and writes the results into the tensors. TUTTI_INVALID_USAGE: tensors were not
 * marked; the step goes on, and they can be. After another error the gradients are broken, as the communicator is. */
tutti_status tutti_gradients_wait(tutti_gradients* gradients);
/* The same, for at most so long. TUTTI_AGAIN: the step goes on, and the next wait goes on with it. */
tutti_status tutti_gradients_wait_for(tutti_gradients* gradients, uint64_t nanoseconds);
/* The text of the last error, "" when there was none; the communicator's where that failed. Valid until the next
 * call. */
const char* tutti_gradients_error(const tutti_gradients* gradients);
/* The bucket of a tensor, 0 ...; the end of the first step may change it. */
tutti_status tutti_gradients_bucket(const tutti_gradients* gradients, uint64_t tensor, uint64_t* bucket);
tutti_status tutti_gradients_report(const tutti_gradients* gradients, tutti_gradients_facts* facts);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

TUTTI_MANDATORY(tutti_gradients_config, stream);
TUTTI_MANDATORY(tutti_gradients_facts, sent_bytes);
#endif
