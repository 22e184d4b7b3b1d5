/* SPDX-License-Identifier: Apache-2.0
 *
 * The measuring loop over a library of one rank. ONE_RANK_FAULT=1: its all_gather gives a wrong element; =2: it has no
 * all_gather; =3: its send_receive gives a wrong element from the fifth call on; =4: its all_reduce does.
 */
#include <stdlib.h>
#include <string.h>

#include "../programs/loop.h"

static int run(enum collective collective, const float* in, float* out, size_t count) {
  static int calls;
  const char* text = getenv("ONE_RANK_FAULT");
  const int fault = text ? atoi(text) : 0;
  if (fault == 2 && collective == ALL_GATHER) return -1;
  if (in && collective != BARRIER && collective != BROADCAST) memcpy(out, in, count * sizeof(float));
  if (fault == 1 && collective == ALL_GATHER) out[count - 1] += 1;
  if ((fault == 3 && collective == SEND_RECEIVE) || (fault == 4 && collective == ALL_REDUCE))
    if (++calls >= 5) out[count - 1] += 1;
  return 0;
}

int main(int argc, char** argv) {
  const struct library library = {.rank = 0, .nranks = 1, .run = run, .allocate = ordinary_memory, .release = free};
  return measure(&library, argc, argv);
}
