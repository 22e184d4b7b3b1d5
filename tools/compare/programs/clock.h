/* SPDX-License-Identifier: Apache-2.0
 *
 * The clock of all measurements.
 */
#ifndef TUTTI_COMPARE_CLOCK_H
#define TUTTI_COMPARE_CLOCK_H

#include <time.h>

/* In microseconds, since some point in the past. It never goes back. */
static inline double now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

#endif
