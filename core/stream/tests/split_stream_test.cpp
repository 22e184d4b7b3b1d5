// SPDX-License-Identifier: Apache-2.0
//
// Parts of a communicator with device memory: their calls, their streams beside the parent's, windows, and splitting by
// device.
#include "../../tests/harness/stream_ranks.hpp"

namespace tutti::test {
namespace {

tutti_comm* split(tutti_comm* comm, uint32_t by, uint32_t color) {
  tutti_split how{};
  how.struct_size = sizeof how;
  how.by = by;
  how.color = color;
  tutti_comm* part = nullptr;
  EXPECT_EQ(tutti_comm_split(comm, &how, &part), TUTTI_OK) << tutti_comm_error(comm);
  return part;
}

// Two parts and the whole, with work of each in flight at a time.
void check_parts(tutti_comm* comm, uint32_t rank, uint32_t color) {
  const Stream of_half(device_of_rank(rank)), of_all(device_of_rank(rank));
  tutti_comm* half = split(comm, TUTTI_SPLIT_BY_COLOR, color);
  tutti_comm* back = split(comm, TUTTI_SPLIT_BY_COLOR, 0);
  ASSERT_TRUE(half && back);
  char device[64] = "";
  uint64_t bytes = sizeof device;
  EXPECT_EQ(tutti_comm_device(half, device, &bytes), TUTTI_OK);
  EXPECT_EQ(device, std::string(tutti::test::device().memory->name) + ":" + std::to_string(device_of_rank(rank)));
  for (const uint64_t count : {1u, 3000u, 70'000u}) {
    check_all(half, tutti_comm_rank(half), count, of_half.handle, device_of_rank(rank));
    check_all(comm, rank, count, of_all.handle, device_of_rank(rank));
    check_all(back, tutti_comm_rank(back), count, nullptr, device_of_rank(rank));
  }
  EXPECT_EQ(tutti_comm_destroy(half), TUTTI_OK);
  check_all(comm, rank, 500, nullptr, device_of_rank(rank));
  EXPECT_EQ(tutti_comm_destroy(back), TUTTI_OK);
}

// First: threads do not survive a fork.
TEST(SplitStreams, AmongProcesses) {
  run_processes(4, 1, [](tutti_comm* comm, uint32_t rank) { check_parts(comm, rank, rank % 2); });
  // Ranks of a process that are in different parts with another process may wait for each other (docs/streams.md).
  run_processes(4, 2, [](tutti_comm* comm, uint32_t rank) { check_parts(comm, rank, rank / 2); });
}

TEST(SplitStreams, WindowsOfAPart) {
  run_processes(4, 1, [](tutti_comm* comm, uint32_t rank) {
    tutti_comm* half = split(comm, TUTTI_SPLIT_BY_COLOR, rank / 2);
    ASSERT_TRUE(half);
    Stream s;
    auto* data = s.make<int64_t>(1000);
    tutti_window* window = nullptr;
    ASSERT_EQ(tutti_comm_register(half, data, 8000, nullptr, &window), TUTTI_OK) << tutti_comm_error(half);
    tutti_window_facts facts{};
    facts.struct_size = sizeof facts;
    ASSERT_EQ(tutti_comm_window(half, window, &facts), TUTTI_OK);
    for (int64_t round = 1; round < 4; ++round) {
      for (int i = 0; i < 1000; ++i) data[i] = rank + round;
      const tutti_options options = on(s);
      ASSERT_EQ(tutti_all_reduce(half, data, data, 1000, TUTTI_INT64, TUTTI_SUM, &options, nullptr), TUTTI_OK)
          << tutti_comm_error(half);
      ASSERT_TRUE(s.finish());
      for (int i = 0; i < 1000; ++i) ASSERT_EQ(data[i], rank / 2 * 4 + 1 + 2 * round);
    }
    EXPECT_NE(served(half).find("window"), std::string::npos) << facts.reason;
    EXPECT_EQ(tutti_comm_deregister(half, window, nullptr), TUTTI_OK);
    EXPECT_EQ(tutti_comm_destroy(half), TUTTI_OK);
    s.free(data);
  });
}

TEST(SplitStreams, AmongThreads) {
  run_threads(4, [](tutti_comm* comm, uint32_t rank) { check_parts(comm, rank, rank % 2); });
}

TEST(SplitStreams, ByDevice) {
  const OnDevices two([](uint32_t rank) { return rank / 2; });
  run_threads(4, [](tutti_comm* comm, uint32_t rank) {
    tutti_comm* part = split(comm, TUTTI_SPLIT_BY_DEVICE, 0);
    ASSERT_TRUE(part);
    EXPECT_EQ(tutti_comm_nranks(part), 2u);
    EXPECT_EQ(tutti_comm_rank(part), rank % 2);
    EXPECT_EQ(std::string(tutti_comm_name(part)), "world.1:device" + std::to_string(rank / 2));
    check_all(part, rank % 2, 100, nullptr, rank / 2);
    EXPECT_EQ(tutti_comm_destroy(part), TUTTI_OK);
  });
}

}  // namespace
}  // namespace tutti::test
