/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: PROGRAM COLLECTIVE SIZES MODE MILLISECONDS, or PROGRAM --version
 *
 *   SIZES         total bytes, separated by commas, ascending: "8,64,512"
 *   MODE          constant: the input stays as it is, and calls follow each other
 *                 rewritten: each call's input is written anew, and a barrier precedes each call
 *   MILLISECONDS  how long one point may take
 *
 * A constant point is the mean time of the calls of a batch, on the rank with the longest; a rewritten one the time of
 * one call, on the rank with the longest. There are several batches or calls: the line has the time of each.
 */
#define _GNU_SOURCE
#include "loop.h"

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char* const names[COLLECTIVES] = {"broadcast", "reduce",         "all_reduce", "gather", "all_gather",
                                               "scatter",   "reduce_scatter", "all_to_all", "barrier"};

enum { BATCHES = 7, MOST_CALLS = 31, WARM_UP = 3 };

static double now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1e6 + time.tv_nsec * 1e-3;
}

void* ordinary_memory(size_t bytes) {
  void* memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096 + 4096);
  if (!memory) {
    fprintf(stderr, "compare: no memory for %zu bytes\n", bytes);
    exit(1);
  }
  return memory;
}

/* The cores that the process was allowed when it started are dealt out by rank. */
void pin(int rank) {
  static cpu_set_t allowed;
  static int known;
  if (!known) known = sched_getaffinity(0, sizeof allowed, &allowed) == 0;
  if (!known) return;
  int skip = rank % CPU_COUNT(&allowed);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || skip-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

/* A point of measurement: one collective of one size. */
struct point {
  const struct library* library;
  enum collective collective;
  size_t bytes, count; /* in total; elements that run() is given */
  size_t in_elements, out_elements;
  float *in, *out;
  float *times, *all_times; /* of this rank, of all */
};

static int is_blockwise(enum collective collective) { return collective >= GATHER && collective <= ALL_TO_ALL; }

static void size_point(struct point* point) {
  const size_t n = (size_t)point->library->nranks, elements = point->bytes / sizeof(float);
  point->count = is_blockwise(point->collective) ? elements / n : elements;
  if (point->collective != BARRIER && point->count == 0) point->count = 1;
  const size_t whole = is_blockwise(point->collective) ? point->count * n : point->count;
  const int gathers = point->collective == GATHER || point->collective == ALL_GATHER;
  const int scatters = point->collective == SCATTER || point->collective == REDUCE_SCATTER;
  point->in_elements = gathers ? point->count : whole;
  point->out_elements = scatters ? point->count : whole;
  point->bytes = whole * sizeof(float);
}

/* Small integers, so that every order of summation gives the same bits. `turn` makes inputs differ from call to call.
 */
static float input_value(int rank, size_t index, int turn) {
  return (float)((rank * 31 + (int)(index % 1021) + turn) % 97);
}

static void write_input(struct point* point, int turn) {
  const int rank = point->library->rank;
  if (point->collective == BROADCAST) {
    for (size_t i = 0; rank == 0 && i < point->out_elements; ++i) point->out[i] = input_value(0, i, turn);
    return;
  }
  for (size_t i = 0; i < point->in_elements; ++i) point->in[i] = input_value(rank, i, turn);
}

static float expected_value(const struct point* point, size_t index, int turn) {
  const int n = point->library->nranks, rank = point->library->rank;
  const size_t block = index / point->count, in_block = index % point->count;
  float sum = 0;
  switch (point->collective) {
    case BROADCAST:
      return input_value(0, index, turn);
    case REDUCE:
    case ALL_REDUCE:
      for (int r = 0; r < n; ++r) sum += input_value(r, index, turn);
      return sum;
    case GATHER:
    case ALL_GATHER:
      return input_value((int)block, in_block, turn);
    case SCATTER:
      return input_value(0, (size_t)rank * point->count + index, turn);
    case REDUCE_SCATTER:
      for (int r = 0; r < n; ++r) sum += input_value(r, (size_t)rank * point->count + index, turn);
      return sum;
    default:
      return input_value((int)block, (size_t)rank * point->count + in_block, turn);
  }
}

/* 0, or 1 after a message. */
static int check_output(const struct point* point, int turn) {
  const int only_root = point->collective == REDUCE || point->collective == GATHER;
  if (point->collective == BARRIER || (only_root && point->library->rank != 0)) return 0;
  for (size_t i = 0; i < point->out_elements; ++i) {
    const float expected = expected_value(point, i, turn);
    if (point->out[i] == expected) continue;
    fprintf(stderr, "compare: %s of %zu bytes: rank %d: element %zu is %g, expected %g\n", names[point->collective],
            point->bytes, point->library->rank, i, point->out[i], expected);
    return 1;
  }
  return 0;
}

static int run(const struct point* point) {
  return point->library->run(point->collective, point->in, point->out, point->count);
}

static void barrier(const struct library* library) { library->run(BARRIER, NULL, NULL, 0); }

/* Rank 0's number, on all ranks: exact up to 2^24. */
static size_t agree(const struct point* point, size_t mine) {
  point->times[0] = (float)mine;
  point->library->run(BROADCAST, NULL, point->times, 1);
  return (size_t)point->times[0];
}

/* All ranks' times of `n` measurements to rank 0, which prints the longest of each. */
static void print_times(const struct point* point, const char* mode, size_t n) {
  const struct library* library = point->library;
  if (library->run(ALL_GATHER, point->times, point->all_times, n) != 0) exit(1);
  if (library->rank != 0) return;
  printf("{\"collective\": \"%s\", \"bytes\": %zu, \"mode\": \"%s\", \"us\": [", names[point->collective],
         point->collective == BARRIER ? 0 : point->bytes, mode);
  for (size_t i = 0; i < n; ++i) {
    float longest = 0;
    for (int r = 0; r < library->nranks; ++r) {
      const float time = point->all_times[(size_t)r * n + i];
      if (time > longest) longest = time;
    }
    printf("%s%.4g", i ? ", " : "", longest);
  }
  printf("]}\n");
  fflush(stdout);
}

static void measure_constant(struct point* point, double limit_us, double estimate_us) {
  double calls = limit_us / BATCHES / (estimate_us > 0.01 ? estimate_us : 0.01);
  if (calls < 1) calls = 1;
  if (calls > 1e6) calls = 1e6;
  const size_t each = agree(point, (size_t)calls);
  for (int batch = 0; batch < BATCHES; ++batch) {
    barrier(point->library);
    const double begin = now_us();
    for (size_t i = 0; i < each; ++i) run(point);
    point->times[batch] = (float)((now_us() - begin) / (double)each);
  }
  print_times(point, "constant", BATCHES);
}

static void measure_rewritten(struct point* point, double limit_us, double estimate_us) {
  double calls = limit_us / (2 * estimate_us + 0.1);
  if (calls < BATCHES) calls = BATCHES;
  if (calls > MOST_CALLS) calls = MOST_CALLS;
  const size_t n = agree(point, (size_t)calls);
  for (size_t i = 0; i < n; ++i) {
    write_input(point, (int)i);
    barrier(point->library);
    const double begin = now_us();
    run(point);
    point->times[i] = (float)(now_us() - begin);
  }
  print_times(point, "rewritten", n);
}

/* 0, 1: a wrong result, -1: the library has no such collective. */
static int measure_point(struct point* point, int rewritten, double limit_us) {
  write_input(point, 0);
  for (size_t i = 0; point->collective != BROADCAST && i < point->out_elements; ++i) point->out[i] = -1;
  if (run(point) != 0) return -1;
  if (check_output(point, 0) != 0) return 1;
  for (int i = 0; i < WARM_UP; ++i) run(point);
  barrier(point->library);
  const double begin = now_us();
  for (int i = 0; i < WARM_UP; ++i) run(point);
  const double estimate = (now_us() - begin) / WARM_UP;
  (rewritten ? measure_rewritten : measure_constant)(point, limit_us, estimate);
  return 0;
}

static int usage(const char* program, const char* what, const char* came) {
  fprintf(stderr, "compare: %s: %s \"%s\"; usage: COLLECTIVE SIZES constant|rewritten MILLISECONDS\n", program, what,
          came);
  return 2;
}

int asks_version(int argc, char** argv) { return argc == 2 && strcmp(argv[1], "--version") == 0; }

int measure(const struct library* library, int argc, char** argv) {
  if (argc != 5) return usage(argv[0], "expected 4 arguments, not", argc > 1 ? argv[argc - 1] : "none");
  struct point point = {.library = library, .collective = COLLECTIVES};
  for (int c = 0; c < COLLECTIVES; ++c)
    if (strcmp(argv[1], names[c]) == 0) point.collective = (enum collective)c;
  if (point.collective == COLLECTIVES) return usage(argv[0], "unknown collective", argv[1]);
  const int rewritten = strcmp(argv[3], "rewritten") == 0;
  if (!rewritten && strcmp(argv[3], "constant") != 0) return usage(argv[0], "unknown mode", argv[3]);
  const double limit_us = atof(argv[4]) * 1000;
  if (limit_us <= 0) return usage(argv[0], "expected a time above 0, not", argv[4]);

  point.times = library->allocate(MOST_CALLS * sizeof(float));
  point.all_times = library->allocate((size_t)library->nranks * MOST_CALLS * sizeof(float));
  int result = 0;
  for (char* size = strtok(argv[2], ","); size && result == 0; size = strtok(NULL, ",")) {
    char* end;
    point.bytes = strtoull(size, &end, 10);
    if (*end) return usage(argv[0], "expected a size in bytes, not", size);
    size_point(&point);
    /* New memory for each size: what a library has learnt of a smaller one's must not help. */
    point.in = library->allocate((point.in_elements + 1) * sizeof(float));
    point.out = library->allocate((point.out_elements + 1) * sizeof(float));
    result = measure_point(&point, rewritten, limit_us);
    /* Not freed: peers may still read what was sent by reference. The process ends soon. */
  }
  if (result < 0 && library->rank == 0) printf("{\"collective\": \"%s\", \"none\": true}\n", argv[1]);
  return result > 0;
}
