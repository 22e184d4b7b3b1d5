// SPDX-License-Identifier: Apache-2.0
//
// Collectives that a captured stream records, replayed with other data each time.
#include <barrier>

#include "../../tests/harness/graphs.hpp"
#include "../../tests/harness/stream_ranks.hpp"

namespace tutti::test {
namespace {

// A recording of a rank: several collectives, of which one is in place.
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
  const OnDevices each;
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

// Windows are read in place by replays, too, whatever the size.
TEST(CapturedStream, WindowsAreReplayedAThousandTimes) {
  for (const auto& [count, rounds] : {std::pair{uint64_t{300}, 1000}, std::pair{uint64_t{300'000}, 20}})
    run_processes(2, 1, [count = count, rounds = rounds](tutti_comm* comm, uint32_t rank) {
      Stream s;
      const Work work(s, 2, count);
      std::vector<tutti_window*> windows;
      for (const auto& [data, elements] : {std::pair{work.in, 2 * count}, {work.all, 2 * count}, {work.sum, count}})
        ASSERT_EQ(tutti_comm_register(comm, data, elements * sizeof *data, nullptr, &windows.emplace_back()), TUTTI_OK);
      work.fill(rank, 0);
      work.call(comm);
      ASSERT_TRUE(s.finish());
      void* graph = record(comm, work);
      EXPECT_EQ(served(comm), "simulated+window");
      for (int round = 1; round <= rounds; ++round) {
        work.fill(rank, round);
        ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);
        ASSERT_EQ(graphs().launch(graph), TUTTI_OK);
        ASSERT_TRUE(s.finish());
        work.check(rank, round);
        if (testing::Test::HasFatalFailure()) return;
      }
      graphs().destroy(graph);
      for (tutti_window* window : windows)
        EXPECT_EQ(tutti_comm_deregister(comm, window, nullptr), TUTTI_OK) << tutti_comm_error(comm);
    });
}

// A shape that was only called through slots cannot be recorded in windows.
TEST(CapturedStream, WindowsAreSettledBeforeCapturing) {
  run_processes(2, 1, [](tutti_comm* comm, uint32_t) {
    Stream s;
    const tutti_options options = on(s);
    auto* data = s.make<int64_t>(10);
    const auto reduce = [&] {
      return tutti_all_reduce(comm, data, data, 10, TUTTI_INT64, TUTTI_SUM, &options, nullptr);
    };
    ASSERT_EQ(reduce(), TUTTI_OK) << tutti_comm_error(comm);
    ASSERT_TRUE(s.finish());
    tutti_window* window = nullptr;
    ASSERT_EQ(tutti_comm_register(comm, data, 80, nullptr, &window), TUTTI_OK);
    void* graph = nullptr;
    EXPECT_EQ(graphs().begin(&s.handle, 1, &graph), TUTTI_OK);
    EXPECT_EQ(reduce(), TUTTI_NOT_SUPPORTED);
    EXPECT_NE(std::string(tutti_comm_error(comm)).find("with buffers in windows as well"), std::string::npos)
        << tutti_comm_error(comm);
    EXPECT_EQ(graphs().end(graph), TUTTI_OK);
    graphs().destroy(graph);
    ASSERT_EQ(reduce(), TUTTI_OK) << tutti_comm_error(comm);
    ASSERT_TRUE(s.finish());
    EXPECT_EQ(tutti_comm_deregister(comm, window, nullptr), TUTTI_OK);
    s.free(data);
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
        tutti_window* windows[2] = {};
        ASSERT_EQ(tutti_comm_register(comm, in, 3 * large * sizeof *in, nullptr, &windows[0]), TUTTI_OK);
        ASSERT_EQ(tutti_comm_register(comm, out, large * sizeof *out, nullptr, &windows[1]), TUTTI_OK);
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
        EXPECT_EQ(served(comm, TUTTI_REDUCE_SCATTER), "simulated+window");
        for (tutti_window* window : windows) EXPECT_EQ(tutti_comm_deregister(comm, window, nullptr), TUTTI_OK);
        for (void* data : {in, out}) s.free(data);
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
    expect_refused(comm, s, "is carried by the host over shm, and a replay does not include the host");
  });
  unsetenv("TUTTI_TRANSPORT");
}

// The statuses of all ranks' calls are one, as they say on the host.
void expect_alike(tutti_comm* comm, tutti_status status, tutti_status expected) {
  const int64_t mine = status;
  int64_t least = 0, most = 0;
  ASSERT_EQ(tutti_all_reduce(comm, &mine, &least, 1, TUTTI_INT64, TUTTI_MIN, nullptr, nullptr), TUTTI_OK);
  ASSERT_EQ(tutti_all_reduce(comm, &mine, &most, 1, TUTTI_INT64, TUTTI_MAX, nullptr, nullptr), TUTTI_OK);
  ASSERT_EQ(least, expected) << tutti_comm_error(comm);
  ASSERT_EQ(most, expected) << tutti_comm_error(comm);
}

// Ranks differ in which of their calls are in place, and call more shapes than plans are kept: what one can record all
// can, in place or not.
TEST(CapturedStream, RanksThatAreInPlaceRecordWithOthers) {
  run_processes(2, 1, [](tutti_comm* comm, uint32_t rank) {
    constexpr uint64_t most = 300;
    Stream s;
    auto *in = s.make<int64_t>(most), *out = s.make<int64_t>(most);
    const tutti_options options = on(s);
    const auto reduce = [&](uint64_t count, bool in_place) {
      return tutti_all_reduce(comm, in_place ? out : in, out, count, TUTTI_INT64, TUTTI_SUM, &options, nullptr);
    };
    const auto call_all = [&](uint64_t first, uint64_t last) {
      for (uint64_t count = first; count <= last; ++count)
        for (const bool again : {false, true})
          ASSERT_EQ(reduce(count, rank == 0 && again), TUTTI_OK) << tutti_comm_error(comm);
      ASSERT_TRUE(s.finish());
    };
    const auto record = [&](uint64_t count, bool in_place, tutti_status expected) {
      void* graph = nullptr;
      EXPECT_EQ(graphs().begin(&s.handle, 1, &graph), TUTTI_OK);
      const tutti_status status = reduce(count, in_place);
      EXPECT_EQ(graphs().end(graph), TUTTI_OK);
      expect_alike(comm, status, expected);
      return graph;
    };
    const auto replay_all = [&](uint64_t count) {
      for (const uint32_t in_place : {0u, 1u, 2u}) {  // nobody, rank 0, rank 1
        void* graph = record(count, rank + 1 == in_place, TUTTI_OK);
        if (testing::Test::HasFatalFailure()) return;
        std::fill_n(in, most, rank + 1);
        std::fill_n(out, most, rank + 1);
        ASSERT_EQ(graphs().launch(graph), TUTTI_OK);
        ASSERT_TRUE(s.finish());
        for (uint64_t i = 0; i < count; ++i) ASSERT_EQ(out[i], 3) << i << " of " << count;
        graphs().destroy(graph);
      }
    };
    ASSERT_NO_FATAL_FAILURE(call_all(1, 200));
    for (const uint64_t count : {1, 200}) ASSERT_NO_FATAL_FAILURE(replay_all(count));
    ASSERT_NO_FATAL_FAILURE(call_all(201, most));
    for (const uint64_t count : {2, 45})  // the oldest
      graphs().destroy(record(count, false, TUTTI_NOT_SUPPORTED));
    for (const uint64_t count : {uint64_t{46}, most}) ASSERT_NO_FATAL_FAILURE(replay_all(count));
    s.free(in);
    s.free(out);
  });
}

// Rank 1 exchanges with rank 0 alone, and both are on one host; the others need their hosts for the same call.
TEST(CapturedStream, AcrossHostsNobodyRecords) {
  run_processes(
      3, 1,
      [](tutti_comm* comm, uint32_t) {
        Stream s;
        auto* data = s.make<int64_t>(10);
        const tutti_options options = on(s);
        const auto cast = [&] { return tutti_broadcast(comm, data, data, 10, TUTTI_INT64, 0, &options, nullptr); };
        ASSERT_EQ(cast(), TUTTI_OK) << tutti_comm_error(comm);
        ASSERT_TRUE(s.finish());
        void* graph = nullptr;
        EXPECT_EQ(graphs().begin(&s.handle, 1, &graph), TUTTI_OK);
        const tutti_status status = cast();
        EXPECT_EQ(graphs().end(graph), TUTTI_OK);
        expect_alike(comm, status, TUTTI_NOT_SUPPORTED);
        graphs().destroy(graph);
        ASSERT_EQ(cast(), TUTTI_OK) << tutti_comm_error(comm);
        ASSERT_TRUE(s.finish());
        s.free(data);
      },
      "broadcast:direct", [](uint32_t first) { setenv("TUTTI_HOST_ID", first == 2 ? "b" : "a", 1); });
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
