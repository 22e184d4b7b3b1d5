/* SPDX-License-Identifier: Apache-2.0
 *
 * Broadcast, gather, all-gather, scatter, all-to-all and barrier: on every root, in place, and with other datatypes of
 * the same signature at other ranks.
 */
#include "check.h"

static int *in, *out;

static void fill(int n) {
  for (int b = 0; b < ranks; ++b)
    for (int i = 0; i < n; ++i) in[b * n + i] = value(rank, b, i);
  memset(out, 0xff, sizeof(int) * (size_t)(ranks * n));
}

static void test_bcast(int n, int root) {
  for (int i = 0; i < n; ++i) out[i] = rank == root ? value(root, 0, i) : -1;
  EXPECT(MPI_Bcast(out, n, MPI_INT, root, MPI_COMM_WORLD) == MPI_SUCCESS);
  for (int i = 0; i < n; ++i) EXPECT(out[i] == value(root, 0, i));
}

static void test_gather(int n, int root) {
  fill(n);
  MPI_Gather(in, n, MPI_INT, out, n, MPI_INT, root, MPI_COMM_WORLD);
  for (int b = 0; rank == root && b < ranks; ++b)
    for (int i = 0; i < n; ++i) EXPECT(out[b * n + i] == value(b, 0, i));
  fill(n);
  if (n) memcpy(out + rank * n, in, sizeof(int) * (size_t)n);
  MPI_Gather(rank == root ? MPI_IN_PLACE : in, n, MPI_INT, out, n, MPI_INT, root, MPI_COMM_WORLD);
  for (int b = 0; rank == root && b < ranks; ++b)
    for (int i = 0; i < n; ++i) EXPECT(out[b * n + i] == value(b, 0, i));
}

static void test_scatter(int n, int root) {
  fill(n);
  MPI_Scatter(in, n, MPI_INT, out, n, MPI_INT, root, MPI_COMM_WORLD);
  for (int i = 0; i < n; ++i) EXPECT(out[i] == value(root, rank, i));
  fill(n);
  MPI_Scatter(in, n, MPI_INT, rank == root ? MPI_IN_PLACE : out, n, MPI_INT, root, MPI_COMM_WORLD);
  for (int i = 0; i < n; ++i) EXPECT((rank == root ? in + rank * n : out)[i] == value(root, rank, i));
}

static void test_all_gather(int n) {
  fill(n);
  MPI_Allgather(in, n, MPI_INT, out, n, MPI_INT, MPI_COMM_WORLD);
  for (int b = 0; b < ranks; ++b)
    for (int i = 0; i < n; ++i) EXPECT(out[b * n + i] == value(b, 0, i));
  fill(n);
  if (n) memcpy(out + rank * n, in, sizeof(int) * (size_t)n);
  MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, n, MPI_INT, MPI_COMM_WORLD);
  for (int b = 0; b < ranks; ++b)
    for (int i = 0; i < n; ++i) EXPECT(out[b * n + i] == value(b, 0, i));
}

static void test_all_to_all(int n) {
  fill(n);
  MPI_Alltoall(in, n, MPI_INT, out, n, MPI_INT, MPI_COMM_WORLD);
  for (int b = 0; b < ranks; ++b)
    for (int i = 0; i < n; ++i) EXPECT(out[b * n + i] == value(b, rank, i));
  fill(n);
  MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, n, MPI_INT, MPI_COMM_WORLD);
  for (int b = 0; b < ranks; ++b)
    for (int i = 0; i < n; ++i) EXPECT(in[b * n + i] == value(b, rank, i));
}

/* Every second int of a buffer at odd ranks, the same ints without gaps at even ones. */
static void test_mixed_types(int n) {
  MPI_Datatype spread, pairs;
  MPI_Type_vector(2, 1, 2, MPI_INT, &spread);
  MPI_Type_create_resized(spread, 0, 4 * (MPI_Aint)sizeof(int), &pairs);
  MPI_Type_commit(&pairs);
  const int odd = rank % 2, step = odd ? 2 : 1;
  const MPI_Datatype type = odd ? pairs : MPI_INT;
  const int count = odd ? n : 2 * n;
  int* from = malloc(sizeof(int) * (size_t)(4 * n * ranks + 1));
  int* to = malloc(sizeof(int) * (size_t)(4 * n * ranks + 1));
  for (int root = 0; root < ranks; ++root) {
    for (int i = 0; i < 4 * n; ++i) to[i] = -5;
    for (int i = 0; rank == root && i < 2 * n; ++i) to[i * step] = value(root, 0, i);
    MPI_Bcast(to, count, type, root, MPI_COMM_WORLD);
    for (int i = 0; i < 2 * n; ++i) EXPECT(to[i * step] == value(root, 0, i));
    for (int i = 0; odd && i < 2 * n; ++i) EXPECT(to[2 * i + 1] == -5);
  }
  for (int b = 0; b < ranks; ++b)
    for (int i = 0; i < 2 * n; ++i) from[(b * 2 * n + i) * step] = value(rank, b, i);
  MPI_Alltoall(from, count, type, to, count, type, MPI_COMM_WORLD);
  for (int b = 0; b < ranks; ++b)
    for (int i = 0; i < 2 * n; ++i) EXPECT(to[(b * 2 * n + i) * step] == value(b, rank, i));
  MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, from, count, type, MPI_COMM_WORLD);
  for (int b = 0; b < ranks; ++b)
    for (int i = 0; i < 2 * n; ++i) EXPECT(from[(b * 2 * n + i) * step] == value(b, rank, i));
  for (int i = 0; i < 2 * n; ++i) to[(rank * 2 * n + i) * step] = value(rank, 3, i);
  MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, to, count, type, MPI_COMM_WORLD);
  for (int b = 0; b < ranks; ++b)
    for (int i = 0; i < 2 * n; ++i) EXPECT(to[(b * 2 * n + i) * step] == value(b, 3, i));
  free(from);
  free(to);
  MPI_Type_free(&spread);
  MPI_Type_free(&pairs);
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  in = malloc(sizeof(int) * (size_t)(most * ranks));
  out = malloc(sizeof(int) * (size_t)(most * ranks));
  for (int c = 0; c < n_counts; ++c) {
    for (int root = 0; root < ranks; ++root) {
      test_bcast(counts[c], root);
      test_gather(counts[c], root);
      test_scatter(counts[c], root);
    }
    test_all_gather(counts[c]);
    test_all_to_all(counts[c]);
    test_mixed_types(counts[c] > 3000 ? 3000 : counts[c]);
    EXPECT(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS);
  }
  free(in);
  free(out);
  return end();
}
