/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: PROGRAM COLLECTIVES SIZES MODES MILLISECONDS, or PROGRAM --version
 *
 *   COLLECTIVES   separated by commas: "all_reduce,barrier"
 *   SIZES         total bytes, separated by commas, ascending: "8,64,512". A barrier has one point, of 0 bytes
 *   MODES         separated by commas:
 *                 constant: the input does not change, and calls follow each other
 *                 rewritten: each call's input is written anew, and a barrier precedes each call
 *                 latency: as constant, but each call is timed
 *   MILLISECONDS  how long one mode of a point may take
 *
 * A constant point is the mean time of the calls of a batch, on the rank with the longest; a rewritten one the time of
 * one call, on the rank with the longest. There are several batches or calls: the line has the time of each, and a
 * profile: what one call used of a process, the mean over calls and ranks. A latency point has the median and the 99th
 * percentile of the calls' times, each on the rank with the longest. Results are checked before and after the calls. A
 * line {"done": COLLECTIVE} follows the points of a collective.
 *
 * With two ranks and COMPARE_LINE (line.h), a constant or rewritten point also has the time of a cache line between the
 * ranks right before and right after its calls.
 */
#define _GNU_SOURCE
#include "loop.h"

#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "clock.h"
#include "line.h"

static const char* const names[COLLECTIVES] = {"broadcast",  "reduce",  "all_reduce",     "gather",
                                               "all_gather", "scatter", "reduce_scatter", "all_to_all",
                                               "send_receive", "barrier"};
static const char* const modes[] = {"constant", "rewritten", "latency"};

enum { CONSTANT, REWRITTEN, LATENCY, MODES };
enum { LEAST_BATCHES = 3, BATCHES = 7, MOST_CALLS = 31, FIRST_BARRIERS = 50 };
enum { LEAST_WARM_UP = 3, WARM_UP = 50, ESTIMATED = 3 };
enum { LATENCY_CALLS = 20000, LATENCY_BLOCK = 200 };
enum { PERIOD = 1021, VALUES = 97 }; /* of the input: primes, so that a wrong block does not look like the right one */
/* Libraries register memory, open connections and choose among ways in the first calls of a size: WARM_UP calls come
 * first, or as many as fit into `warm_up_us`; one if a call is slow. */
static const double warm_up_us = 8000, slow_us = 20000;

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

static char late[160];

static void end_late(int number) {
  (void)number;
  _exit(write(2, late, strlen(late)) > 0 ? 4 : 5); /* only what is safe in a handler */
}

void limit_time(const char* what, unsigned seconds) {
  alarm(0);
  snprintf(late, sizeof late, "compare: no end in time: %s\n", what);
  signal(SIGALRM, end_late);
  alarm(seconds);
}

/* The use of a process, with all of its threads. SLEEPS are voluntary context switches. YIELDS are involuntary ones, to
 * which Linux also counts those of sched_yield(). FAULTS are minor and major page faults. The time is that of user and
 * kernel mode together: a kernel that accounts by ticks divides it by samples of some milliseconds. */
enum { PROCESSOR_US, SLEEPS, YIELDS, FAULTS, USES };
static const char* const uses[USES] = {"processor_us", "sleeps", "yields", "faults"};

/* A point of measurement: one collective of one size. */
struct point {
  const struct library* library;
  enum collective collective;
  size_t bytes, count; /* in total; elements that run() is given */
  size_t in_elements, out_elements;
  float *in, *out;
  float *times, *all_times; /* of this rank, of all */
  float* word;
  double use[USES];  /* of this rank */
  double line_us[2]; /* before and after the calls; 0: not measured */
};

/* A stretch of the input: element i is value[i % PERIOD]. */
struct pattern {
  float value[PERIOD];
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
static void add_pattern(struct pattern* pattern, int rank, int turn) {
  for (int i = 0; i < PERIOD; ++i) pattern->value[i] += (float)((rank * 31 + i + turn) % VALUES);
}

static void write_pattern(const struct pattern* pattern, float* to, size_t n) {
  for (size_t at = 0; at < n; at += PERIOD)
    memcpy(to + at, pattern->value, (n - at < PERIOD ? n - at : PERIOD) * sizeof(float));
}

static void write_input(struct point* point, int turn) {
  const int rank = point->library->rank;
  struct pattern mine = {{0}};
  add_pattern(&mine, rank, turn);
  if (point->collective != BROADCAST)
    write_pattern(&mine, point->in, point->in_elements);
  else if (rank == 0)
    write_pattern(&mine, point->out, point->out_elements);
}

/* The first of `n` elements that is not what the pattern has from its element `from` on, or n. */
static size_t first_difference(const struct pattern* pattern, size_t from, const float* found, size_t n) {
  size_t at = 0;
  while (at < n) {
    const size_t begin = (from + at) % PERIOD, left = n - at, stretch = left < PERIOD - begin ? left : PERIOD - begin;
    if (memcmp(found + at, pattern->value + begin, stretch * sizeof(float)) != 0)
      for (size_t i = 0; i < stretch; ++i)
        if (found[at + i] != pattern->value[begin + i]) return at + i;
    at += stretch;
  }
  return n;
}

/* The rank whose input a block of the output has, or -1: the sum of all. */
static int source_of(const struct point* point, int block) {
  const int n = point->library->nranks;
  switch (point->collective) {
    case BROADCAST:
    case SCATTER:
      return 0;
    case GATHER:
    case ALL_GATHER:
    case ALL_TO_ALL:
      return block;
    case SEND_RECEIVE:
      return (point->library->rank + n - 1) % n;
    default:
      return -1;
  }
}

/* 0, or 1 after a message. */
static int check_output(const struct point* point, int turn) {
  const enum collective what = point->collective;
  const int rank = point->library->rank, n = point->library->nranks;
  if (what == BARRIER || ((what == REDUCE || what == GATHER) && rank != 0)) return 0;
  const int blocks = what == GATHER || what == ALL_GATHER || what == ALL_TO_ALL ? n : 1;
  const size_t from = what == SCATTER || what == REDUCE_SCATTER || what == ALL_TO_ALL ? (size_t)rank * point->count : 0;
  for (int block = 0; block < blocks; ++block) {
    const int source = source_of(point, block);
    struct pattern expected = {{0}};
    for (int r = source < 0 ? 0 : source; r < (source < 0 ? n : source + 1); ++r) add_pattern(&expected, r, turn);
    const float* found = point->out + (size_t)block * point->count;
    const size_t at = first_difference(&expected, from, found, point->count);
    if (at == point->count) continue;
    fprintf(stderr, "compare: %s of %zu bytes: rank %d: element %zu is %g, expected %g\n", names[what], point->bytes,
            rank, (size_t)block * point->count + at, found[at], expected.value[(from + at) % PERIOD]);
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
  point->word[0] = (float)mine;
  point->library->run(BROADCAST, NULL, point->word, 1);
  return (size_t)point->word[0];
}

/* `number` between `least` and `most`, by rank 0's estimate. */
static size_t agree_between(const struct point* point, double number, size_t least, size_t most) {
  return agree(point, number < (double)least ? least : number > (double)most ? most : (size_t)number);
}

/* To rank 0: `n` times, each on the rank with the longest. Other ranks: 0. */
static int longest_times(const struct point* point, size_t n) {
  const struct library* library = point->library;
  if (library->run(ALL_GATHER, point->times, point->all_times, n) != 0) exit(1);
  for (size_t i = 0; library->rank == 0 && i < n; ++i)
    for (int r = 0; r < library->nranks; ++r)
      if (point->all_times[(size_t)r * n + i] > point->times[i]) point->times[i] = point->all_times[(size_t)r * n + i];
  return library->rank == 0;
}

/* Adds what the process has used until now. A stretch of calls lies between one with -1 and one with 1. */
static void add_use(struct point* point, int sign) {
  struct rusage all;
  getrusage(RUSAGE_SELF, &all);
  const double user_us = (double)all.ru_utime.tv_sec * 1e6 + (double)all.ru_utime.tv_usec;
  const double kernel_us = (double)all.ru_stime.tv_sec * 1e6 + (double)all.ru_stime.tv_usec;
  point->use[PROCESSOR_US] += sign * (user_us + kernel_us);
  point->use[SLEEPS] += (double)(sign * all.ru_nvcsw);
  point->use[YIELDS] += (double)(sign * all.ru_nivcsw);
  point->use[FAULTS] += (double)(sign * (all.ru_minflt + all.ru_majflt));
}

static void print_profile(struct point* point, size_t calls) {
  const struct library* library = point->library;
  for (int i = 0; i < USES; ++i) point->times[i] = (float)(point->use[i] / (double)calls);
  if (library->run(ALL_GATHER, point->times, point->all_times, USES) != 0) exit(1);
  memset(point->use, 0, sizeof point->use);
  for (int i = 0; library->rank == 0 && i < USES; ++i) {
    double sum = 0;
    for (int r = 0; r < library->nranks; ++r) sum += point->all_times[r * USES + i];
    printf("%s\"%s\": %.4g", i ? ", " : "\"profile\": {", uses[i], sum / library->nranks);
  }
  if (library->rank == 0) printf("}");
}

/* measure_line: line_us or wanted_line_us. Both ranks have ended their calls, so neither needs the other's progress. */
static double line_now(const struct library* library, double (*measure_line)(int)) {
  if (library->nranks != 2) return 0;
  barrier(library);
  return measure_line(library->rank);
}

static void print_head(const struct point* point, int mode) {
  printf("{\"collective\": \"%s\", \"bytes\": %zu, \"mode\": \"%s\", ", names[point->collective],
         point->collective == BARRIER ? 0 : point->bytes, modes[mode]);
}

static void print_point(struct point* point, int mode, size_t n, size_t calls) {
  point->line_us[1] = line_now(point->library, line_us);
  const int prints = longest_times(point, n);
  if (prints) {
    print_head(point, mode);
    printf("\"us\": [");
    for (size_t i = 0; i < n; ++i) printf("%s%.4g", i ? ", " : "", point->times[i]);
    printf("], ");
    if (point->line_us[1] > 0) printf("\"line_us\": [%.4g, %.4g], ", point->line_us[0], point->line_us[1]);
  }
  print_profile(point, calls);
  if (prints) printf("}\n");
  fflush(stdout);
}

/* Each of these returns 0, or 1: a wrong result. */
static int measure_constant(struct point* point, double limit_us, double estimate_us) {
  const size_t batches = agree_between(point, limit_us / estimate_us, LEAST_BATCHES, BATCHES);
  const size_t each = agree_between(point, limit_us / (double)batches / estimate_us, 1, 1000000);
  for (size_t batch = 0; batch < batches; ++batch) {
    barrier(point->library);
    add_use(point, -1);
    const double begin = now_us();
    for (size_t i = 0; i < each; ++i) run(point);
    point->times[batch] = (float)((now_us() - begin) / (double)each);
    add_use(point, 1);
  }
  print_point(point, CONSTANT, batches, batches * each);
  return check_output(point, 0);
}

static int measure_rewritten(struct point* point, double limit_us, double estimate_us) {
  const size_t n = agree_between(point, limit_us / (2 * estimate_us + 0.1), LEAST_BATCHES, MOST_CALLS);
  for (size_t i = 0; i < n; ++i) {
    write_input(point, (int)i);
    add_use(point, -1); /* a microsecond between barrier and call would change what is timed */
    barrier(point->library);
    const double begin = now_us();
    run(point);
    point->times[i] = (float)(now_us() - begin);
    add_use(point, 1);
  }
  print_point(point, REWRITTEN, n, n);
  return check_output(point, (int)n - 1);
}

static int by_value(const void* a, const void* b) {
  const float x = *(const float*)a, y = *(const float*)b;
  return (x > y) - (x < y);
}

static int measure_latency(struct point* point, double limit_us, double estimate_us) {
  (void)estimate_us;
  size_t n = 0;
  barrier(point->library);
  const double start = now_us();
  do {
    double begin = now_us();
    for (size_t i = 0; i < LATENCY_BLOCK; ++i) {
      run(point);
      const double end = now_us();
      point->times[n++] = (float)(end - begin);
      begin = end;
    }
  } while (n + LATENCY_BLOCK <= LATENCY_CALLS && agree(point, now_us() - start < limit_us));
  if (longest_times(point, n)) {
    qsort(point->times, n, sizeof(float), by_value);
    print_head(point, LATENCY);
    printf("\"calls\": %zu, \"p50\": %.4g, \"p99\": %.4g}\n", n, point->times[n / 2], point->times[n - n / 100 - 1]);
    fflush(stdout);
  }
  return check_output(point, 0);
}

static size_t warm_up_calls(double call_us) {
  if (call_us > slow_us) return 1;
  const double fit = warm_up_us / (call_us < 1 ? 1 : call_us);
  return fit > WARM_UP ? WARM_UP : fit < LEAST_WARM_UP ? LEAST_WARM_UP : (size_t)fit;
}

/* 0, 1: a wrong result, -1: the library has no such collective. */
static int measure_point(struct point* point, const int* wanted, double limit_us) {
  static int (*const measure_mode[MODES])(struct point*, double, double) = {measure_constant, measure_rewritten,
                                                                            measure_latency};
  write_input(point, 0);
  for (size_t i = 0; point->collective != BROADCAST && i < point->out_elements; ++i) point->out[i] = -1;
  if (run(point) != 0) return -1;
  if (check_output(point, 0) != 0) return 1;
  double begin = now_us();
  run(point);
  const size_t warm_up = agree(point, warm_up_calls(now_us() - begin));
  const size_t timed = warm_up < ESTIMATED ? warm_up : ESTIMATED;
  for (size_t i = 1; i < warm_up; ++i) run(point);
  barrier(point->library);
  begin = now_us();
  for (size_t i = 0; i < timed; ++i) run(point);
  double estimate = (now_us() - begin) / (double)timed;
  if (estimate < 0.01) estimate = 0.01;
  for (int mode = 0; mode < MODES; ++mode) {
    if (!wanted[mode]) continue;
    write_input(point, 0); /* as `rewritten` may have left another one */
    point->line_us[0] = line_now(point->library, wanted_line_us);
    barrier(point->library);
    if (measure_mode[mode](point, limit_us, estimate) != 0) return 1;
  }
  return 0;
}

/* A collective of one size, with new memory: what a library has learnt of a smaller size's must not help. */
static int measure_size(struct point* point, const int* wanted, double limit_us) {
  char what[100];
  size_point(point);
  /* 20 MB/s is slower than any library that makes progress. */
  const unsigned seconds = 10 + (unsigned)(point->bytes * (size_t)point->library->nranks / 20000000);
  snprintf(what, sizeof what, "%s of %zu bytes took longer than %u s", names[point->collective], point->bytes, seconds);
  limit_time(what, seconds + (unsigned)(3 * limit_us / 1e6));
  point->in = point->library->allocate((point->in_elements + 1) * sizeof(float));
  point->out = point->library->allocate((point->out_elements + 1) * sizeof(float));
  const int result = measure_point(point, wanted, limit_us);
  barrier(point->library); /* all have ended their calls, so nobody reads this memory any more */
  point->library->release(point->in);
  point->library->release(point->out);
  return result;
}

static int usage(const char* program, const char* what, const char* came) {
  fprintf(stderr, "compare: %s: %s \"%s\"; usage: COLLECTIVES SIZES constant,rewritten,latency MILLISECONDS\n", program,
          what, came);
  return 2;
}

int asks_version(int argc, char** argv) { return argc == 2 && strcmp(argv[1], "--version") == 0; }

/* Sets found[i] for each of the `n` names that `list` has. Returns the first word that is no name, or NULL. */
static const char* find_names(char* list, const char* const* known, int n, int* found) {
  for (char* word = strtok(list, ","); word; word = strtok(NULL, ",")) {
    int at = 0;
    while (at < n && strcmp(word, known[at]) != 0) ++at;
    if (at == n) return word;
    found[at] = 1;
  }
  return NULL;
}

/* 0; 1: a wrong result; 2: a size that is none. */
static int measure_collective(struct point* point, const char* sizes, const int* wanted, double limit_us) {
  int result = 0;
  for (const char* at = sizes; *at && result == 0;) {
    char* end;
    point->bytes = strtoull(at, &end, 10);
    if (end == at || (*end && *end != ',')) return usage("loop", "expected a size in bytes, not", at);
    at = *end ? end + 1 : end;
    result = measure_size(point, wanted, limit_us);
    if (point->collective == BARRIER) break;
  }
  if (point->library->rank == 0) {
    if (result < 0) printf("{\"collective\": \"%s\", \"none\": true}\n", names[point->collective]);
    if (result <= 0) printf("{\"done\": \"%s\"}\n", names[point->collective]);
    fflush(stdout);
  }
  return result > 0;
}

int measure(const struct library* library, int argc, char** argv) {
  if (argc != 5) return usage(argv[0], "expected 4 arguments, not", argc > 1 ? argv[argc - 1] : "none");
  int collectives[COLLECTIVES] = {0}, wanted[MODES] = {0};
  const char* wrong = find_names(argv[1], names, COLLECTIVES, collectives);
  if (wrong) return usage(argv[0], "unknown collective", wrong);
  wrong = find_names(argv[3], modes, MODES, wanted);
  if (wrong) return usage(argv[0], "unknown mode", wrong);
  const double limit_us = atof(argv[4]) * 1000;
  if (limit_us <= 0) return usage(argv[0], "expected a time above 0, not", argv[4]);
  if (argv[2][strspn(argv[2], "0123456789,")]) return usage(argv[0], "expected sizes in bytes, not", argv[2]);

  const size_t most = wanted[LATENCY] ? LATENCY_CALLS : MOST_CALLS;
  struct point point = {.library = library};
  point.times = library->allocate(most * sizeof(float));
  point.all_times = library->allocate((size_t)library->nranks * most * sizeof(float));
  point.word = library->allocate(sizeof(float));
  limit_time("the first barriers", 30);
  for (int i = 0; i < FIRST_BARRIERS; ++i) barrier(library); /* the ranks have all started and have their cores */
  int result = 0;
  for (int c = 0; c < COLLECTIVES && result == 0; ++c) {
    if (!collectives[c]) continue;
    point.collective = (enum collective)c;
    result = measure_collective(&point, argv[2], wanted, limit_us);
  }
  limit_time("the end of the library", 30);
  return result;
}
