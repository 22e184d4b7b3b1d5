/* SPDX-License-Identifier: Apache-2.0
 *
 * How near the cores of ranks 0 and 1 are to each other: the time of a cache line there and back.
 *
 * The host of a virtual machine may give a program two cores that share a cache or two that do not, and may change that
 * at any time. Times of two programs are comparable only if both met the same.
 */
#ifndef TUTTI_COMPARE_LINE_H
#define TUTTI_COMPARE_LINE_H

#ifdef __cplusplus
extern "C" {
#endif

/* The time in us, the median of some short batches: a few hundred microseconds of measuring. Ranks 0 and 1 of a program
 * of two ranks call it at the same place, each on a core of its own; the time is rank 0's. They share the file that
 * COMPARE_LINE names, and make it: no other program has used it. 0 without COMPARE_LINE: nothing is measured. Ends the
 * program with a message if the file cannot be mapped. */
double line_us(int rank);

/* The same, before a point. With COMPARE_LINE_WANTED, as "0.08,0.2", it sleeps and measures again until the time lies
 * between these two: after a sleep a host often gives other cores. It gives up after two seconds of sleep in all calls
 * of a program together. */
double wanted_line_us(int rank);

#ifdef __cplusplus
}
#endif

#endif
