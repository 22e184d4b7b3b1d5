/* SPDX-License-Identifier: Apache-2.0
 *
 * One measuring loop for every library, so that nothing but the library differs. A program fills in a `struct library`
 * and calls measure(), which takes the command line (usage in loop.c) and prints one line of JSON for each point.
 */
#ifndef TUTTI_COMPARE_LOOP_H
#define TUTTI_COMPARE_LOOP_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum collective {
  BROADCAST,
  REDUCE,
  ALL_REDUCE,
  GATHER,
  ALL_GATHER,
  SCATTER,
  REDUCE_SCATTER,
  ALL_TO_ALL,
  SEND_RECEIVE,
  BARRIER,
  COLLECTIVES
};

struct library {
  int rank, nranks;
  /* One blocking collective of float32 on `count` elements: of the whole buffer (broadcast, reduce, all_reduce,
   * send_receive), else of one rank's block. The operator is the sum and the root is rank 0. send_receive sends to the
   * next rank and receives from the previous one. `in` and `out` differ, but for a broadcast, which is in place in
   * `out`. Returns 0, or -1 if the library has no such collective. Other failures end the program with a message. */
  int (*run)(enum collective collective, const float* in, float* out, size_t count);
  /* Page aligned memory of the kind that the library serves best under its settings. Never returns NULL. */
  void* (*allocate)(size_t bytes);
  void (*release)(void* memory);
};

/* The exit status of the program: 0; 1: a wrong result; 2: a wrong command line; 4: see limit_time. */
int measure(const struct library* library, int argc, char** argv);

/* Whether the command line is --version: then the program prints its library's version and ends. */
int asks_version(int argc, char** argv);

/* Ordinary memory for `allocate`. Ends the program when there is none. */
void* ordinary_memory(size_t bytes);

/* Ends the program with a message about `what` if it is not called again within `seconds`. */
void limit_time(const char* what, unsigned seconds);

/* Keeps the calling thread on one core, by rank. To be called before the library is started, and again once the rank is
 * known. */
void pin(int rank);

#ifdef __cplusplus
}
#endif

#endif
