// SPDX-License-Identifier: Apache-2.0
//
// Collectives that a captured stream records, replayed with other data each time.
#include <barrier>

#include "graphs.hpp"
#include "stream_ranks.hpp"

namespace tutti::test {
namespace {

// What a rank records: several collectives, of which one is in place.
struct Work {
  Work(Stream& stream, uint32_t nranks, uint64_t elements)
      : s(stream),
        n(nranks),
        count(elements),
        in(s.make<int64_t>(n * count)),
        sum(s.make<int64_t>(count)),
        all(s.make<int64_t>(n * count)) {}
  ~Work() {
    for (void* data : {in, sum, all}) s.free(data);
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  void call(tutti_comm* comm) const {
    const tutti_options options = on(s);
    ASSERT_EQ(tutti_all_reduce(comm, in, sum, count, TUTTI_INT64, TUTTI_SUM, &options, nullptr), TUTTI_OK)
        << tutti_comm_error(comm);
    ASSERT_EQ(tutti_all_to_all(comm, in, all, count, TUTTI_INT64, &options, nullptr), TUTTI_OK)
        << tutti_comm_error(comm);
    ASSERT_EQ(tutti_broadcast(comm, sum, sum, count, TUTTI_INT64, n - 1, &options, nullptr), TUTTI_OK)
        << tutti_comm_error(comm);
  }
  static int64_t at(uint32_t rank, uint64_t i, int round) { return value(rank, i) + 17 * round; }
  void fill(uint32_t rank, int round) const {
    for (uint64_t i = 0; i < n * count; ++i) in[i] = at(rank, i, round);
  }
  void check(uint32_t rank, int round) const {
    for (const uint64_t i : {uint64_t{0}, count / 3, count - 1}) {
      int64_t expected = 0;
      for (uint32_t r = 0; r < n; ++r) {
        expected += at(r, i, round);
        ASSERT_EQ(all[r * count + i], at(r, rank * count + i, round)) << "replay " << round << ", " << i;
      }
      ASSERT_EQ(sum[i], expected) << "replay " << round << ", " << i;
    }
  }

  Stream& s;
  uint32_t n;
  uint64_t count;
  int64_t *in, *sum, *all;
};

void* record(tutti_comm* comm, const Work& work) {
  void* graph = nullptr;
  EXPECT_EQ(graphs().begin(&work.s.handle, 1, &graph), TUTTI_OK);
  work.call(comm);
  EXPECT_EQ(graphs().end(graph), TUTTI_OK);
  return graph;
}

// Calls that are not recorded come between replays now and then.
void replay(tutti_comm* comm, uint32_t rank, uint64_t count, int rounds, uint32_t of = 0) {
  Stream s(of);
  const Work work(s, tutti_comm_nranks(comm), count);
  work.fill(rank, 0);
  work.call(comm);
  ASSERT_TRUE(s.finish());
  void* graph = record(comm, work);
  for (int round = 1; round <= rounds; ++round) {
    work.fill(rank, round);
    if (round % 9 == 5)
      work.call(comm);
    else
      ASSERT_EQ(graphs().launch(graph), TUTTI_OK);
    ASSERT_TRUE(s.finish());
    work.check(rank, round);
    if (testing::Test::HasFatalFailure()) return;
  }
  graphs().destroy(graph);
}

TEST(CapturedStream, ProcessesReplayAThousandTimes) {
  run_processes(2, 1, [](tutti_comm* comm, uint32_t rank) { replay(comm, rank, 300, 1000); });
  run_processes(3, 1, [](tutti_comm* comm, uint32_t rank) {
    replay(comm, rank, 1, 100);
    replay(comm, rank, 700'000, 4);  // more fragments than a channel has slots
  });
}

// On devices of their own a recorded call is one launch, too.
TEST(CapturedStream, OneLaunchIsReplayed) {
  run_processes(
      3, 1,
      [](tutti_comm* comm, uint32_t rank) {
        replay(comm, rank, 50, 40, rank);
        tutti_plan_facts facts{};
        facts.struct_size = sizeof facts;
        ASSERT_EQ(tutti_comm_plan(comm, TUTTI_ALL_REDUCE, &facts), TUTTI_OK);
        EXPECT_STREQ(facts.transports, "simulated+mapped+fused");
      },
      "", [](uint32_t) { setenv("TUTTI_SIMULATED_DEVICES", "3", 1); });
}

// One graph of all their streams, as threads that capture together make it.
TEST(CapturedStream, ThreadsReplay) {
  static constexpr uint32_t n = 3;
  static std::vector<void*> handles(n);
  static void* graph = nullptr;
  static std::barrier meet(n);
  run_processes(n, n, [](tutti_comm* comm, uint32_t rank) {
    Stream s;
    const Work work(s, n, 2000);
    handles[rank] = s.handle;
    work.fill(rank, 0);
    work.call(comm);
    EXPECT_TRUE(s.finish());
    meet.arrive_and_wait();
    if (rank == 0) {
      EXPECT_EQ(graphs().begin(handles.data(), n, &graph), TUTTI_OK);
    }
    meet.arrive_and_wait();
    work.call(comm);
    meet.arrive_and_wait();
    if (rank == 0) {
      EXPECT_EQ(graphs().end(graph), TUTTI_OK);
    }
    for (int round = 1; round <= 50; ++round) {
      work.fill(rank, round);
      meet.arrive_and_wait();
      if (rank == 0) {
        EXPECT_EQ(graphs().launch(graph), TUTTI_OK);
      }
      meet.arrive_and_wait();
      EXPECT_TRUE(s.finish());
      work.check(rank, round);
      meet.arrive_and_wait();
    }
    if (rank == 0) graphs().destroy(graph);
  });
}

// Registered memory is read where it is, by replays too.
TEST(CapturedStream, RegisteredMemoryIsReplayed) {
  run_processes(2, 1, [](tutti_comm* comm, uint32_t rank) {
    constexpr uint64_t count = 300'000;
    Stream s;
    const Work work(s, 2, count);
    for (void* data : {work.in, work.all})
      ASSERT_EQ(tutti_mem_register(data, 2 * count * sizeof(int64_t), -1, 0), TUTTI_OK);
    ASSERT_EQ(tutti_mem_register(work.sum, count * sizeof(int64_t), -1, 0), TUTTI_OK);
    work.fill(rank, 0);
    work.call(comm);
    ASSERT_TRUE(s.finish());
    void* graph = record(comm, work);
    tutti_plan_facts facts{};
    facts.struct_size = sizeof facts;
    EXPECT_EQ(tutti_comm_plan(comm, TUTTI_ALL_REDUCE, &facts), TUTTI_OK);
    EXPECT_STREQ(facts.transports, "simulated+direct");
    for (int round = 1; round <= 20; ++round) {
      work.fill(rank, round);
      ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);
      ASSERT_EQ(graphs().launch(graph), TUTTI_OK);
      ASSERT_TRUE(s.finish());
      work.check(rank, round);
    }
    graphs().destroy(graph);
    for (void* data : {work.in, work.all, work.sum}) {
      tutti_status status = TUTTI_TIMEOUT;  // a peer's thread may come late
      for (int k = 0; k < 60 && status == TUTTI_TIMEOUT; ++k) status = tutti_mem_deregister(data);
      EXPECT_EQ(status, TUTTI_OK);
    }
  });
}

// Refused before anything is issued: the communicator goes on.
void expect_refused(tutti_comm* comm, Stream& s, const char* why) {
  const tutti_options options = on(s);
  auto* data = s.make<int64_t>(10);
  void* graph = nullptr;
  EXPECT_EQ(graphs().begin(&s.handle, 1, &graph), TUTTI_OK);
  EXPECT_EQ(tutti_all_reduce(comm, data, data, 10, TUTTI_INT64, TUTTI_SUM, &options, nullptr), TUTTI_NOT_SUPPORTED);
  EXPECT_NE(std::string(tutti_comm_error(comm)).find(why), std::string::npos) << tutti_comm_error(comm);
  tutti_request* request = nullptr;
  EXPECT_EQ(tutti_all_reduce(comm, data, data, 10, TUTTI_INT64, TUTTI_SUM, &options, &request), TUTTI_NOT_SUPPORTED);
  EXPECT_NE(std::string(tutti_comm_error(comm)).find("has no request"), std::string::npos) << tutti_comm_error(comm);
  EXPECT_EQ(graphs().end(graph), TUTTI_OK);
  graphs().destroy(graph);
  std::fill_n(data, 10, 1);
  EXPECT_EQ(tutti_all_reduce(comm, data, data, 10, TUTTI_INT64, TUTTI_SUM, &options, nullptr), TUTTI_OK)
      << tutti_comm_error(comm);
  EXPECT_TRUE(s.finish());
  EXPECT_EQ(data[9], 2);
  s.free(data);
}

// A replay reads the scratch that peers had when it was recorded, also when later calls have larger ones.
TEST(CapturedStream, ScratchOfAReplayStays) {
  run_processes(
      3, 1,
      [](tutti_comm* comm, uint32_t rank) {
        constexpr uint64_t small = (1 << 20) / sizeof(int64_t), large = 2 * small;
        Stream s;
        auto *in = s.make<int64_t>(3 * large), *out = s.make<int64_t>(large);
        ASSERT_EQ(tutti_mem_register(in, 3 * large * sizeof *in, -1, 0), TUTTI_OK);
        ASSERT_EQ(tutti_mem_register(out, large * sizeof *out, -1, 0), TUTTI_OK);
        const tutti_options options = on(s);
        const auto reduce = [&](uint64_t count) {
          ASSERT_EQ(tutti_reduce_scatter(comm, in, out, count, TUTTI_INT64, TUTTI_SUM, &options, nullptr), TUTTI_OK)
              << tutti_comm_error(comm);
        };
        reduce(small);
        ASSERT_TRUE(s.finish());
        void* graph = nullptr;
        EXPECT_EQ(graphs().begin(&s.handle, 1, &graph), TUTTI_OK);
        reduce(small);
        EXPECT_EQ(graphs().end(graph), TUTTI_OK);
        for (int call = 0; call < 3; ++call) reduce(large);
        ASSERT_TRUE(s.finish());
        ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK) << tutti_comm_error(comm);
        for (int round = 0; round < 3; ++round) {
          for (uint64_t i = 0; i < 3 * small; ++i) in[i] = Work::at(rank, i, round);
          EXPECT_EQ(graphs().launch(graph), TUTTI_OK);
          ASSERT_TRUE(s.finish());
          for (uint64_t i = 0; i < small; ++i) {
            int64_t expected = 0;
            for (uint32_t r = 0; r < 3; ++r) expected += Work::at(r, rank * small + i, round);
            ASSERT_EQ(out[i], expected) << "replay " << round << ", " << i;
          }
          ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK) << tutti_comm_error(comm);
        }
        graphs().destroy(graph);
        for (void* data : {in, out}) {
          tutti_status status = TUTTI_TIMEOUT;  // a peer's thread may come late
          for (int k = 0; k < 60 && status == TUTTI_TIMEOUT; ++k) status = tutti_mem_deregister(data);
          EXPECT_EQ(status, TUTTI_OK);
          s.free(data);
        }
      },
      "reduce_scatter:ring");
}

TEST(CapturedStream, WhatAReplayCouldNotDoIsRefused) {
  run_processes(2, 1, [](tutti_comm* comm, uint32_t) {
    Stream s;
    expect_refused(comm, s, "was made before without capturing");
  });
  setenv("TUTTI_TRANSPORT", "shm", 1);
  run_processes(2, 1, [](tutti_comm* comm, uint32_t) {
    Stream s;
    expect_refused(comm, s, "was made before without capturing");
    expect_refused(comm, s, "is carried by the host over shm, which takes no part in a replay");
  });
  unsetenv("TUTTI_TRANSPORT");
}

// Replays are known to nobody, but a broken communicator lets them come to their end.
TEST(CapturedStream, ReplaysEndWhenAPeerHasDied) {
  run_processes(2, 1, [](tutti_comm* comm, uint32_t rank) {
    Stream s;
    const Work work(s, 2, 400'000);
    work.call(comm);
    ASSERT_TRUE(s.finish());
    void* graph = record(comm, work);
    ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);
    if (rank == 1) std::_Exit(0);
    ASSERT_EQ(graphs().launch(graph), TUTTI_OK);
    ASSERT_TRUE(s.finish());
    EXPECT_EQ(tutti_comm_async_error(comm), TUTTI_PEER_FAILED);
    EXPECT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_PEER_FAILED);
    ASSERT_EQ(graphs().launch(graph), TUTTI_OK);  // also what is launched afterwards
    ASSERT_TRUE(s.finish());
    graphs().destroy(graph);
  });
}

}  // namespace
}  // namespace tutti::test
