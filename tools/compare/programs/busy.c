/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: busy CORE
 *
 * A foreign program that never waits, pinned to the CORE-th allowed core until it is killed. It ends by itself after ten
 * minutes, so that none is left behind.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "loop.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "compare: usage: busy CORE\n");
    return 2;
  }
  pin(atoi(argv[1]));
  alarm(600);
  for (volatile unsigned i = 0;; ++i) {
  }
}
