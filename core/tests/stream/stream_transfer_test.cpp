// SPDX-License-Identifier: Apache-2.0
//
// Sends and receives of device memory, and groups of them: between processes that map each other's memory or send it
// over a transport, between threads, and mixed.
#include <algorithm>
#include <atomic>
#include <map>
#include <set>

#include "../harness/graphs.hpp"
#include "../harness/stream_ranks.hpp"

namespace tutti::test {
namespace {

constexpr uint64_t slot = 1u << 20;

struct Layout {
  const char* name;
  uint32_t per_process;  // 0: all
  const char* transports;
};
constexpr Layout layouts[] = {
    {"mapped", 1, nullptr}, {"staged", 1, "shm"}, {"threads", 0, nullptr}, {"mixed", 2, nullptr}};

void run(const Layout& layout, uint32_t n, const Body& body) {
  SCOPED_TRACE(layout.name);
  run_processes(n, layout.per_process ? layout.per_process : n, body, "", [&](uint32_t) {
    if (layout.transports) setenv("TUTTI_TRANSPORT", layout.transports, 1);
  });
}

// The k-th message from one rank to another: bytes that differ between messages and between fragments. `each` is called
// with each stretch of it: where it is, how many bytes, and what they are.
template <typename Each>
void for_each_stretch(uint32_t from, uint32_t to, uint64_t k, uint64_t bytes, Each&& each) {
  static const std::vector<uint8_t> pattern = [] {
    std::vector<uint8_t> made(65521);
    uint64_t random = 1;
    for (uint8_t& byte : made)
      byte = static_cast<uint8_t>(1 + ((random = random * 6364136223846793005u + 1442695040888963407u) >> 33) % 255);
    return made;
  }();
  uint64_t at = (from * 3779 + to * 1409 + k * 211) % pattern.size();
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t n = std::min(bytes - done, pattern.size() - at);
    each(done, n, pattern.data() + at);
    done += n;
    at = 0;
  }
}

// A group under construction, on device or host memory, with what is to come.
class Group {
 public:
  Group(tutti_comm* comm, Stream* stream) : comm_(comm), stream_(stream), rank_(tutti_comm_rank(comm)) {}
  ~Group() {
    for (const Buffer& b : buffers_)
      if (stream_)
        stream_->free(b.data);
      else
        delete[] b.data;
  }
  void send(uint32_t to, uint64_t bytes, uint32_t tag) {
    uint8_t* data = make(bytes);
    const uint64_t k = sent_[to]++;
    for_each_stretch(rank_, to, k, bytes,
                     [&](uint64_t at, uint64_t n, const uint8_t* from) { std::memcpy(data + at, from, n); });
    buffers_.push_back({data, bytes, rank_, to, k});
    messages.push_back({bytes ? data : nullptr, bytes, TUTTI_UINT8, to, tag, TUTTI_SEND});
  }
  void receive(uint32_t from, uint64_t bytes, uint32_t tag) {
    uint8_t* data = make(bytes);
    buffers_.push_back({data, bytes, from, rank_, received_[from]++});
    messages.push_back({bytes ? data : nullptr, bytes, TUTTI_UINT8, from, tag, TUTTI_RECEIVE});
  }
  void check() const {
    for (const Buffer& b : buffers_) {
      for_each_stretch(b.from, b.to, b.k, b.bytes, [&](uint64_t at, uint64_t n, const uint8_t* expected) {
        EXPECT_EQ(std::memcmp(b.data + at, expected, n), 0) << "behind " << at << " of message " << b.k << " of "
                                                            << b.bytes << " bytes from " << b.from << " to " << b.to;
      });
      for (uint64_t i = b.bytes; i < b.bytes + guard; ++i) ASSERT_EQ(b.data[i], 0) << "behind the message";
    }
  }
  tutti_status go(tutti_request** request = nullptr, uint64_t timeout_ns = 0) const {
    tutti_options options{};
    options.struct_size = sizeof options;
    options.stream = stream_ ? stream_->handle : nullptr;
    options.timeout_ns = timeout_ns;
    return tutti_exchange(comm_, messages.data(), messages.size(), &options, request);
  }
  std::vector<tutti_message> messages;

 private:
  static constexpr uint64_t guard = 16;
  struct Buffer {
    uint8_t* data;
    uint64_t bytes;
    uint32_t from, to;
    uint64_t k;
  };
  uint8_t* make(uint64_t bytes) const {
    auto* data = stream_ ? stream_->make<uint8_t>(bytes + guard) : new uint8_t[bytes + guard];
    std::memset(data, 0, bytes + guard);
    return data;
  }
  tutti_comm* comm_;
  Stream* stream_;
  uint32_t rank_;
  std::map<uint32_t, uint64_t> sent_, received_;
  std::vector<Buffer> buffers_;
};

// Every rank with every rank, itself included, in different sizes.
void add_all_to_all(Group& group, uint32_t rank, uint32_t n, uint64_t unit) {
  const auto size = [&](uint32_t from, uint32_t to) { return (uint64_t{from} * 3 + to) % 5 * unit + from; };
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t to = (rank + i) % n, from = (rank + n - i) % n;
    group.send(to, size(rank, to), rank * n + to);
    group.receive(from, size(from, rank), from * n + rank);
  }
}

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
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
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

TEST(StreamTransfer, WhatNeverComesEndsAtTheDeadline) {
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
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
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
