// SPDX-License-Identifier: Apache-2.0
//
// Messages between two ranks over each address family and several socket counts.
#include <random>
#include <string_view>
#include <thread>

#include "tcp_ranks.hpp"

namespace tutti_test {
namespace {

struct Way {
  const char* interface;
  const char* sockets;
};

class Transfer : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    host().settings = {{"TUTTI_TCP_INTERFACE", GetParam().interface}, {"TUTTI_TCP_SOCKETS", GetParam().sockets}};
    a = std::make_unique<Rank>(0);
    b = std::make_unique<Rank>(1);
    ASSERT_EQ(a->open_status, TUTTI_OK) << Host::error;
    ASSERT_NO_FATAL_FAILURE(join(*a, *b));
  }
  bool both(const std::function<bool()>& until) { return drive({a.get(), b.get()}, until); }
  std::unique_ptr<Rank> a, b;
};

INSTANTIATE_TEST_SUITE_P(Ways, Transfer,
                         testing::Values(Way{"127.0.0.1", "1"}, Way{"127.0.0.0/8", "3"}, Way{"::1", "1"},
                                         Way{"lo", "8"}),
                         [](const auto& p) { return "way" + std::to_string(p.index); });

TEST_P(Transfer, SizesAroundEveryLimit) {
  const uint64_t fragment = caps().fragment_bytes;
  std::vector<uint64_t> sizes{0, 1, 8, 4095, 4096, 4097, 16383, 16384, 16385, 20000, fragment - 1, fragment};
  uint64_t cookie = 0;
  for (const bool receive_first : {true, false}) {
    for (const uint64_t bytes : sizes) {
      const auto out = pattern(bytes, static_cast<unsigned>(bytes));
      std::vector<unsigned char> in(bytes + 1, 0xaa);
      const uint64_t recv_cookie = ++cookie, send_cookie = ++cookie;
      if (receive_first) {
        ASSERT_EQ(b->receive(0, 1, in.data(), bytes, recv_cookie), TUTTI_OK);
      }
      ASSERT_EQ(a->send(1, 1, out.data(), bytes, send_cookie), TUTTI_OK);
      if (!receive_first) {
        for (int i = 0; i < 50; ++i) a->progress(), b->progress();
        ASSERT_EQ(b->receive(0, 1, in.data(), bytes, recv_cookie), TUTTI_OK);
      }
      ASSERT_TRUE(both([&] { return a->has(send_cookie) && b->has(recv_cookie); })) << bytes;
      EXPECT_EQ(b->ended[recv_cookie].bytes, bytes);
      EXPECT_TRUE(std::equal(out.begin(), out.end(), in.begin())) << bytes;
      EXPECT_EQ(in[bytes], 0xaa) << "wrote past " << bytes;
    }
  }
  const char byte = 0;
  EXPECT_EQ(a->send(1, 0, &byte, fragment + 1, 1), TUTTI_INVALID_ARGUMENT);
}

TEST_P(Transfer, ManyMessagesKeepTheOrderOfTheirLane) {
  constexpr uint32_t kMessages = 400, kLanes = 4;
  const uint64_t fragment = caps().fragment_bytes;
  const auto size = [&](uint32_t i, uint32_t lane) -> uint64_t {
    const uint64_t sizes[] = {8, 0, 3000, 17, 16384, 5000, 40000, 1, fragment, 4096};
    return sizes[(i * 7 + lane * 3) % 10];
  };
  const auto source = pattern(fragment + kMessages * kLanes, 5);  // message (i, lane) begins at its own offset
  for (Rank* sender : {a.get(), b.get()}) {
    Rank* receiver = sender == a.get() ? b.get() : a.get();
    const uint32_t to = sender == a.get() ? 1 : 0;
    std::vector<uint32_t> sent(kLanes), posted(kLanes), checked(kLanes);
    std::vector<std::vector<std::vector<unsigned char>>> in(kLanes, std::vector<std::vector<unsigned char>>(8));
    const uint64_t base = uint64_t{to + 1} << 40;
    const auto name = [&](uint32_t i, uint32_t lane) { return base + i * kLanes + lane; };
    ASSERT_TRUE(both([&] {
      for (uint32_t lane = 0; lane < kLanes; ++lane) {
        while (sent[lane] < kMessages) {
          const uint64_t bytes = size(sent[lane], lane);
          const uint16_t flags = bytes <= caps().inline_bytes && sent[lane] % 2 ? TUTTI_TRANSFER_INLINE : 0;
          if (sender->send(to, lane, source.data() + name(sent[lane], lane) - base, bytes, name(sent[lane], lane),
                           flags))
            break;
          ++sent[lane];
        }
        while (posted[lane] < kMessages && posted[lane] < checked[lane] + 8) {
          auto& memory = in[lane][posted[lane] % 8];
          memory.assign(size(posted[lane], lane), 0);
          if (receiver->receive(1 - to, lane, memory.data(), memory.size(), name(posted[lane], lane))) break;
          ++posted[lane];
        }
        while (checked[lane] < posted[lane] && receiver->has(name(checked[lane], lane))) {
          const auto& memory = in[lane][checked[lane] % 8];
          EXPECT_TRUE(std::equal(memory.begin(), memory.end(),
                                 source.begin() + static_cast<long>(name(checked[lane], lane) - base)))
              << "message " << checked[lane] << " of lane " << lane;
          ++checked[lane];
        }
      }
      return std::accumulate(checked.begin(), checked.end(), 0u) == kMessages * kLanes;
    }));
  }
}

TEST_P(Transfer, ALaneWithoutReceivesHoldsNobodyUp) {
  const uint64_t fragment = caps().fragment_bytes;
  const auto out = pattern(fragment, 3);
  std::vector<unsigned char> in(fragment);
  uint64_t stuck = 1000;  // lane 0: small messages beyond the window, then a large one, until refused
  while (a->send(1, 0, out.data(), stuck % 20 == 19 ? fragment : 100, stuck) == TUTTI_OK) ++stuck;
  EXPECT_GE(stuck, 1016u);
  for (uint64_t i = 0; i < 100; ++i) {
    const uint32_t lane = 1 + i % 3;
    const uint64_t bytes = i % 2 ? fragment : 64;
    ASSERT_EQ(b->receive(0, lane, in.data(), bytes, 2 * i), TUTTI_OK);
    ASSERT_EQ(a->send(1, lane, out.data(), bytes, 2 * i + 1), TUTTI_OK);
    ASSERT_TRUE(both([&] { return b->has(2 * i) && a->has(2 * i + 1); })) << "lane " << lane << " is held up";
  }
  for (uint64_t i = 1000; i < stuck; ++i) {
    ASSERT_EQ(b->receive(0, 0, in.data(), i % 20 == 19 ? fragment : 100, i), TUTTI_OK);
    ASSERT_TRUE(both([&] { return b->has(i) && a->has(i); })) << i;
  }
}

TEST_P(Transfer, RefusedSendsAreTakenOnceReceivesArePosted) {
  std::vector<unsigned char> out = pattern(64, 1), in(64);
  uint64_t sent = 0, received = 0;
  while (a->send(1, 2, out.data(), 64, sent, TUTTI_TRANSFER_INLINE) == TUTTI_OK) ++sent;
  EXPECT_LT(sent, 1000u) << "back-pressure never came";
  for (int i = 0; i < 1000; ++i) a->progress(), b->progress();
  EXPECT_EQ(a->send(1, 2, out.data(), 64, sent, TUTTI_TRANSFER_INLINE), TUTTI_AGAIN);
  for (; received < 1000; ++received) {
    ASSERT_EQ(b->receive(0, 2, in.data(), 64, received), TUTTI_OK);
    while (sent < 1000 && a->send(1, 2, out.data(), 64, sent, TUTTI_TRANSFER_INLINE) == TUTTI_OK) ++sent;
    ASSERT_TRUE(both([&] { return b->has(received); }));
  }
  EXPECT_EQ(sent, 1000u);
  EXPECT_TRUE(a->ended.empty()) << "INLINE sends have no completion record";
}

TEST_P(Transfer, ReceiveDepthIsKept) {
  char byte = 1;
  std::vector<char> in(caps().receive_depth);
  for (uint32_t i = 0; i < caps().receive_depth; ++i) ASSERT_EQ(b->receive(0, 3, &in[i], 1, i), TUTTI_OK) << i;
  EXPECT_EQ(b->receive(0, 3, &in[0], 1, 9999), TUTTI_AGAIN);
  for (uint32_t i = 0; i < caps().receive_depth; ++i)
    ASSERT_TRUE(both([&] { return a->send(1, 3, &byte, 1, i, TUTTI_TRANSFER_INLINE) == TUTTI_OK; }));
  ASSERT_TRUE(both([&] { return b->ended.size() == caps().receive_depth; }));
}

TEST_P(Transfer, InlineMemoryIsFreeAtReturn) {
  constexpr unsigned window = 64;  // messages that may run ahead of their receives
  std::vector<unsigned char> memory(4096), in(4096);
  for (unsigned i = 0; i < window; ++i) {
    const auto message = pattern(4096, i);
    memory = message;
    ASSERT_TRUE(both([&] { return a->send(1, 0, memory.data(), 4096, 0, TUTTI_TRANSFER_INLINE) == TUTTI_OK; }));
    std::fill(memory.begin(), memory.end(), 0xee);
  }
  EXPECT_EQ(a->send(1, 0, memory.data(), 4096, 0, TUTTI_TRANSFER_INLINE), TUTTI_AGAIN)
      << "it was taken, but could only leave while this rank makes progress";
  for (unsigned i = 0; i < window; ++i) {
    ASSERT_EQ(b->receive(0, 0, in.data(), 4096, i), TUTTI_OK);
    ASSERT_TRUE(both([&] { return b->has(i); }));
    ASSERT_EQ(in, pattern(4096, i)) << i;
  }
}

TEST_P(Transfer, ControlMessagesKeepOrderAndAreBounded) {
  std::vector<std::string> expected;
  tutti_status status = TUTTI_OK;
  while (status == TUTTI_OK && expected.size() < 400000) {  // nobody reads: the bound must come
    std::string text(expected.size() % 257, static_cast<char>('a' + expected.size() % 26));
    status = table().send_control(a->link(1), text.data(), text.size());
    if (status == TUTTI_OK) expected.push_back(text);
  }
  EXPECT_EQ(status, TUTTI_AGAIN);
  ASSERT_TRUE(both([&] { return b->controls.size() == expected.size(); }));
  EXPECT_EQ(b->controls, expected);
  const std::string large(257, 'x');
  EXPECT_EQ(table().send_control(a->link(1), large.data(), large.size()), TUTTI_INVALID_ARGUMENT);
}

TEST_P(Transfer, UnequalSizesAreAMismatchNamingBoth) {
  const uint64_t fragment = caps().fragment_bytes;
  const auto out = pattern(fragment, 1);
  std::vector<unsigned char> in(fragment, 0x55);
  const std::vector<std::pair<uint64_t, uint64_t>> pairs{{100, 99},     {99, 100}, {fragment, 8},
                                                         {8, fragment}, {0, 1},    {1, 0}};
  uint64_t cookie = 0;
  for (const bool receive_first : {true, false}) {
    for (const auto& [sent, expected] : pairs) {
      const uint64_t r = ++cookie, s = ++cookie;
      if (receive_first) {
        ASSERT_EQ(b->receive(0, 0, in.data(), expected, r), TUTTI_OK);
      }
      ASSERT_EQ(a->send(1, 0, out.data(), sent, s), TUTTI_OK);
      for (int i = 0; i < 20; ++i) a->progress(), b->progress();
      if (!receive_first) {
        ASSERT_EQ(b->receive(0, 0, in.data(), expected, r), TUTTI_OK);
      }
      ASSERT_TRUE(both([&] { return a->has(s) && b->has(r, TUTTI_MISMATCH); })) << sent << " met " << expected;
      EXPECT_TRUE(host().logged("a message of " + std::to_string(sent) +
                                " bytes from rank 0 on lane 0 met a receive of " + std::to_string(expected) +
                                " bytes"));
    }
  }
  EXPECT_TRUE(std::all_of(in.begin(), in.end(), [](unsigned char c) { return c == 0x55; }));
  ASSERT_EQ(b->receive(0, 0, in.data(), 100, 77777), TUTTI_OK);  // the lane is still in step
  ASSERT_EQ(a->send(1, 0, out.data(), 100, 77778), TUTTI_OK);
  ASSERT_TRUE(both([&] { return b->has(77777); }));
}

TEST_P(Transfer, MessagesOfAnotherMarkAreNotWritten) {
  const uint64_t fragment = caps().fragment_bytes;
  auto out = pattern(fragment, 1);
  std::vector<unsigned char> in(fragment, 0x55);
  uint64_t cookie = 0;
  for (const bool receive_first : {true, false})
    for (const uint64_t bytes : {uint64_t{0}, uint64_t{8}, uint64_t{5000}, fragment}) {
      const uint64_t r = ++cookie, s = ++cookie;
      const auto receive = [&] {
        ASSERT_EQ(b->transfer_region(TUTTI_TRANSFER_RECV, 0, 0, in.data(), bytes, r, nullptr, 8), TUTTI_OK);
      };
      if (receive_first) receive();
      ASSERT_EQ(a->transfer_region(TUTTI_TRANSFER_SEND, 1, 0, out.data(), bytes, s, nullptr, 0x8000'0007), TUTTI_OK);
      for (int i = 0; i < 20; ++i) a->progress(), b->progress();
      if (!receive_first) receive();
      ASSERT_TRUE(both([&] { return a->has(s) && b->has(r, TUTTI_MISMATCH); })) << bytes;
      EXPECT_EQ(b->ended[r].mark, 0x8000'0007u);
      EXPECT_TRUE(host().logged(" (marks 80000007 and 00000008): the two ranks run different operations"));
    }
  EXPECT_TRUE(std::all_of(in.begin(), in.end(), [](unsigned char c) { return c == 0x55; }));
}

TEST_P(Transfer, TwoThreadsAtFullSpeed) {
  constexpr uint64_t kMessages = 1000;
  const uint64_t fragment = caps().fragment_bytes;
  const auto out = pattern(fragment, 9);
  const auto run = [&](Rank& r, uint32_t peer) {
    std::vector<unsigned char> in(fragment);
    for (uint64_t i = 0; i < kMessages; ++i) {
      const uint64_t bytes = i % 100 == 0 ? fragment : i % 5000;
      ASSERT_EQ(r.receive(peer, i % 4, in.data(), bytes, 2 * i), TUTTI_OK);
      ASSERT_EQ(r.send(peer, i % 4, out.data(), bytes, 2 * i + 1), TUTTI_OK);
      ASSERT_TRUE(drive({&r}, [&] { return r.has(2 * i) && r.has(2 * i + 1); }));
      ASSERT_EQ(std::memcmp(in.data(), out.data(), bytes), 0);
    }
  };
  std::thread other([&] { run(*b, 0); });
  run(*a, 1);
  other.join();
}

TEST_P(Transfer, BadTransfersAreRefused) {
  char byte = 0;
  tutti_link* link = a->link(1);
  EXPECT_EQ(a->post(Rank::transfer(link, TUTTI_TRANSFER_SEND, 99, &byte, 1, 2)), TUTTI_INVALID_ARGUMENT);
  EXPECT_NE(Host::error.find("lane 99 of 4"), std::string::npos) << Host::error;
  EXPECT_EQ(a->post(Rank::transfer(link, 7, 0, &byte, 1, 2)), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(a->post(Rank::transfer(link, TUTTI_TRANSFER_SEND, 0, nullptr, 1, 2)), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(a->post(Rank::transfer(link, TUTTI_TRANSFER_RECV, 0, &byte, 1, 2, TUTTI_TRANSFER_INLINE)),
            TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(a->post(Rank::transfer(link, TUTTI_TRANSFER_SEND, 0, &byte, 1, 2, 1u << 5)), TUTTI_NOT_SUPPORTED);
  EXPECT_EQ(a->post(Rank::transfer(b->link(0), TUTTI_TRANSFER_SEND, 0, &byte, 1, 2)), TUTTI_INVALID_ARGUMENT);
}

// The sender does nothing after the last completion: its program waits elsewhere. The receiver has not taken anything
// before, so the kernel took less and less of what was sent.
TEST(Completion, NeedsNoFurtherCallOfTheSender) {
  for (const char* buffer : {"4096", "65536", "4194304"})
    for (const unsigned seed : {1u, 2u, 3u}) {
      // Not with the largest buffers: written so slowly, all of it has room there.
      const bool in_pieces = seed == 3 && std::string_view(buffer) != "4194304";
      host().settings = {{"TUTTI_TCP_INTERFACE", "127.0.0.1"},
                         {"TUTTI_TCP_BUFFER_BYTES", buffer},
                         {"TUTTI_TCP_TEST_PIECE", in_pieces ? "300" : "0"}};
      Rank a(0), b(1);
      ASSERT_NO_FATAL_FAILURE(join(a, b));
      const uint64_t sizes[] = {3000, 100, caps().fragment_bytes, 4096};
      constexpr uint64_t kEach = 60;
      const auto out = pattern(caps().fragment_bytes, 1);
      std::vector<unsigned char> in(caps().fragment_bytes);
      for (uint64_t lane = 0; lane < 4; ++lane)
        for (uint64_t k = 0; k < kEach; ++k)
          ASSERT_EQ(b.receive(0, static_cast<uint32_t>(lane), in.data(), sizes[lane], lane * kEach + k), TUTTI_OK);
      for (int i = 0; i < 300; ++i) b.progress(), a.progress();  // a knows of the receives
      std::vector<uint64_t> posted(4), complete(4);
      uint64_t controls = 0;
      std::mt19937 random(seed);
      for (int refused = 0; refused < 200; ++refused) {
        const uint32_t lane = random() % 5;
        if (lane == 4) {
          if (table().send_control(a.link(1), out.data(), 200) != TUTTI_OK) continue;
          ++controls;
        } else {
          const bool inlined = lane % 2;
          if (posted[lane] == kEach || a.send(1, lane, out.data(), sizes[lane], lane * kEach + posted[lane],
                                              inlined ? TUTTI_TRANSFER_INLINE : 0) != TUTTI_OK)
            continue;
          ++posted[lane];
          complete[lane] += inlined;
        }
        refused = 0;
        if (random() % 4 == 0) a.progress();
      }
      for (int i = 0; i < 50; ++i) a.progress();
      for (const auto& [cookie, ended] : a.ended) complete[cookie / kEach] += ended.status == TUTTI_OK;
      EXPECT_LT(complete[0] + complete[1] + complete[2] + complete[3], 4 * kEach)
          << "nothing came to a stand, buffers of " << buffer << ", seed " << seed;
      const auto arrived = [&](uint64_t lane) {
        uint64_t n = 0;
        while (n < kEach && b.has(lane * kEach + n)) ++n;
        return n;
      };
      drive(
          {&b},
          [&] {
            for (uint64_t lane = 0; lane < 4; ++lane)
              if (arrived(lane) < complete[lane]) return false;
            return b.controls.size() >= controls;
          },
          std::chrono::seconds(60));
      for (uint64_t lane = 0; lane < 4; ++lane)
        EXPECT_GE(arrived(lane), complete[lane]) << "lane " << lane << ", buffers of " << buffer << ", seed " << seed;
      EXPECT_EQ(b.controls.size(), controls) << "buffers of " << buffer << ", seed " << seed;
      // Nothing was kept back for good either.
      ASSERT_TRUE(drive({&a, &b}, [&] {
        return a.ended.size() + complete[1] + complete[3] == posted[0] + posted[1] + posted[2] + posted[3];
      }));
    }
}

}  // namespace
}  // namespace tutti_test
