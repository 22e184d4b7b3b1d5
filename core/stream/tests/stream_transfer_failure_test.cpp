// SPDX-License-Identifier: Apache-2.0
//
// Sends and receives of device memory that differ, never come, are ended, or are refused.
#include "../../bootstrap/tests/in_time.hpp"
#include "../../tests/harness/graphs.hpp"
#include "../../tests/harness/transfer_groups.hpp"

namespace tutti::test {
namespace {

// A send of rank 0 and a receive of rank 1 that differ.
struct Difference {
  const char* name;
  bool device_sent, device_received;
  uint64_t sent, received;
  uint32_t sent_tag, received_tag;
  const char* words;
};

// This rank's call. `after`: when another rank's call is over, `before`: another waits for this one; or nothing.
void call_differently(tutti_comm* comm, uint32_t rank, const Difference& c, bool after, bool before) {
  constexpr uint64_t guard = 64;
  Stream s;
  uint32_t go_ahead = 0;
  if (after || before) {
    Group meet(comm, &s);  // no later call waits for its channels
    meet.send(1 - rank, 10, 0);
    meet.receive(1 - rank, 10, 0);
    ASSERT_EQ(meet.go(), TUTTI_OK) << tutti_comm_error(comm);
    ASSERT_TRUE(s.finish());
  }
  if (after) {
    ASSERT_EQ(tutti_receive(comm, &go_ahead, 1, TUTTI_UINT32, 1 - rank, 77, nullptr, nullptr), TUTTI_OK)
        << tutti_comm_error(comm);
  }
  const bool on_device = rank == 0 ? c.device_sent : c.device_received;
  const uint64_t bytes = rank == 0 ? c.sent : c.received;
  std::vector<uint8_t> host(bytes + guard);
  auto* data = on_device ? s.make<uint8_t>(bytes + guard) : host.data();
  std::memset(data, rank == 0 ? 7 : 0, bytes + guard);
  tutti_options options = on(s);
  if (!on_device) options.stream = nullptr;
  tutti_request* request = nullptr;
  if (rank == 0)
    tutti_send(comm, data, bytes, TUTTI_UINT8, 1, c.sent_tag, &options, &request);
  else
    tutti_receive(comm, data, bytes, TUTTI_UINT8, 0, c.received_tag, &options, &request);
  if (before) {
    ASSERT_EQ(tutti_send(comm, &go_ahead, 1, TUTTI_UINT32, 1 - rank, 77, nullptr, nullptr), TUTTI_OK)
        << tutti_comm_error(comm);
  }
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (tutti_comm_async_error(comm) == TUTTI_OK && std::chrono::steady_clock::now() < limit) {
    if (request) tutti_request_test(request);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  tutti_request_free(request);
  EXPECT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_MISMATCH);
  const std::string text = tutti_comm_error(comm);
  EXPECT_NE(text.find(c.words), text.npos) << text;
  EXPECT_NE(text.find("rank 0 sent"), text.npos) << text;
  EXPECT_TRUE(s.finish());
  for (uint64_t i = bytes; rank == 1 && i < bytes + guard; ++i) ASSERT_EQ(data[i], 0) << "behind the buffer";
  if (on_device) s.free(data);
}

// The two ranks' calls have to agree: all learn of a difference, with both calls, whoever calls first. A receive of
// another process's send is in the stream by then, and writes nothing behind its buffer.
TEST(StreamTransfer, WhatDiffersIsNamedOnBothSides) {
  const Difference cases[] = {
      {"tag", true, true, 100, 100, 1, 2,
       "sent 100 bytes of device memory with tag 1, which met rank 1's receive of 100 "
       "bytes of device memory with tag 2"},
      {"size", true, true, 100, 5'000'000, 1, 1, "rank 1's receive of 5000000 bytes"},
      {"longer", true, true, 5'000'000, 100, 1, 1, "rank 1's receive of 100 bytes"},
      {"a little longer", true, true, 108, 100, 1, 1, "rank 1's receive of 100 bytes"},
      {"host receive", true, false, 100, 100, 1, 1, "which met rank 1's receive of 100 bytes of host memory"},
      {"host send", false, true, 100, 100, 1, 1, "sent 100 bytes of host memory"},
      {"long host send", false, true, 5'000'000, 5'000'000, 1, 1, "sent 5000000 bytes of host memory"},
  };
  for (const Difference& c : cases) {
    SCOPED_TRACE(c.name);
    // In a process ranks meet in their calls.
    run(layouts[2], 2, [&](tutti_comm* comm, uint32_t rank) { call_differently(comm, rank, c, false, false); });
    for (const Layout& layout : {layouts[0], layouts[1]})
      for (const uint32_t first : {0u, 1u}) {
        SCOPED_TRACE(first);
        run(layout, 2,
            [&](tutti_comm* comm, uint32_t rank) { call_differently(comm, rank, c, rank != first, rank == first); });
      }
  }
}

// A rank dies that has not sent: receives that wait for it in the stream end.
TEST(StreamTransfer, AReceiveInTheStreamOutlivesItsSender) {
  for (const Layout& layout : {layouts[0], layouts[1]})
    run(layout, 2, [](tutti_comm* comm, uint32_t rank) {
      Stream s;
      Group meet(comm, &s), group(comm, &s);
      meet.send(1 - rank, 10, 0);
      meet.receive(1 - rank, 10, 0);
      ASSERT_EQ(meet.go(), TUTTI_OK) << tutti_comm_error(comm);
      ASSERT_TRUE(s.finish());
      uint32_t returned = 0;
      if (rank == 1) {
        ASSERT_EQ(tutti_receive(comm, &returned, 1, TUTTI_UINT32, 0, 77, nullptr, nullptr), TUTTI_OK)
            << tutti_comm_error(comm);
        std::_Exit(0);
      }
      group.receive(1, 3 * slot, 1);
      group.receive(1, 0, 2);
      tutti_request* request = nullptr;
      ASSERT_EQ(group.go(&request), TUTTI_OK) << tutti_comm_error(comm);
      ASSERT_EQ(tutti_send(comm, &returned, 1, TUTTI_UINT32, 1, 77, nullptr, nullptr), TUTTI_OK)
          << tutti_comm_error(comm);
      EXPECT_EQ(tutti_request_wait(request), TUTTI_PEER_FAILED);
      EXPECT_NE(std::string(tutti_request_error(request)).find("rank 1"), std::string::npos)
          << tutti_request_error(request);
      tutti_request_free(request);
      EXPECT_TRUE(s.finish()) << "the stream was not let go";
    });
}

TEST(StreamTransfer, RealTimeWhatNeverComesEndsAtTheDeadline) {
  struct Case {
    const char* name;
    size_t layout;
    uint64_t bytes;
    bool sending;
    const char* words;
  };
  const Case cases[] = {
      {"receive", 0, 100, false,
       "receive of 100 bytes from rank 1 with tag 9 on device memory, which waits for the "
       "other side's send"},
      {"receive", 2, 100, false, "receive of 100 bytes from rank 1 with tag 9 on device memory"},
      {"send", 2, 100, true,
       "send of 100 bytes to rank 1 with tag 9 on device memory for rank 1 of its process to "
       "receive what it sends"},
      {"long send", 1, 6 * slot, true, "send of 6291456 bytes to rank 1 with tag 9"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    run(layouts[c.layout], 2, [&c](tutti_comm* comm, uint32_t rank) {
      Stream s;
      Group meet(comm, &s);  // so that the two know each other
      meet.send(1 - rank, 10, 0);
      meet.receive(1 - rank, 10, 0);
      ASSERT_EQ(meet.go(), TUTTI_OK) << tutti_comm_error(comm);
      ASSERT_TRUE(s.finish());
      auto* data = s.make<uint8_t>(c.bytes);
      const tutti_options options = on(s, 300'000'000);
      const InTime deadline;
      if (rank == 0) {
        if (c.sending)
          tutti_send(comm, data, c.bytes, TUTTI_UINT8, 1, 9, &options, nullptr);
        else
          tutti_receive(comm, data, c.bytes, TUTTI_UINT8, 1, 9, &options, nullptr);
      }
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      while (tutti_comm_async_error(comm) == TUTTI_OK && std::chrono::steady_clock::now() < limit)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      EXPECT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_TIMEOUT);
      const std::string text = tutti_comm_error(comm);
      if (rank == 0) {
        EXPECT_NE(text.find(c.words), text.npos) << text;
      }
      EXPECT_TRUE(s.finish()) << "the stream was not let go";
      s.free(data);
    });
  }
}

// A rank dies while the others exchange with it: they learn which, and go on without it.
TEST(StreamTransfer, AGroupOutlivesADeadRank) {
  for (const Layout& layout : {layouts[0], layouts[1]})
    run(layout, 3, [](tutti_comm* comm, uint32_t rank) {
      Stream s;
      Group first(comm, &s);
      add_all_to_all(first, rank, 3, 1000);
      ASSERT_EQ(first.go(), TUTTI_OK) << tutti_comm_error(comm);
      ASSERT_TRUE(s.finish());
      if (rank == 1) std::_Exit(0);
      Group group(comm, &s);
      group.send((rank + 1) % 3, 9 * slot, 1);
      group.receive((rank + 2) % 3, 9 * slot, 1);
      group.go();
      EXPECT_TRUE(s.finish()) << "the stream was not let go";
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      while (tutti_comm_async_error(comm) == TUTTI_OK && std::chrono::steady_clock::now() < limit)
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      EXPECT_EQ(group.go(), TUTTI_PEER_FAILED);
      EXPECT_NE(std::string(tutti_comm_error(comm)).find("rank 1"), std::string::npos) << tutti_comm_error(comm);
      tutti_comm* rest = nullptr;
      ASSERT_EQ(tutti_comm_shrink(comm, nullptr, &rest), TUTTI_OK) << tutti_comm_error(comm);
      Group again(rest, &s);
      add_all_to_all(again, tutti_comm_rank(rest), 2, 3 * slot);
      ASSERT_EQ(again.go(), TUTTI_OK) << tutti_comm_error(rest);
      ASSERT_TRUE(s.finish());
      again.check();
      tutti_comm_destroy(rest);
    });
}

TEST(StreamTransfer, AnAbortEndsTheCall) {
  for (const Layout& layout : {layouts[0], layouts[2]})
    run(layout, 2, [](tutti_comm* comm, uint32_t rank) {
      Stream s;
      Group group(comm, &s);
      if (rank == 0) {
        group.send(1, 8 * slot, 0);
        group.receive(1, 100, 0);
        EXPECT_EQ(group.go(), TUTTI_ABORTED);
        EXPECT_NE(std::string(tutti_comm_error(comm)).find("enough"), std::string::npos) << tutti_comm_error(comm);
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        EXPECT_EQ(tutti_comm_abort(comm, "enough"), TUTTI_OK);
      }
      EXPECT_TRUE(s.finish());
    });
}

TEST(StreamTransfer, WrongUseIsRefusedAndNothingHasHappened) {
  run(layouts[2], 2, [](tutti_comm* comm, uint32_t rank) {
    Stream s, elsewhere(1);
    const tutti_options options = on(s), other = on(elsewhere);
    auto* data = s.make<float>(100);
    auto* theirs = elsewhere.make<float>(100);
    float host[100] = {};
    const uint32_t peer = 1 - rank;
    const auto says = [&](tutti_status got, tutti_status status, const char* words) {
      EXPECT_EQ(got, status) << words;
      EXPECT_NE(std::string(tutti_comm_error(comm)).find(words), std::string::npos) << tutti_comm_error(comm);
    };
    const auto exchange = [&](std::vector<tutti_message> all) {
      return tutti_exchange(comm, all.data(), all.size(), &options, nullptr);
    };
    says(tutti_send(comm, host, 100, TUTTI_FLOAT32, peer, 0, &options, nullptr), TUTTI_NOT_SUPPORTED,
         "the buffers are host memory");
    says(tutti_send(comm, data, 100, TUTTI_FLOAT32, peer, 0, &other, nullptr), TUTTI_INVALID_ARGUMENT,
         "the stream belongs to device");
    says(tutti_send(comm, data, 100, TUTTI_FLOAT32, rank, 0, &options, nullptr), TUTTI_INVALID_ARGUMENT,
         "use tutti_exchange");
    says(tutti_send(comm, data, 100, TUTTI_FLOAT32, 2, 0, &options, nullptr), TUTTI_INVALID_ARGUMENT,
         "expected less than 2 ranks");
    says(exchange({{data, 10, TUTTI_FLOAT32, peer, 0, 3}}), TUTTI_INVALID_ARGUMENT, "messages[0]: direction is 3");
    says(
        exchange({{data, 10, TUTTI_FLOAT32, peer, 0, TUTTI_SEND}, {theirs, 10, TUTTI_FLOAT32, peer, 0, TUTTI_RECEIVE}}),
        TUTTI_INVALID_ARGUMENT,
        "messages[1]: data is memory of device simulated 1, but this communicator was bound to device simulated 0");
    says(exchange(
             {{data, 10, TUTTI_FLOAT32, peer, 0, TUTTI_SEND}, {data + 9, 5, TUTTI_FLOAT32, peer, 0, TUTTI_RECEIVE}}),
         TUTTI_INVALID_ARGUMENT, "overlap");
    says(exchange({{data, 10, TUTTI_FLOAT32, rank, 0, TUTTI_SEND}}), TUTTI_INVALID_ARGUMENT,
         "1 sends to this rank itself and 0 receives");
    says(exchange(
             {{data, 10, TUTTI_FLOAT32, rank, 0, TUTTI_SEND}, {data + 50, 10, TUTTI_FLOAT32, rank, 1, TUTTI_RECEIVE}}),
         TUTTI_MISMATCH, "both must be equal in size and tag");
    says(tutti_exchange(comm, nullptr, 1, &options, nullptr), TUTTI_INVALID_ARGUMENT, "messages is NULL");
    const tutti_message mixed[] = {{data, 10, TUTTI_FLOAT32, peer, 0, TUTTI_SEND},
                                   {host, 10, TUTTI_FLOAT32, peer, 0, TUTTI_RECEIVE}};
    says(tutti_exchange(comm, mixed, 2, nullptr, nullptr), TUTTI_INVALID_ARGUMENT, "memory of the host");
    const tutti_message turned[] = {mixed[1], mixed[0]};
    says(tutti_exchange(comm, turned, 2, nullptr, nullptr), TUTTI_INVALID_ARGUMENT, "some data is host memory");
    s.free(data);
    says(tutti_send(comm, data, 100, TUTTI_FLOAT32, peer, 0, &options, nullptr), TUTTI_INVALID_ARGUMENT, "released");
    EXPECT_EQ(tutti_exchange(comm, nullptr, 0, nullptr, nullptr), TUTTI_OK) << tutti_comm_error(comm);
    Group group(comm, &s);
    add_all_to_all(group, rank, 2, 1000);
    ASSERT_EQ(group.go(), TUTTI_OK) << tutti_comm_error(comm);
    ASSERT_TRUE(s.finish());
    group.check();
    elsewhere.free(theirs);
  });
}

TEST(StreamTransfer, CapturedStreamsAreRefused) {
  for (const Layout& layout : {layouts[0], layouts[2]})
    run(layout, 2, [](tutti_comm* comm, uint32_t rank) {
      Stream s;
      Group group(comm, &s);
      void* graph = nullptr;
      EXPECT_EQ(graphs().begin(&s.handle, 1, &graph), TUTTI_OK);
      group.send(1 - rank, 10, 0);
      EXPECT_EQ(group.go(), TUTTI_NOT_SUPPORTED);
      EXPECT_NE(std::string(tutti_comm_error(comm)).find("is being captured"), std::string::npos)
          << tutti_comm_error(comm);
      EXPECT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK) << tutti_comm_error(comm);
      EXPECT_EQ(graphs().end(graph), TUTTI_OK);
      graphs().destroy(graph);
    });
}

}  // namespace
}  // namespace tutti::test
