/* SPDX-License-Identifier: Apache-2.0
 *
 * The non-blocking forms: many at once, completed by every kind of wait, mixed with messages; types and operators that
 * are freed before the end; a request that is cancelled; a wait for a message while a collective is pending.
 */
#include "check.h"

enum { n = 2000, many = 16 };

static int in[64 * n], out[many][64 * n];

static void begin_all(MPI_Request* requests) {
  int root = 0;
  for (int b = 0; b < ranks; ++b)
    for (int i = 0; i < n; ++i) in[b * n + i] = value(rank, b, i);
  memcpy(out[1], in, sizeof in);
  MPI_Ibarrier(MPI_COMM_WORLD, &requests[0]);
  MPI_Ibcast(out[1], n, MPI_INT, root, MPI_COMM_WORLD, &requests[1]);
  MPI_Iallreduce(in, out[2], n, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[2]);
  MPI_Igather(in, n, MPI_INT, out[3], n, MPI_INT, root, MPI_COMM_WORLD, &requests[3]);
  MPI_Iallgather(in, n, MPI_INT, out[4], n, MPI_INT, MPI_COMM_WORLD, &requests[4]);
  MPI_Iscatter(in, n, MPI_INT, out[5], n, MPI_INT, root, MPI_COMM_WORLD, &requests[5]);
  MPI_Ialltoall(in, n, MPI_INT, out[6], n, MPI_INT, MPI_COMM_WORLD, &requests[6]);
  MPI_Ireduce(in, out[7], n, MPI_INT, MPI_MAX, root, MPI_COMM_WORLD, &requests[7]);
  MPI_Ireduce_scatter_block(in, out[8], n, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[8]);
  MPI_Iscan(in, out[9], n, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[9]);
  MPI_Iexscan(in, out[10], n, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[10]);
  /* A message in a ring. */
  MPI_Irecv(out[11], n, MPI_INT, (rank + ranks - 1) % ranks, 5, MPI_COMM_WORLD, &requests[11]);
  MPI_Isend(in, n, MPI_INT, (rank + 1) % ranks, 5, MPI_COMM_WORLD, &requests[12]);
}
enum { n_requests = 13 };

static int sum_of(int last, int to, int i) {
  int sum = 0;
  for (int r = 0; r <= last; ++r) sum += value(r, to, i);
  return sum;
}

static void expect_all(void) {
  for (int i = 0; i < n; ++i) {
    EXPECT(out[1][i] == value(0, 0, i));
    EXPECT(out[2][i] == sum_of(ranks - 1, 0, i));
    EXPECT(out[5][i] == value(0, rank, i));
    EXPECT(out[8][i] == sum_of(ranks - 1, rank, i));
    EXPECT(out[9][i] == sum_of(rank, 0, i));
    EXPECT(rank == 0 || out[10][i] == sum_of(rank - 1, 0, i));
    EXPECT(out[11][i] == value((rank + ranks - 1) % ranks, 0, i));
    int largest = 0;
    for (int b = 0; b < ranks; ++b) {
      EXPECT(rank || out[3][b * n + i] == value(b, 0, i));
      EXPECT(out[4][b * n + i] == value(b, 0, i));
      EXPECT(out[6][b * n + i] == value(b, rank, i));
      largest = value(b, 0, i) > largest ? value(b, 0, i) : largest;
    }
    EXPECT(rank || out[7][i] == largest);
  }
}

static void test_waits(void) {
  MPI_Request requests[many];
  MPI_Status statuses[many];
  int indices[many], done = 0, flag = 0, got;
  begin_all(requests);
  EXPECT(MPI_Waitall(n_requests, requests, statuses) == MPI_SUCCESS);
  MPI_Get_count(&statuses[11], MPI_INT, &got);
  EXPECT(got == n && statuses[11].MPI_TAG == 5);
  for (int i = 0; i < n_requests; ++i) EXPECT(requests[i] == MPI_REQUEST_NULL);
  expect_all();
  begin_all(requests);
  for (int i = n_requests; i-- > 0;) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
  expect_all();
  begin_all(requests);
  for (int i = 0, index; i < n_requests; ++i) {
    MPI_Waitany(n_requests, requests, &index, MPI_STATUS_IGNORE);
    EXPECT(index >= 0 && index < n_requests && requests[index] == MPI_REQUEST_NULL);
  }
  expect_all();
  begin_all(requests);
  while (done < n_requests) {
    MPI_Waitsome(n_requests, requests, &got, indices, MPI_STATUSES_IGNORE);
    done += got;
  }
  expect_all();
  begin_all(requests);
  while (!flag) MPI_Testall(n_requests, requests, &flag, MPI_STATUSES_IGNORE);
  expect_all();
  begin_all(requests);
  for (int i = 0; i < n_requests; ++i)
    for (flag = 0; !flag;) MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE);
  expect_all();
}

static void add(void* left, void* right, int* count, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < 2 * *count; ++i) ((int*)right)[i] += ((int*)left)[i];
}

/* MPI lets a program free types and operators that pending calls use. */
static void test_freed_early(void) {
  MPI_Datatype two, spread;
  MPI_Op op;
  MPI_Request requests[2];
  static int from[4 * n], to[4 * n];
  MPI_Type_contiguous(2, MPI_INT, &two);
  MPI_Type_commit(&two);
  MPI_Type_vector(n, 1, 2, MPI_INT, &spread);
  MPI_Type_commit(&spread);
  MPI_Op_create(add, 1, &op);
  for (int i = 0; i < 2 * n; ++i) from[i] = value(rank, 0, i), to[i] = rank ? -1 : value(0, 0, i);
  MPI_Iallreduce(from, out[0], n, two, op, MPI_COMM_WORLD, &requests[0]);
  MPI_Ibcast(to, 1, spread, 0, MPI_COMM_WORLD, &requests[1]);
  MPI_Op_free(&op);
  MPI_Type_free(&two);
  MPI_Type_free(&spread);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  for (int i = 0; i < 2 * n; ++i) EXPECT(out[0][i] == sum_of(ranks - 1, 0, i));
  for (int i = 0; i < n; ++i) EXPECT(to[2 * i] == value(0, 0, 2 * i));
}

/* Rank 1 sends when its part of the broadcast has ended, for which it needs rank 0, which waits for the message. */
static void test_progress(void) {
  enum { large = 4000000 };
  int* data = malloc(sizeof(int) * large);
  MPI_Request request;
  int token = 0;
  for (int i = 0; i < large; ++i) data[i] = rank ? 0 : i;
  MPI_Ibcast(data, large, MPI_INT, 0, MPI_COMM_WORLD, &request);
  if (rank == 0 && ranks > 1) MPI_Recv(&token, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  if (rank == 1) MPI_Send(&rank, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
  for (int i = 0; i < large; ++i) EXPECT(data[i] == i);
  /* And a message that needs its sender while that waits in a barrier. */
  if (rank == 0 && ranks > 1) MPI_Isend(data, large, MPI_INT, 1, 2, MPI_COMM_WORLD, &request);
  if (rank == 1) MPI_Recv(data, large, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0 && ranks > 1) MPI_Wait(&request, MPI_STATUS_IGNORE);
  free(data);
}

/* The first call of a new communicator may be a non-blocking one, and the communicator be freed before its end. */
static void test_communicators(void) {
  MPI_Comm copy, half;
  MPI_Request requests[3];
  int sum = 0, mine = rank, half_ranks, half_sum = 0, expected = 0;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
  MPI_Comm_size(half, &half_ranks);
  MPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, copy, &requests[0]);
  MPI_Iallreduce(&mine, &half_sum, 1, MPI_INT, MPI_SUM, half, &requests[1]);
  MPI_Ibarrier(MPI_COMM_SELF, &requests[2]);
  MPI_Comm_free(&copy);
  MPI_Comm_free(&half);
  MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
  for (int r = rank % 2; r < ranks; r += 2) expected += r;
  EXPECT(sum == ranks * (ranks - 1) / 2 && half_sum == expected);
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  test_waits();
  test_freed_early();
  test_progress();
  test_communicators();
  return end();
}
