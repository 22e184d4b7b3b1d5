/* SPDX-License-Identifier: Apache-2.0
 *
 * The v-forms and MPI_Alltoallw: gaps between blocks, empty blocks, in place, other datatypes at other ranks.
 */
#include "check.h"

enum { most_ranks = 64, gap = 3 };

/* Elements that rank `from` sends to rank `to`. */
static int size_of(int from, int to) { return (from * 3 + to * 5) % 7 * 100; }

static int in_counts[most_ranks], in_offsets[most_ranks], out_counts[most_ranks], out_offsets[most_ranks];
static int in[200000], out[200000];

/* Blocks in reverse order, with gaps. Returns how many elements the buffer has. */
static int lay_out(int* counts_of, int* offsets) {
  int at = 0;
  for (int b = ranks - 1; b >= 0; --b) {
    offsets[b] = at;
    at += counts_of[b] + gap;
  }
  return at;
}

static void clear(void) {
  for (size_t i = 0; i < sizeof out / sizeof out[0]; ++i) out[i] = -9;
}

static void expect_gaps(void) {
  for (int b = 0; b < ranks; ++b)
    for (int i = 0; i < gap; ++i) EXPECT(out[out_offsets[b] + out_counts[b] + i] == -9);
}

static void test_gather_v(int root, int in_place) {
  const int mine = size_of(rank, root);
  for (int b = 0; b < ranks; ++b) out_counts[b] = size_of(b, root);
  lay_out(out_counts, out_offsets);
  clear();
  for (int i = 0; i < mine; ++i) in[i] = value(rank, root, i);
  const int from_out = in_place && rank == root;
  if (from_out) memcpy(out + out_offsets[root], in, sizeof(int) * (size_t)mine);
  MPI_Gatherv(from_out ? MPI_IN_PLACE : in, mine, MPI_INT, out, out_counts, out_offsets, MPI_INT, root, MPI_COMM_WORLD);
  if (rank != root) return;
  for (int b = 0; b < ranks; ++b)
    for (int i = 0; i < out_counts[b]; ++i) EXPECT(out[out_offsets[b] + i] == value(b, root, i));
  expect_gaps();
}

static void test_scatter_v(int root, int in_place) {
  const int mine = size_of(root, rank);
  for (int b = 0; b < ranks; ++b) in_counts[b] = size_of(root, b);
  lay_out(in_counts, in_offsets);
  clear();
  for (int b = 0; b < ranks; ++b)
    for (int i = 0; i < in_counts[b]; ++i) in[in_offsets[b] + i] = value(root, b, i);
  const int to_in = in_place && rank == root;
  MPI_Scatterv(in, in_counts, in_offsets, MPI_INT, to_in ? MPI_IN_PLACE : out, mine, MPI_INT, root, MPI_COMM_WORLD);
  for (int i = 0; i < mine; ++i) EXPECT((to_in ? in + in_offsets[rank] : out)[i] == value(root, rank, i));
  EXPECT(to_in || out[mine] == -9);
}

static void test_all_gather_v(int in_place) {
  for (int b = 0; b < ranks; ++b) out_counts[b] = size_of(b, 2);
  lay_out(out_counts, out_offsets);
  clear();
  for (int i = 0; i < out_counts[rank]; ++i) (in_place ? out + out_offsets[rank] : in)[i] = value(rank, 2, i);
  MPI_Allgatherv(in_place ? MPI_IN_PLACE : in, out_counts[rank], MPI_INT, out, out_counts, out_offsets, MPI_INT,
                 MPI_COMM_WORLD);
  for (int b = 0; b < ranks; ++b)
    for (int i = 0; i < out_counts[b]; ++i) EXPECT(out[out_offsets[b] + i] == value(b, 2, i));
  expect_gaps();
}

static void prepare_exchange(void) {
  for (int b = 0; b < ranks; ++b) in_counts[b] = size_of(rank, b), out_counts[b] = size_of(b, rank);
  lay_out(in_counts, in_offsets);
  lay_out(out_counts, out_offsets);
  clear();
  for (int b = 0; b < ranks; ++b)
    for (int i = 0; i < in_counts[b]; ++i) in[in_offsets[b] + i] = value(rank, b, i);
}

static void test_all_to_all_v(void) {
  prepare_exchange();
  MPI_Alltoallv(in, in_counts, in_offsets, MPI_INT, out, out_counts, out_offsets, MPI_INT, MPI_COMM_WORLD);
  for (int b = 0; b < ranks; ++b)
    for (int i = 0; i < out_counts[b]; ++i) EXPECT(out[out_offsets[b] + i] == value(b, rank, i));
  expect_gaps();
  /* In place what two ranks exchange has one size. */
  for (int b = 0; b < ranks; ++b) out_counts[b] = size_of(rank + b, rank * b);
  lay_out(out_counts, out_offsets);
  for (int b = 0; b < ranks; ++b)
    for (int i = 0; i < out_counts[b]; ++i) out[out_offsets[b] + i] = value(rank, b, i);
  MPI_Alltoallv(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, out, out_counts, out_offsets, MPI_INT, MPI_COMM_WORLD);
  for (int b = 0; b < ranks; ++b)
    for (int i = 0; i < out_counts[b]; ++i) EXPECT(out[out_offsets[b] + i] == value(b, rank, i));
}

/* Odd ranks receive into every second int. */
static void test_all_to_all_w(void) {
  MPI_Datatype one, spread, in_types[most_ranks], out_types[most_ranks];
  MPI_Type_contiguous(1, MPI_INT, &one);
  MPI_Type_create_resized(one, 0, 2 * (MPI_Aint)sizeof(int), &spread);
  MPI_Type_commit(&spread);
  prepare_exchange();
  const int step = rank % 2 ? 2 : 1;
  for (int b = 0; b < ranks; ++b) {
    in_types[b] = MPI_INT;
    out_types[b] = rank % 2 ? spread : MPI_INT;
    in_offsets[b] *= (int)sizeof(int);
    out_offsets[b] *= step * (int)sizeof(int);
  }
  MPI_Alltoallw(in, in_counts, in_offsets, in_types, out, out_counts, out_offsets, out_types, MPI_COMM_WORLD);
  for (int b = 0; b < ranks; ++b)
    for (int i = 0; i < out_counts[b]; ++i)
      EXPECT(out[out_offsets[b] / (int)sizeof(int) + i * step] == value(b, rank, i));
  MPI_Type_free(&one);
  MPI_Type_free(&spread);
}

/* A datatype of absolute addresses: two parts of the buffer. */
static void test_bottom(int root) {
  enum { part = 100, second = 300 };
  const int lengths[] = {part, part};
  MPI_Aint places[2];
  MPI_Datatype parts;
  MPI_Get_address(in, &places[0]);
  MPI_Get_address(in + second, &places[1]);
  MPI_Type_create_hindexed(2, lengths, places, MPI_INT, &parts);
  MPI_Type_commit(&parts);
  for (int i = 0; i < second + part; ++i) in[i] = value(rank, root, i);
  MPI_Bcast(MPI_BOTTOM, 1, parts, root, MPI_COMM_WORLD);
  for (int i = 0; i < second + part; ++i)
    EXPECT(in[i] == value(i < part || i >= second ? root : rank, root, i));
  MPI_Type_free(&parts);
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  for (int in_place = 0; in_place < 2; ++in_place) {
    for (int root = 0; root < ranks; ++root) {
      test_gather_v(root, in_place);
      test_scatter_v(root, in_place);
      if (!in_place) test_bottom(root);
    }
    test_all_gather_v(in_place);
  }
  test_all_to_all_v();
  test_all_to_all_w();
  return end();
}
