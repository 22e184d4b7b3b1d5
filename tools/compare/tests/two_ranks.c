/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: two_ranks line, or two_ranks COLLECTIVES SIZES MODES MILLISECONDS
 *
 * Two processes, each on a core of its own. `line` measures a cache line between them: once, and twice more until it is
 * as wanted. The other form runs the measuring loop over a library of all_reduce and what the loop itself needs.
 *
 *   TWO_RANKS_TICKS=A,B;C,D  a clock that no load changes: before each reading it goes on by the next of these times in
 *                            us, over and over again: A and B of rank 0, C and D of rank 1. Sleeps take no time
 *   TWO_RANKS_SLEEPS=N       after so many sleeps the clock runs twice as fast
 *   TWO_RANKS_SLOW=N         on that clock an all_reduce takes 2 us on rank 0 and 5 us on rank 1, each N-th 100 us, and
 *                            a barrier takes 1000 us
 *   TWO_RANKS_LATE=R         rank R comes some milliseconds after the other one
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../programs/line.h"
#include "../programs/loop.h"

enum { MOST_ELEMENTS = 1 << 15, MOST_TICKS = 32 };

/* Shared by both ranks. */
static struct shared {
  atomic_int turn[2], here[2];
  float input[2][MOST_ELEMENTS];
  double begin[2], end[2];
  int core[2], sleeps[2];
} * shared;

static int rank, ticks, reading, slow;
static double clock_us, tick_us[MOST_TICKS], speed = 1;

static int number_of(const char* name, int otherwise) {
  const char* text = getenv(name);
  return text ? atoi(text) : otherwise;
}

static double real_us(void) {
  struct timespec time;
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static void read_ticks(void) {
  const char* at = getenv("TWO_RANKS_TICKS");
  if (at && rank == 1) at = strchr(at, ';') + 1;
  for (char* end; at && ticks < MOST_TICKS; at = *end == ',' ? end + 1 : NULL) tick_us[ticks++] = strtod(at, &end);
}

/* Instead of those of the C library. */
int clock_gettime(clockid_t clock, struct timespec* time) {
  if (ticks == 0) return (int)syscall(SYS_clock_gettime, clock, time);
  clock_us += speed * tick_us[reading++ % ticks];
  time->tv_sec = (time_t)(clock_us / 1e6);
  time->tv_nsec = (long)((clock_us - (double)time->tv_sec * 1e6) * 1e3 + 0.5);
  return 0;
}

int count_sleep(useconds_t us) __asm__("usleep"); /* this one, too */
int count_sleep(useconds_t us) {
  (void)us;
  if (++shared->sleeps[rank] == number_of("TWO_RANKS_SLEEPS", 0)) speed = 2;
  return 0;
}

static void meet(void) {
  const int turn = atomic_fetch_add(&shared->turn[rank], 1) + 1;
  while (atomic_load(&shared->turn[1 - rank]) < turn) sched_yield();
}

static int run(enum collective collective, const float* in, float* out, size_t count) {
  static enum collective before = COLLECTIVES;
  static int calls, after_barrier;
  const float* mine = collective == BROADCAST ? out : in;
  if (count > MOST_ELEMENTS) exit(3);
  if (mine) memcpy(shared->input[rank], mine, count * sizeof(float));
  meet();
  for (size_t i = 0; i < count && collective == ALL_REDUCE; ++i) out[i] = shared->input[0][i] + shared->input[1][i];
  if (collective == BROADCAST) memcpy(out, shared->input[0], count * sizeof(float));
  for (int from = 0; from < 2 && collective == ALL_GATHER; ++from)
    memcpy(out + (size_t)from * count, shared->input[from], count * sizeof(float));
  meet();
  if (slow && collective == ALL_REDUCE) clock_us += ++calls % slow == 0 ? 100 : rank == 0 ? 2 : 5;
  if (slow && collective == BARRIER) clock_us += 1000;
  if (collective == ALL_REDUCE && before == BARRIER) ++after_barrier;
  if (collective == ALL_REDUCE) before = ALL_REDUCE;
  if (collective == BARRIER || collective == BROADCAST) before = collective;
  if (collective == ALL_GATHER && rank == 0) fprintf(stderr, "after a barrier: %d\n", after_barrier);
  return collective == ALL_REDUCE || collective == BROADCAST || collective == ALL_GATHER || collective == BARRIER ? 0 : -1;
}

/* Long enough for the other rank to measure alone, if it does not wait. */
static void be_late(void) {
  while (!atomic_load(&shared->here[1 - rank])) sched_yield();
  for (int i = 0; i < 20000; ++i) sched_yield();
}

static int measure_line(void) {
  if (rank == number_of("TWO_RANKS_LATE", -1)) be_late();
  atomic_store(&shared->here[rank], 1);
  shared->begin[rank] = real_us();
  const double first = line_us(rank);
  shared->end[rank] = real_us();
  shared->core[rank] = sched_getcpu();
  const double second = wanted_line_us(rank), third = wanted_line_us(rank);
  meet();
  if (rank == 1) return 0;
  printf("{\"us\": [%g, %g, %g], \"sleeps\": [%d, %d], \"cores\": [%d, %d], ", first, second, third, shared->sleeps[0],
         shared->sleeps[1], shared->core[0], shared->core[1]);
  printf("\"begin\": [%.1f, %.1f], \"end\": [%.1f, %.1f]}\n", shared->begin[0], shared->begin[1], shared->end[0],
         shared->end[1]);
  return 0;
}

int main(int argc, char** argv) {
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 3;
  const pid_t child = fork();
  if (child < 0) return 3;
  rank = child == 0;
  limit_time("two ranks", 20);
  pin(rank);
  read_ticks();
  slow = number_of("TWO_RANKS_SLOW", 0);
  const struct library library = {.rank = rank, .nranks = 2, .run = run, .allocate = ordinary_memory, .release = free};
  const int result = argc == 2 ? measure_line() : measure(&library, argc, argv);
  int status = 0;
  if (rank == 1) return result;
  fflush(stdout);
  return waitpid(child, &status, 0) != child || status != 0 ? 3 : result;
}
