/* SPDX-License-Identifier: Apache-2.0 */
#include "line.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BATCHES = 7, EXCHANGES = 100 };

/* Each rank's counter is on a cache line pair of its own. */
struct counter {
  _Alignas(128) _Atomic uint64_t value;
};

static void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

static struct counter* map_counters(const char* path) {
  const int file = open(path, O_RDWR | O_CREAT, 0600);
  void* memory = MAP_FAILED;
  if (file >= 0 && ftruncate(file, 2 * sizeof(struct counter)) == 0)
    memory = mmap(NULL, 2 * sizeof(struct counter), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) {
    fprintf(stderr, "compare: COMPARE_LINE: expected a file that can be written and mapped, got %s: %s\n", path,
            strerror(errno));
    exit(1);
  }
  close(file);
  return memory;
}

/* Rank 0's counter goes there, rank 1's comes back. */
static void exchange(struct counter* counters, int rank, uint64_t turn) {
  if (rank == 0) atomic_store_explicit(&counters[0].value, turn, memory_order_release);
  while (atomic_load_explicit(&counters[1 - rank].value, memory_order_acquire) < turn) relax();
  if (rank == 1) atomic_store_explicit(&counters[1].value, turn, memory_order_release);
}

static double now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1e6 + time.tv_nsec * 1e-3;
}

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

double line_us(int rank) {
  static struct counter* counters;
  static uint64_t turn;
  const char* path = getenv("COMPARE_LINE");
  if (!path) return 0;
  if (!counters) counters = map_counters(path);
  double times[BATCHES];
  exchange(counters, rank, ++turn); /* both are here */
  for (int batch = 0; batch < BATCHES; ++batch) {
    const double begin = now_us();
    for (int i = 0; i < EXCHANGES; ++i) exchange(counters, rank, ++turn);
    times[batch] = (now_us() - begin) / EXCHANGES;
  }
  qsort(times, BATCHES, sizeof times[0], by_value);
  return times[BATCHES / 2];
}
