/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "line.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clock.h"

enum { BATCHES = 7, EXCHANGES = 100 };
enum { SLEEP_US = 20000, MOST_SLEEPS = 100 };

/* A cache line pair. */
struct counter {
  _Alignas(128) _Atomic uint64_t value;
};

/* Mapped by both ranks. */
struct board {
  struct counter of_rank[2];
  struct counter again; /* the number of rank 0's last decision, doubled, and whether it was to measure again */
};

static struct board* board;

static void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

static struct board* map_board(const char* path) {
  const int file = open(path, O_RDWR | O_CREAT, 0600);
  void* memory = MAP_FAILED;
  if (file >= 0 && ftruncate(file, sizeof(struct board)) == 0)
    memory = mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) {
    fprintf(stderr, "compare: COMPARE_LINE: expected a file that can be written and mapped, got %s: %s\n", path,
            strerror(errno));
    exit(1);
  }
  close(file);
  return memory;
}

static void await(const struct counter* counter, uint64_t least) {
  while (atomic_load_explicit(&counter->value, memory_order_acquire) < least) relax();
}

/* Rank 0's counter goes there, rank 1's comes back. */
static void exchange(int rank, uint64_t turn) {
  if (rank == 1) await(&board->of_rank[0], turn);
  atomic_store_explicit(&board->of_rank[rank].value, turn, memory_order_release);
  if (rank == 0) await(&board->of_rank[1], turn);
}

/* Rank 0's decision, on both ranks. */
static int agree(int rank, int again) {
  static uint64_t turn;
  ++turn;
  if (rank == 0) atomic_store_explicit(&board->again.value, 2 * turn + (uint64_t)again, memory_order_release);
  await(&board->again, 2 * turn);
  return (int)(atomic_load_explicit(&board->again.value, memory_order_relaxed) & 1);
}

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

double line_us(int rank) {
  static uint64_t turn;
  const char* path = getenv("COMPARE_LINE");
  if (!path) return 0;
  if (!board) board = map_board(path);
  double times[BATCHES];
  exchange(rank, ++turn); /* both are here */
  for (int batch = 0; batch < BATCHES; ++batch) {
    const double begin = now_us();
    for (int i = 0; i < EXCHANGES; ++i) exchange(rank, ++turn);
    times[batch] = (now_us() - begin) / EXCHANGES;
  }
  qsort(times, BATCHES, sizeof times[0], by_value);
  return times[BATCHES / 2];
}

double wanted_line_us(int rank) {
  static int sleeps;
  const char* wanted = getenv("COMPARE_LINE_WANTED");
  double us = line_us(rank), least, most;
  if (us == 0 || !wanted) return us;
  if (sscanf(wanted, "%lf,%lf", &least, &most) != 2) {
    fprintf(stderr, "compare: COMPARE_LINE_WANTED: expected two times like 0.08,0.2, got %s\n", wanted);
    exit(1);
  }
  while (agree(rank, (us < least || us > most) && sleeps < MOST_SLEEPS)) {
    usleep(SLEEP_US);
    ++sleeps;
    us = line_us(rank);
  }
  return us;
}
