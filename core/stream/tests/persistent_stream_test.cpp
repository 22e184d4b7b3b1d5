// SPDX-License-Identifier: Apache-2.0
//
// Persistent requests on device memory, of ranks as threads and as processes.
#include "../../tests/harness/graphs.hpp"
#include "../../tests/harness/stream_ranks.hpp"

namespace tutti::test {
namespace {

// A rank's persistent sum of all ranks, and a ring of messages.
struct Work {
  Work(tutti_comm* of, Stream& stream, uint64_t elements)
      : comm(of),
        s(stream),
        count(elements),
        in(s.make<int64_t>(count)),
        sum(s.make<int64_t>(count)),
        got(s.make<int64_t>(count)) {
    tutti_options options = on(s);
    options.flags = TUTTI_PERSISTENT;
    EXPECT_EQ(tutti_all_reduce(comm, in, sum, count, TUTTI_INT64, TUTTI_SUM, &options, &sums), TUTTI_OK)
        << tutti_comm_error(comm);
    const uint32_t n = tutti_comm_nranks(comm), rank = tutti_comm_rank(comm);
    const tutti_message ring[] = {{in, count, TUTTI_INT64, (rank + 1) % n, 3, TUTTI_SEND, {}},
                                  {got, count, TUTTI_INT64, (rank + n - 1) % n, 3, TUTTI_RECEIVE, {}}};
    EXPECT_EQ(tutti_exchange(comm, ring, 2, &options, &messages), TUTTI_OK) << tutti_comm_error(comm);
  }
  ~Work() {
    tutti_request_free(sums);
    tutti_request_free(messages);
    for (void* data : {in, sum, got}) s.free(data);
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  static int64_t at(uint32_t rank, uint64_t i, int round) { return value(rank, i) + 17 * round; }
  void fill(uint32_t rank, int round) const {
    for (uint64_t i = 0; i < count; ++i) in[i] = at(rank, i, round);
  }
  void check(uint32_t rank, int round, bool ring) const {
    const uint32_t n = tutti_comm_nranks(comm);
    for (const uint64_t i : {uint64_t{0}, count / 3, count - 1}) {
      int64_t expected = 0;
      for (uint32_t r = 0; r < n; ++r) expected += at(r, i, round);
      ASSERT_EQ(sum[i], expected) << "start " << round << ", " << i;
      if (!ring) continue;
      ASSERT_EQ(got[i], at((rank + n - 1) % n, i, round)) << "start " << round << ", " << i;
    }
  }

  tutti_comm* comm;
  Stream& s;
  uint64_t count;
  int64_t *in, *sum, *got;
  tutti_request *sums = nullptr, *messages = nullptr;
};

void start_again(tutti_comm* comm, uint32_t rank, uint64_t count) {
  Stream s;
  const Work work(comm, s, count);
  for (int round = 0; round < 5; ++round) {
    work.fill(rank, round);
    for (tutti_request* request : {work.sums, work.messages})
      ASSERT_EQ(tutti_request_start(request), TUTTI_OK) << tutti_comm_error(comm);
    for (tutti_request* request : {work.sums, work.messages})
      ASSERT_EQ(tutti_request_wait(request), TUTTI_OK) << tutti_request_error(request);
    ASSERT_TRUE(s.finish());
    work.check(rank, round, true);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(PersistentStream, ThreadsStartAgain) {
  for (const uint32_t n : {1u, 2u, 3u})
    run_processes(n, n, [](tutti_comm* comm, uint32_t rank) {
      for (const uint64_t count : {uint64_t{5}, uint64_t{30'000}}) start_again(comm, rank, count);
    });
}

TEST(PersistentStream, ProcessesStartAgain) {
  run_processes(2, 1, [](tutti_comm* comm, uint32_t rank) {
    for (const uint64_t count : {uint64_t{5}, uint64_t{700'000}}) start_again(comm, rank, count);
  });
}

// A start on a captured stream is recorded, as the call is; the request is complete meanwhile.
TEST(PersistentStream, AStartIsRecorded) {
  run_processes(2, 1, [](tutti_comm* comm, uint32_t rank) {
    Stream s;
    const Work work(comm, s, 1000);
    work.fill(rank, 0);
    ASSERT_EQ(tutti_request_start(work.sums), TUTTI_OK) << tutti_comm_error(comm);
    ASSERT_EQ(tutti_request_wait(work.sums), TUTTI_OK);
    void* graph = nullptr;
    ASSERT_EQ(graphs().begin(&s.handle, 1, &graph), TUTTI_OK);
    ASSERT_EQ(tutti_request_start(work.sums), TUTTI_OK) << tutti_comm_error(comm);
    EXPECT_EQ(tutti_request_test(work.sums), TUTTI_OK);
    EXPECT_EQ(tutti_request_start(work.messages), TUTTI_NOT_SUPPORTED);
    EXPECT_EQ(tutti_request_test(work.messages), TUTTI_NOT_SUPPORTED) << "the start has failed";
    ASSERT_EQ(graphs().end(graph), TUTTI_OK);
    for (int round = 1; round < 4; ++round) {
      work.fill(rank, round);
      ASSERT_EQ(graphs().launch(graph), TUTTI_OK);
      ASSERT_TRUE(s.finish());
      work.check(rank, round, false);
    }
    graphs().destroy(graph);
    work.fill(rank, 9);
    for (tutti_request* request : {work.sums, work.messages}) {
      ASSERT_EQ(tutti_request_start(request), TUTTI_OK) << tutti_comm_error(comm);
      ASSERT_EQ(tutti_request_wait(request), TUTTI_OK) << tutti_request_error(request);
    }
    ASSERT_TRUE(s.finish());
    work.check(rank, 9, true);
  });
}

}  // namespace
}  // namespace tutti::test
