// SPDX-License-Identifier: Apache-2.0
//
// Collectives with unequal blocks on device memory between processes: mapped by cuda-ipc, staged over a transport, and
// both at once.
#include "../../tests/harness/graphs.hpp"
#include "../../tests/harness/unequal_streams.hpp"

namespace tutti::test {
namespace {

TEST(UnequalProcess, Mapped) {
  for (const uint32_t n : {2u, 3u, 5u})
    run_processes(n, 1, [](tutti_comm* comm, uint32_t) {
      check_unequal(comm, 140'000, 8);  // more fragments than one
      for (const uint32_t collective : unequal_collectives) EXPECT_EQ(served(comm, collective), "simulated+mapped");
    });
}

TEST(UnequalProcess, Staged) {
  setenv("TUTTI_TRANSPORT", "shm", 1);
  run_processes(3, 1, [](tutti_comm* comm, uint32_t) {
    check_unequal(comm, 140'000, 8);
    for (const uint32_t collective : unequal_collectives) EXPECT_EQ(served(comm, collective), "simulated+shm");
  });
  unsetenv("TUTTI_TRANSPORT");
}

TEST(UnequalProcess, ThreadsAndProcessesMixed) {
  run_processes(4, 2, [](tutti_comm* comm, uint32_t) { check_unequal(comm, 20'000, 8); });
}

TEST(UnequalProcess, AcrossHosts) {
  run_processes(
      3, 1, [](tutti_comm* comm, uint32_t) { check_unequal(comm, 20'000, 8); }, "",
      [](uint32_t rank) { setenv("TUTTI_HOST_ID", rank == 2 ? "elsewhere" : "here", 1); });
}

// More than the slots of a way hold, at both ends and in both directions.
TEST(UnequalProcess, MoreThanTheSlotsHold) {
  run_processes(2, 1, [](tutti_comm* comm, uint32_t) { check_unequal(comm, 700'000, 5, {TUTTI_ALL_TO_ALL_V}); });
}

// With other counts than before a call returns without waiting for other processes, while earlier ones are pending: no
// channel is opened, also where a way has carried nothing so far, and no memory is allocated.
TEST(UnequalProcess, OtherCountsWaitForNobody) {
  run_processes(3, 1, [](tutti_comm* comm, uint32_t rank) {
    Stream s;
    const tutti_options options = on(s);
    for (const uint32_t collective : unequal_collectives) {
      // Of one size class, so that where all ranks know all sizes the shape is the same.
      UnequalCall few(s, comm, collective, [](uint32_t, uint32_t to) { return to ? 750 : 0; });
      UnequalCall more(s, comm, collective, [](uint32_t from, uint32_t to) { return to ? from : 1400 + from; });
      few.fill(0);
      more.fill(1);
      ASSERT_EQ(few.issue(options), TUTTI_OK) << tutti_comm_error(comm);
      ASSERT_TRUE(s.finish());
      few.check();
      int8_t token = 0;
      if (rank) {
        ASSERT_EQ(tutti_receive(comm, &token, 1, TUTTI_INT8, 0, 0, nullptr, nullptr), TUTTI_OK)
            << tutti_comm_error(comm);
      }
      ASSERT_EQ(few.issue(options), TUTTI_OK) << tutti_comm_error(comm);
      ASSERT_EQ(more.issue(options), TUTTI_OK) << tutti_comm_error(comm);
      for (uint32_t peer = 1; peer < 3 && !rank; ++peer)
        ASSERT_EQ(tutti_send(comm, &token, 1, TUTTI_INT8, peer, 0, nullptr, nullptr), TUTTI_OK)
            << tutti_comm_error(comm);
      ASSERT_TRUE(s.finish());
      few.check();
      more.check();
      if (testing::Test::HasFatalFailure()) return;
    }
  });
}

// Recorded with the counts of that call, also with others than those of the call before.
TEST(UnequalProcess, IsRecorded) {
  run_processes(2, 1, [](tutti_comm* comm, uint32_t) {
    Stream s;
    const tutti_options options = on(s);
    for (const uint32_t collective : unequal_collectives) {
      UnequalCall before(s, comm, collective, [](uint32_t, uint32_t) { return 40; });
      UnequalCall recorded(s, comm, collective, [](uint32_t from, uint32_t to) { return 35 + 3 * from + 5 * to; });
      void* graph = nullptr;
      before.fill(0);
      recorded.fill(0);
      ASSERT_EQ(before.issue(options), TUTTI_OK) << tutti_comm_error(comm);
      ASSERT_TRUE(s.finish());
      ASSERT_EQ(graphs().begin(&s.handle, 1, &graph), TUTTI_OK);
      ASSERT_EQ(recorded.issue(options), TUTTI_OK) << tutti_comm_error(comm);
      ASSERT_EQ(graphs().end(graph), TUTTI_OK);
      for (int round = 1; round < 20; ++round) {
        recorded.fill(round);
        before.fill(round);
        ASSERT_EQ(graphs().launch(graph), TUTTI_OK);
        ASSERT_EQ(before.issue(options), TUTTI_OK) << tutti_comm_error(comm);
        ASSERT_TRUE(s.finish());
        recorded.check();
        before.check();
      }
      graphs().destroy(graph);
      if (testing::Test::HasFatalFailure()) return;
    }
  });
}

TEST(UnequalProcess, CheckedModeComparesCounts) {
  setenv("TUTTI_CHECK", "1", 1);
  run_processes(3, 1, [](tutti_comm* comm, uint32_t rank) {
    Stream s;
    const tutti_options options = on(s);
    UnequalCall right(s, comm, TUTTI_ALL_TO_ALL_V, sizes_of(0, 3, 0));
    UnequalCall wrong(s, comm, TUTTI_ALL_TO_ALL_V, [rank](uint32_t from, uint32_t to) {
      return 3 * from + to + 1 + (rank == 2 && from == 1 && to == 2);
    });
    EXPECT_EQ(right.issue(options), TUTTI_OK) << tutti_comm_error(comm);
    EXPECT_EQ(wrong.issue(options), TUTTI_MISMATCH);
    const std::string text = tutti_comm_error(comm);
    EXPECT_NE(
        text.find("rank 2 expects 7 elements from rank 1 in all_to_all_v(int64), operation #1, but rank 1 sends 6"),
        text.npos)
        << text;
    EXPECT_TRUE(s.finish());
  });
  unsetenv("TUTTI_CHECK");
}

// Without checked mode counts that do not fit end in an error, too, whatever carries the bytes: a message of another
// size at once, one that one side alone knows of at the latest with the next call between the two.
void expect_mismatch(uint64_t sent, uint64_t expected) {
  run_processes(2, 1, [=](tutti_comm* comm, uint32_t rank) {
    Stream s;
    const tutti_options options = on(s);
    // A first call, after which the plans are known.
    UnequalCall right(s, comm, TUTTI_ALL_TO_ALL_V, [](uint32_t, uint32_t) { return 50; });
    UnequalCall wrong(s, comm, TUTTI_ALL_TO_ALL_V, [=](uint32_t from, uint32_t to) -> uint64_t {
      return from == 0 && to == 1 ? (rank ? expected : sent) : 50;
    });
    ASSERT_EQ(right.issue(options), TUTTI_OK) << tutti_comm_error(comm);
    ASSERT_TRUE(s.finish());
    const tutti_status begun = wrong.issue(options);
    EXPECT_TRUE(begun == TUTTI_OK || begun == TUTTI_MISMATCH) << tutti_comm_error(comm);
    const tutti_status next = right.issue(options);
    EXPECT_TRUE(next == TUTTI_OK || next == TUTTI_MISMATCH) << tutti_comm_error(comm);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (tutti_comm_async_error(comm) == TUTTI_OK && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    EXPECT_EQ(tutti_comm_async_error(comm), TUTTI_MISMATCH);
    EXPECT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_MISMATCH);
    EXPECT_NE(std::string(tutti_comm_error(comm)).find("this rank expects"), std::string::npos)
        << tutti_comm_error(comm);
    EXPECT_TRUE(s.finish());
  });
}

TEST(UnequalProcess, MappedCountsThatDoNotFit) {
  expect_mismatch(40, 60);
  expect_mismatch(60, 40);
  expect_mismatch(0, 60);
  expect_mismatch(50, 0);
  expect_mismatch(200'000, 50);
}

TEST(UnequalProcess, StagedCountsThatDoNotFit) {
  setenv("TUTTI_TRANSPORT", "shm", 1);
  expect_mismatch(40, 60);
  expect_mismatch(60, 40);
  unsetenv("TUTTI_TRANSPORT");
}

}  // namespace
}  // namespace tutti::test
