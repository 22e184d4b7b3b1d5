/* SPDX-License-Identifier: Apache-2.0
 *
 * The measuring loop over a library of one rank. ONE_RANK_FAULT=1: its all_gather gives a wrong element; =2: it has no
 * all_gather; =3: its send_receive gives a wrong element from the fifth call on; =4: its all_reduce does; =5: its
 * broadcast waits for a child and touches two new pages; =6: the first all_reduce gives a wrong element.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../programs/loop.h"

static void wait_and_touch(void) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char* pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) exit(3);
  madvise(pages, 2 * page, MADV_NOHUGEPAGE);
  pages[0] = pages[page] = 1;
  munmap(pages, 2 * page);
  const pid_t child = vfork(); /* sleeps until the child ends */
  if (child == 0) _exit(0);
  if (child > 0) waitpid(child, NULL, 0);
}

static int run(enum collective collective, const float* in, float* out, size_t count) {
  static int calls;
  const char* text = getenv("ONE_RANK_FAULT");
  const int fault = text ? atoi(text) : 0;
  if (fault == 2 && collective == ALL_GATHER) return -1;
  if (in && collective != BARRIER && collective != BROADCAST) memcpy(out, in, count * sizeof(float));
  if (fault == 1 && collective == ALL_GATHER) out[count - 1] += 1;
  if ((fault == 3 && collective == SEND_RECEIVE) || (fault == 4 && collective == ALL_REDUCE))
    if (++calls >= 5) out[count - 1] += 1;
  if (fault == 6 && collective == ALL_REDUCE && ++calls == 1) out[count - 1] += 1;
  if (fault == 5 && collective == BROADCAST && count > 1) wait_and_touch(); /* the loop's own broadcasts have one */
  return 0;
}

int main(int argc, char** argv) {
  const struct library library = {.rank = 0, .nranks = 1, .run = run, .allocate = ordinary_memory, .release = free};
  return measure(&library, argc, argv);
}
