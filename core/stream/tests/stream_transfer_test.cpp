// SPDX-License-Identifier: Apache-2.0
//
// Sends and receives of device memory, and groups of them: between processes that map each other's memory or send it
// over a transport, between threads, and mixed.
#include "../../tests/harness/transfer_groups.hpp"

namespace tutti::test {
namespace {

TEST(StreamTransfer, GroupsOfAllSizes) {
  for (const Layout& layout : layouts)
    run(layout, 2, [](tutti_comm* comm, uint32_t rank) {
      Stream s;
      for (const bool asks : {false, true}) {
        Group group(comm, &s);
        uint32_t tag = 100;
        for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, slot - 1, slot, slot + 1, 6 * slot + 3}) {
          group.send(1 - rank, bytes, ++tag);
          group.receive(1 - rank, bytes, tag);
        }
        tutti_request* request = nullptr;
        ASSERT_EQ(group.go(asks ? &request : nullptr), TUTTI_OK) << tutti_comm_error(comm);
        if (asks) {
          ASSERT_EQ(tutti_request_wait(request), TUTTI_OK) << tutti_request_error(request);
          tutti_request_free(request);
        } else {
          ASSERT_TRUE(s.finish());
        }
        group.check();
      }
    });
}

// Rank 1 sends nothing to rank 0 only after rank 2 has told it that the other message of rank 0's group has come.
TEST(StreamTransfer, AnEmptyMessageHoldsNothingUp) {
  for (const Layout& layout : {layouts[0], layouts[2]})
    run(layout, 3, [](tutti_comm* comm, uint32_t rank) {
      Stream s;
      const auto exchange = [&](const std::function<void(Group&)>& fill) {
        Group group(comm, &s);
        fill(group);
        ASSERT_EQ(group.go(nullptr, 20'000'000'000), TUTTI_OK) << tutti_comm_error(comm);
        ASSERT_TRUE(s.finish());
        group.check();
      };
      if (rank == 0)
        exchange([](Group& group) {
          group.receive(1, 0, 1);
          group.send(2, slot, 2);
        });
      if (rank == 1) exchange([](Group& group) { group.receive(2, 8, 3); });
      if (rank == 1) exchange([](Group& group) { group.send(0, 0, 1); });
      if (rank == 2) exchange([](Group& group) { group.receive(0, slot, 2); });
      if (rank == 2) exchange([](Group& group) { group.send(1, 8, 3); });
    });
}

TEST(StreamTransfer, RingsAndAllToAlls) {
  for (const Layout& layout : layouts) {
    const uint32_t n = layout.per_process == 1 ? 3 : 4;
    run(layout, n, [n](tutti_comm* comm, uint32_t rank) {
      Stream s;
      Group ring(comm, &s), all(comm, &s), back(comm, &s);
      ring.receive((rank + n - 1) % n, 6 * slot + 5, 3);
      ring.send((rank + 1) % n, 6 * slot + 5, 3);
      add_all_to_all(all, rank, n, slot);
      back.send((rank + n - 1) % n, 1000, 4);
      back.receive((rank + 1) % n, 1000, 4);
      for (const Group* group : {&ring, &all, &back}) ASSERT_EQ(group->go(), TUTTI_OK) << tutti_comm_error(comm);
      ASSERT_TRUE(s.finish());
      for (const Group* group : {&ring, &all, &back}) group->check();
    });
  }
}

// From rank to rank, a call for each, with and without requests; each goes on with what it was given.
TEST(StreamTransfer, APipelineOfSingleCalls) {
  for (const Layout& layout : layouts)
    run(layout, 4, [](tutti_comm* comm, uint32_t rank) {
      constexpr uint64_t count = 700'000;
      Stream s;
      const tutti_options options = on(s);
      auto* data = s.make<int64_t>(count);
      const uint32_t last = tutti_comm_nranks(comm) - 1;
      for (int64_t round = 0; round < 4; ++round) {
        if (rank == 0) {
          ASSERT_TRUE(s.finish());
          for (uint64_t i = 0; i < count; ++i) data[i] = round * 1000003 + static_cast<int64_t>(i);
        } else {
          ASSERT_EQ(tutti_receive(comm, data, count, TUTTI_INT64, rank - 1, 7, &options, nullptr), TUTTI_OK)
              << tutti_comm_error(comm);
        }
        if (rank == last) continue;
        tutti_request* request = nullptr;
        ASSERT_EQ(tutti_send(comm, data, count, TUTTI_INT64, rank + 1, 7, &options, round % 2 ? &request : nullptr),
                  TUTTI_OK)
            << tutti_comm_error(comm);
        if (request) {
          ASSERT_EQ(tutti_request_wait(request), TUTTI_OK) << tutti_request_error(request);
        }
        tutti_request_free(request);
      }
      ASSERT_TRUE(s.finish());
      for (uint64_t i = 0; i < count; ++i) ASSERT_EQ(data[i], 3 * 1000003 + static_cast<int64_t>(i));
      s.free(data);
    });
}

// A rank begins its sends when the other one's receives have returned, and has never been there before.
TEST(StreamTransfer, AReceiveDoesNotWaitForItsSenderInAnotherProcess) {
  for (const Layout& layout : {layouts[0], layouts[1]})
    run(layout, 2, [](tutti_comm* comm, uint32_t rank) {
      Stream s;
      Group meet(comm, &s);  // so that no later call waits for its channels
      meet.send(1 - rank, 10, 0);
      meet.receive(1 - rank, 10, 0);
      ASSERT_EQ(meet.go(), TUTTI_OK) << tutti_comm_error(comm);
      ASSERT_TRUE(s.finish());
      Group one(comm, &s), many(comm, &s), another(comm, &s);
      for (uint32_t i = 0; i < 5; ++i) rank ? many.send(0, i * 1000, i % 2) : many.receive(1, i * 1000, i % 2);
      rank ? one.send(0, 2 * slot + 1, 8) : one.receive(1, 2 * slot + 1, 8);
      rank ? another.send(0, 100, 9) : another.receive(1, 100, 9);
      uint32_t returned = 0;
      tutti_request* request = nullptr;
      if (rank == 1) {
        ASSERT_EQ(tutti_receive(comm, &returned, 1, TUTTI_UINT32, 0, 77, nullptr, nullptr), TUTTI_OK)
            << tutti_comm_error(comm);
        EXPECT_EQ(returned, 3u);
      }
      for (const Group* group : {&many, &one, &another}) {
        ASSERT_EQ(group->go(group == &another ? &request : nullptr, 10'000'000'000), TUTTI_OK)
            << tutti_comm_error(comm);
        ++returned;
      }
      if (rank == 0) {
        EXPECT_EQ(tutti_request_test(request), TUTTI_AGAIN);
        ASSERT_EQ(tutti_send(comm, &returned, 1, TUTTI_UINT32, 1, 77, nullptr, nullptr), TUTTI_OK)
            << tutti_comm_error(comm);
      }
      ASSERT_EQ(tutti_request_wait(request), TUTTI_OK) << tutti_request_error(request);
      tutti_request_free(request);
      ASSERT_TRUE(s.finish());
      for (const Group* group : {&one, &many, &another}) group->check();
    });
}

// Bytes that are held on the way need no receive yet.
TEST(StreamTransfer, ShortSendsDoNotWaitForAnotherProcess) {
  for (const Layout& layout : {layouts[0], layouts[1]})
    run(layout, 2, [](tutti_comm* comm, uint32_t rank) {
      Stream s;
      const tutti_options options = on(s);
      auto *out = s.make<uint8_t>(4 * slot), *in = s.make<uint8_t>(4 * slot);
      for (uint8_t round = 1; round <= 3; ++round) {
        std::memset(out, 10 * round + static_cast<int>(rank), 4 * slot);
        ASSERT_EQ(tutti_send(comm, out, 4 * slot, TUTTI_UINT8, 1 - rank, 0, &options, nullptr), TUTTI_OK)
            << tutti_comm_error(comm);
        ASSERT_EQ(tutti_receive(comm, in, 4 * slot, TUTTI_UINT8, 1 - rank, 0, &options, nullptr), TUTTI_OK)
            << tutti_comm_error(comm);
        ASSERT_TRUE(s.finish());
        for (uint64_t i = 0; i < 4 * slot; i += 4097) ASSERT_EQ(in[i], 10 * round + static_cast<int>(1 - rank));
      }
      s.free(in);
      s.free(out);
    });
}

// Collectives and transfers of a rank come in the order of its calls, also where their streams differ.
TEST(StreamTransfer, InOrderWithCollectives) {
  setenv("TUTTI_SIMULATED_QUEUES", "8", 1);
  for (const Layout& layout : layouts)
    run(layout, 4, [](tutti_comm* comm, uint32_t rank) {
      constexpr uint64_t count = 200'000;
      const uint32_t n = tutti_comm_nranks(comm);
      Stream first, second;
      auto *sum = first.make<int64_t>(count), *moved = first.make<int64_t>(count);
      for (int round = 0; round < 3; ++round) {
        std::fill_n(sum, count, rank + 1);
        const tutti_options here = on(first), there = on(round % 2 ? second : first);
        ASSERT_EQ(tutti_all_reduce(comm, sum, sum, count, TUTTI_INT64, TUTTI_MAX, &here, nullptr), TUTTI_OK)
            << tutti_comm_error(comm);
        const tutti_message messages[] = {{sum, count, TUTTI_INT64, (rank + 1) % n, 5, TUTTI_SEND},
                                          {moved, count, TUTTI_INT64, (rank + n - 1) % n, 5, TUTTI_RECEIVE}};
        ASSERT_EQ(tutti_exchange(comm, messages, 2, &there, nullptr), TUTTI_OK) << tutti_comm_error(comm);
        ASSERT_EQ(tutti_all_reduce(comm, moved, sum, count, TUTTI_INT64, TUTTI_SUM, &here, nullptr), TUTTI_OK)
            << tutti_comm_error(comm);
        ASSERT_TRUE(first.finish());
        ASSERT_TRUE(second.finish());
        for (const uint64_t i : {uint64_t{0}, count / 2, count - 1}) ASSERT_EQ(sum[i], n * n) << "round " << round;
      }
      first.free(sum);
      first.free(moved);
    });
  unsetenv("TUTTI_SIMULATED_QUEUES");
}

// The stream comes to the send after what it had before, and goes on to overwrite the buffer only behind the send. The
// calls return while the stream is held up.
TEST(StreamTransfer, ASendHasItsPlaceInTheStream) {
  setenv("TUTTI_SIMULATED_QUEUES", "8", 1);
  for (const Layout& layout : {layouts[0], layouts[1], layouts[2]})
    run(layout, 2, [](tutti_comm* comm, uint32_t rank) {
      constexpr uint64_t count = 6 * slot;
      const tutti::DeviceTables tables = device();
      Stream s;
      const tutti_options options = on(s);
      auto *data = s.make<uint8_t>(count), *before = s.make<uint8_t>(count), *behind = s.make<uint8_t>(count);
      std::memset(data, 1, count);
      std::memset(before, 77, count);
      std::memset(behind, 2, count);
      Group meet(comm, &s);  // so that no later call waits for its channels
      meet.send(1 - rank, 10, 0);
      meet.receive(1 - rank, 10, 0);
      ASSERT_EQ(meet.go(), TUTTI_OK) << tutti_comm_error(comm);
      ASSERT_TRUE(s.finish());
      if (rank == 0) {
        ASSERT_EQ(tutti_receive(comm, data, count, TUTTI_UINT8, 1, 0, &options, nullptr), TUTTI_OK)
            << tutti_comm_error(comm);
        ASSERT_TRUE(s.finish());
        for (uint64_t i = 0; i < count; i += 1021) ASSERT_EQ(data[i], 77) << i;
      } else {
        alignas(64) uint32_t flag = 0;
        void* seen = nullptr;
        ASSERT_EQ(tables.memory->map_host(nullptr, &flag, sizeof flag, &seen), TUTTI_OK);
        const auto copy = [&](const void* from) {
          tutti_command command{};
          command.kind = TUTTI_COMMAND_COPY;
          command.dst = data;
          command.src = &from;
          command.sources = 1;
          command.count = count;
          ASSERT_EQ(tables.executor->enqueue(nullptr, s.handle, &command, 1), TUTTI_OK);
        };
        tutti_command wait{};
        wait.kind = TUTTI_COMMAND_WAIT;
        wait.flag = static_cast<uint32_t*>(seen);
        wait.value = 1;
        ASSERT_EQ(tables.executor->enqueue(nullptr, s.handle, &wait, 1), TUTTI_OK);
        copy(before);
        EXPECT_EQ(tutti_send(comm, data, count, TUTTI_UINT8, 0, 0, &options, nullptr), TUTTI_OK)
            << tutti_comm_error(comm);
        copy(behind);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        std::atomic_ref(flag).store(1);
        ASSERT_TRUE(s.finish());
        for (uint64_t i = 0; i < count; i += 1021) ASSERT_EQ(data[i], 2) << i;
        ASSERT_EQ(tables.memory->unmap_host(nullptr, &flag), TUTTI_OK);
      }
      ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK) << tutti_comm_error(comm);
      for (void* buffer : {data, before, behind}) s.free(buffer);
    });
  unsetenv("TUTTI_SIMULATED_QUEUES");
}

// Two devices with a queue of few commands each: large groups wait for their own beginnings.
TEST(StreamTransfer, ShallowQueuesAndTwoDevices) {
  const OnDevices two([](uint32_t rank) { return rank % 2; });
  setenv("TUTTI_SIMULATED_DEPTH", "600", 1);
  for (const Layout& layout : {layouts[1], layouts[3]})
    run(layout, 4, [](tutti_comm* comm, uint32_t rank) {
      Stream s(rank % 2);
      Group large(comm, &s), small(comm, &s);
      add_all_to_all(large, rank, 4, 3 * slot);
      for (uint32_t i = 0; i < 200; ++i) {
        small.send((rank + 1) % 4, 8, i);
        small.receive((rank + 3) % 4, 8, i);
      }
      for (const Group* group : {&large, &small}) ASSERT_EQ(group->go(), TUTTI_OK) << tutti_comm_error(comm);
      ASSERT_TRUE(s.finish());
      for (const Group* group : {&large, &small}) group->check();
    });
  unsetenv("TUTTI_SIMULATED_DEPTH");
}

TEST(StreamTransfer, SaysWhatServed) {
  run(layouts[0], 2, [](tutti_comm* comm, uint32_t rank) {
    Stream s;
    Group group(comm, &s);
    group.send(1 - rank, 3 * slot, 0);
    group.receive(1 - rank, 3 * slot, 0);
    ASSERT_EQ(group.go(), TUTTI_OK) << tutti_comm_error(comm);
    ASSERT_TRUE(s.finish());
    const tutti_options options = on(s);
    auto* data = s.make<uint8_t>(10);
    tutti_request* request = nullptr;
    ASSERT_EQ(rank ? tutti_receive(comm, data, 10, TUTTI_UINT8, 0, 0, &options, &request)
                   : tutti_send(comm, data, 10, TUTTI_UINT8, 1, 0, &options, &request),
              TUTTI_OK)
        << tutti_comm_error(comm);
    ASSERT_EQ(tutti_request_wait(request), TUTTI_OK);
    tutti_request_free(request);
    uint64_t n = 0;
    tutti_comm_services(comm, nullptr, &n);
    std::vector<tutti_service> rows(n);
    tutti_comm_services(comm, rows.data(), &n);
    std::set<std::string> served;
    for (const tutti_service& row : rows)
      if (row.calls)
        served.insert(std::string(row.collective) + " " + row.transports + " " + std::to_string(row.bytes));
    EXPECT_TRUE(served.contains("exchange simulated+mapped 6291456"));
    EXPECT_TRUE(served.contains(rank ? "receive simulated+mapped 10" : "send simulated+mapped 10"));
    n = 0;
    tutti_comm_traffic(comm, nullptr, &n);
    std::vector<tutti_link_traffic> traffic(n);
    tutti_comm_traffic(comm, traffic.data(), &n);
    for (const tutti_link_traffic& row : traffic)
      if (std::string(row.transport) == "mapped") {
        EXPECT_EQ(row.sent_bytes, 3 * slot + (rank ? 0 : 10));
        EXPECT_EQ(row.received_bytes, 3 * slot + (rank ? 10 : 0));
      } else {
        EXPECT_EQ(row.sent_bytes, 0u) << row.transport;
      }
    s.free(data);
  });
}

// The same calls on host memory.
TEST(Exchange, GroupsOnTheHost) {
  for (const Layout& layout : layouts)
    run(layout, 4, [](tutti_comm* comm, uint32_t rank) {
      for (const uint64_t unit : {uint64_t{0}, uint64_t{10}, uint64_t{100'000}})
        for (const bool asks : {false, true}) {
          Group group(comm, nullptr);
          add_all_to_all(group, rank, 4, unit);
          tutti_request* request = nullptr;
          ASSERT_EQ(group.go(asks ? &request : nullptr), TUTTI_OK) << tutti_comm_error(comm);
          if (asks) {
            ASSERT_EQ(tutti_request_wait(request), TUTTI_OK) << tutti_request_error(request);
          }
          tutti_request_free(request);
          group.check();
        }
    });
}

// One of a group's messages does not match: the group ends with that error when all others have ended, and the
// communicator goes on.
TEST(Exchange, AMismatchOnTheHostIsTheGroupsError) {
  run(layouts[2], 2, [](tutti_comm* comm, uint32_t rank) {
    Group group(comm, nullptr);
    group.send(1 - rank, 100, 1);
    group.receive(1 - rank, rank ? 100 : 90, 1);
    group.send(1 - rank, 200, 2);
    group.receive(1 - rank, 200, 2);
    EXPECT_EQ(group.go(), rank ? TUTTI_OK : TUTTI_MISMATCH);
    if (rank == 0) {
      EXPECT_NE(std::string(tutti_comm_error(comm)).find("receive of 90 bytes from rank 1"), std::string::npos)
          << tutti_comm_error(comm);
    }
    EXPECT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK) << tutti_comm_error(comm);
  });
}

}  // namespace
}  // namespace tutti::test
