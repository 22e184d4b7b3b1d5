/* SPDX-License-Identifier: Apache-2.0
 *
 * Reduce, all-reduce, reduce-scatter and scans: MPI's types and operators, in place, operators of the program that do
 * and do not commute, and derived types.
 */
#include <stdint.h>

#include "check.h"

enum { n = 1021 };

static long in[64 * n], out[64 * n];

/* The result of ranks first ... last, by hand. */
static long expected(MPI_Op op, int first, int last, int to, int i) {
  long result = value(first, to, i);
  for (int r = first + 1; r <= last; ++r) {
    const long x = value(r, to, i);
    if (op == MPI_SUM) result += x;
    if (op == MPI_PROD) result *= x;
    if (op == MPI_MIN) result = x < result ? x : result;
    if (op == MPI_MAX) result = x > result ? x : result;
    if (op == MPI_BAND) result &= x;
    if (op == MPI_BOR) result |= x;
    if (op == MPI_BXOR) result ^= x;
    if (op == MPI_LAND) result = result && x;
    if (op == MPI_LOR) result = result || x;
    if (op == MPI_LXOR) result = !result != !x;
  }
  return result;
}

static void fill(void) {
  for (int b = 0; b < ranks; ++b)
    for (int i = 0; i < n; ++i) in[b * n + i] = value(rank, b, i);
}

static void test_integers(MPI_Op op) {
  int uneven[64];
  fill();
  MPI_Allreduce(in, out, n, MPI_LONG, op, MPI_COMM_WORLD);
  for (int i = 0; i < n; ++i) EXPECT(out[i] == expected(op, 0, ranks - 1, 0, i));
  memcpy(out, in, sizeof out);
  MPI_Allreduce(MPI_IN_PLACE, out, n, MPI_LONG, op, MPI_COMM_WORLD);
  for (int i = 0; i < n; ++i) EXPECT(out[i] == expected(op, 0, ranks - 1, 0, i));
  for (int root = 0; root < ranks; ++root) {
    memcpy(out, in, sizeof out);
    MPI_Reduce(rank == root ? MPI_IN_PLACE : in, out, n, MPI_LONG, op, root, MPI_COMM_WORLD);
    for (int i = 0; rank == root && i < n; ++i) EXPECT(out[i] == expected(op, 0, ranks - 1, 0, i));
  }
  MPI_Reduce_scatter_block(in, out, n, MPI_LONG, op, MPI_COMM_WORLD);
  for (int i = 0; i < n; ++i) EXPECT(out[i] == expected(op, 0, ranks - 1, rank, i));
  for (int b = 0; b < ranks; ++b) uneven[b] = n;
  uneven[0] = 0; /* the buffer begins with the block of rank 1 */
  MPI_Reduce_scatter(in + n, out, uneven, MPI_LONG, op, MPI_COMM_WORLD);
  for (int i = 0; rank && i < n; ++i) EXPECT(out[i] == expected(op, 0, ranks - 1, rank, i));
  memcpy(out, in + n, sizeof(long) * (size_t)((ranks - 1) * n));
  MPI_Reduce_scatter(MPI_IN_PLACE, out, uneven, MPI_LONG, op, MPI_COMM_WORLD);
  for (int i = 0; rank && i < n; ++i) EXPECT(out[i] == expected(op, 0, ranks - 1, rank, i));
  MPI_Scan(in, out, n, MPI_LONG, op, MPI_COMM_WORLD);
  for (int i = 0; i < n; ++i) EXPECT(out[i] == expected(op, 0, rank, 0, i));
  MPI_Exscan(in, out, n, MPI_LONG, op, MPI_COMM_WORLD);
  for (int i = 0; rank && i < n; ++i) EXPECT(out[i] == expected(op, 0, rank - 1, 0, i));
  MPI_Exscan(MPI_IN_PLACE, in, n, MPI_LONG, op, MPI_COMM_WORLD);
  for (int i = 0; rank && i < n; ++i) EXPECT(in[i] == expected(op, 0, rank - 1, 0, i));
}

#define SUM_OF(type, mpi_type)                                                                 \
  do {                                                                                         \
    type mine[5], sum[5];                                                                      \
    for (int i = 0; i < 5; ++i) mine[i] = (type)(rank + i);                                    \
    MPI_Allreduce(mine, sum, 5, mpi_type, MPI_SUM, MPI_COMM_WORLD);                            \
    for (int i = 0; i < 5; ++i) EXPECT(sum[i] == (type)(ranks * (ranks - 1) / 2 + ranks * i)); \
  } while (0)

/* Types that Tutti has, and some that it does not. */
static void test_types(void) {
  SUM_OF(signed char, MPI_SIGNED_CHAR);
  SUM_OF(unsigned char, MPI_UNSIGNED_CHAR);
  SUM_OF(short, MPI_SHORT);
  SUM_OF(unsigned short, MPI_UNSIGNED_SHORT);
  SUM_OF(int, MPI_INT);
  SUM_OF(unsigned, MPI_UNSIGNED);
  SUM_OF(long, MPI_LONG);
  SUM_OF(unsigned long, MPI_UNSIGNED_LONG);
  SUM_OF(long long, MPI_LONG_LONG);
  SUM_OF(int8_t, MPI_INT8_T);
  SUM_OF(uint16_t, MPI_UINT16_T);
  SUM_OF(int64_t, MPI_INT64_T);
  SUM_OF(float, MPI_FLOAT);
  SUM_OF(double, MPI_DOUBLE);
  SUM_OF(long double, MPI_LONG_DOUBLE);
  SUM_OF(float _Complex, MPI_C_FLOAT_COMPLEX);
  SUM_OF(double _Complex, MPI_C_DOUBLE_COMPLEX);
  _Bool mine = rank == 1, any = 0;
  MPI_Allreduce(&mine, &any, 1, MPI_C_BOOL, MPI_LOR, MPI_COMM_WORLD);
  EXPECT(any == (ranks > 1));
  unsigned char byte = (unsigned char)(1 << rank), bits = 0;
  MPI_Allreduce(&byte, &bits, 1, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD);
  EXPECT(bits == (1 << ranks) - 1);
  char packed[9];
  const int unaligned = rank;
  memcpy(packed + 1, &unaligned, sizeof unaligned);
  MPI_Allreduce(MPI_IN_PLACE, packed + 1, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  int sum;
  memcpy(&sum, packed + 1, sizeof sum);
  EXPECT(sum == ranks * (ranks - 1) / 2);
}

static void test_places(void) {
  struct {
    float value;
    int index;
  } one = {(float)((rank + 1) % ranks), rank}, least;
  struct {
    double value;
    int index;
  } two[2] = {{-rank, rank}, {rank == ranks - 1 ? 5 : 1, rank}}, most_of[2];
  int three[2] = {7, rank + 1}, first[2];
  MPI_Allreduce(&one, &least, 1, MPI_FLOAT_INT, MPI_MINLOC, MPI_COMM_WORLD);
  EXPECT(least.value == 0 && least.index == ranks - 1);
  MPI_Allreduce(two, most_of, 2, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
  EXPECT(most_of[0].value == 0 && most_of[0].index == 0 && most_of[1].value == 5 && most_of[1].index == ranks - 1);
  MPI_Allreduce(three, first, 1, MPI_2INT, MPI_MINLOC, MPI_COMM_WORLD);
  EXPECT(first[0] == 7 && first[1] == 1);
}

/* x -> a x + b, after each other: associative, and does not commute. Pairs of 16 bits in an int, or two longs. */
static void compose_ints(void* left, void* right, int* count, MPI_Datatype* type) {
  uint32_t *l = left, *r = right;
  EXPECT(*type == MPI_UINT32_T);
  for (int i = 0; i < *count; ++i) {
    const uint32_t a = l[i] >> 16, b = l[i] & 0xffff, c = r[i] >> 16, d = r[i] & 0xffff;
    r[i] = ((a * c) & 0xffff) << 16 | ((a * d + b) & 0xffff);
  }
}
static void compose_longs(void* left, void* right, int* count, MPI_Datatype* type) {
  unsigned long *l = left, *r = right;
  (void)type;
  for (int i = 0; i < *count; ++i) {
    r[3 * i + 1] = l[3 * i] * r[3 * i + 1] + l[3 * i + 1];
    r[3 * i] *= l[3 * i];
  }
}

static void keep_left(void* left, void* right, int* count, MPI_Datatype* type) {
  (void)type;
  memcpy(right, left, (size_t)*count * sizeof(uint32_t));
}

static void test_operators_of_the_program(void) {
  enum { many = 5000 };
  static uint32_t x[many], y[many];
  static unsigned long p[3 * 50], q[3 * 50];
  MPI_Op ints, longs;
  MPI_Datatype two, spaced;
  MPI_Op_create(compose_ints, 0, &ints);
  MPI_Op_create(compose_longs, 0, &longs);
  MPI_Type_contiguous(2, MPI_UNSIGNED_LONG, &two);
  MPI_Type_create_resized(two, 0, 3 * (MPI_Aint)sizeof(long), &spaced);
  MPI_Type_commit(&spaced);
  for (int i = 0; i < many; ++i) x[i] = (uint32_t)(2 * rank + 3) << 16 | (uint32_t)(rank + i % 7);
  MPI_Allreduce(x, y, many, MPI_UINT32_T, ints, MPI_COMM_WORLD);
  for (int i = 0; i < many; ++i) {
    uint32_t a = 3, b = (uint32_t)(i % 7);
    for (int r = 1; r < ranks; ++r) {
      b = (a * (uint32_t)(r + i % 7) + b) & 0xffff;
      a = (a * (uint32_t)(2 * r + 3)) & 0xffff;
    }
    EXPECT(y[i] == (a << 16 | b));
  }
  for (int i = 0; i < 50; ++i)
    p[3 * i] = (unsigned long)(rank + 2), p[3 * i + 1] = (unsigned long)(rank + i), q[3 * i + 2] = 9;
  MPI_Allreduce(p, q, 50, spaced, longs, MPI_COMM_WORLD);
  for (int i = 0; i < 50; ++i) {
    unsigned long a = 2, b = (unsigned long)i;
    for (int r = 1; r < ranks; ++r) b += a * (unsigned long)(r + i), a *= (unsigned long)(r + 2);
    EXPECT(q[3 * i] == a && q[3 * i + 1] == b && q[3 * i + 2] == 9);
  }
  /* Another operator, which may get the handle of the one before. */
  MPI_Op_free(&ints);
  MPI_Op_create(keep_left, 0, &ints);
  MPI_Allreduce(x, y, many, MPI_UINT32_T, ints, MPI_COMM_WORLD);
  for (int i = 0; i < many; ++i) EXPECT(y[i] == (3u << 16 | (uint32_t)(i % 7)));
  MPI_Op_free(&ints);
  MPI_Op_free(&longs);
  MPI_Type_free(&two);
  MPI_Type_free(&spaced);
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  const MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_BAND, MPI_BOR, MPI_BXOR, MPI_LAND, MPI_LOR, MPI_LXOR};
  for (size_t i = 0; i < sizeof ops / sizeof ops[0]; ++i) test_integers(ops[i]);
  test_types();
  test_places();
  test_operators_of_the_program();
  return end();
}
