/* SPDX-License-Identifier: Apache-2.0
 *
 * Two ranks that measure a cache line between them, each on a core of its own: once, and once more until it is as wanted.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../programs/line.h"
#include "../programs/loop.h"

int main(void) {
  limit_time("two ranks", 60);
  const pid_t child = fork();
  if (child < 0) return 3;
  if (child == 0) limit_time("the second rank", 60);
  const int rank = child == 0;
  pin(rank);
  const double first = line_us(rank), second = wanted_line_us(rank);
  int status = 0;
  if (rank == 1) return first < 0 || second < 0;
  printf("[%g, %g]\n", first, second);
  return waitpid(child, &status, 0) != child || status != 0;
}
