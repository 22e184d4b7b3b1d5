// SPDX-License-Identifier: Apache-2.0
//
// Messages between two ranks over one cable and over two: every size class, registered and ordinary memory, order,
// independence of lanes, control messages, mismatches, sleeping.
#include <poll.h>

#include "ib_ranks.hpp"

namespace tutti_test {
namespace {

constexpr uint64_t kFragment = 256 << 10;
const std::map<std::string, std::string> kSmall{{"TUTTI_IB_FRAGMENT_BYTES", "262144"},
                                                {"TUTTI_IB_STRIPE_BYTES", "16384"}};

class Transfer : public OverCables, public testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
    OverCables::SetUp();
    if (!IsSkipped()) open_joined(GetParam(), kSmall);
  }
};
INSTANTIATE_TEST_SUITE_P(Rails, Transfer, testing::Values(1, 2),
                         [](const auto& p) { return "rails" + std::to_string(p.param); });

TEST_P(Transfer, SizesAroundEveryLimitInEveryKindOfMemory) {
  const std::vector<uint64_t> sizes{0, 1, 8, 223, 224, 225, 8191, 8192, 8193, 20000, 32768, 32769, kFragment};
  std::vector<unsigned char> in(kFragment + 64);
  auto out = pattern(kFragment, 1);
  tutti_region* from = a->register_memory(out.data(), out.size());
  tutti_region* into = b->register_memory(in.data(), in.size());
  ASSERT_TRUE(from && into) << a->error << b->error;
  uint64_t cookie = 0;
  for (const bool registered_source : {false, true})
    for (const bool registered_target : {false, true})
      for (const uint64_t bytes : sizes) {
        if (bytes == kFragment && !registered_target && !registered_source) continue;  // slow on an emulated machine
        const bool receive_first = ++cookie % 2;
        std::fill(in.begin(), in.end(), 0xaa);
        const uint64_t receive_cookie = ++cookie, send_cookie = ++cookie;
        const auto receive = [&] {
          return b->transfer_region(TUTTI_TRANSFER_RECV, 0, 1, in.data(), bytes, receive_cookie,
                                    registered_target ? into : nullptr);
        };
        if (receive_first) {
          ASSERT_EQ(receive(), TUTTI_OK);
        }
        ASSERT_EQ(a->transfer_region(TUTTI_TRANSFER_SEND, 1, 1, out.data(), bytes, send_cookie,
                                     registered_source ? from : nullptr),
                  TUTTI_OK);
        if (!receive_first) {
          for (int i = 0; i < 20; ++i) a->progress(), b->progress();
          ASSERT_EQ(receive(), TUTTI_OK);
        }
        ASSERT_TRUE(both([&] { return a->has(send_cookie) && b->has(receive_cookie); }))
            << bytes << " bytes, registered: " << registered_source << registered_target;
        EXPECT_EQ(b->ended[receive_cookie].bytes, bytes);
        EXPECT_TRUE(std::equal(out.begin(), out.begin() + static_cast<long>(bytes), in.begin())) << bytes;
        EXPECT_EQ(in[bytes], 0xaa) << "wrote past " << bytes;
      }
  EXPECT_EQ(a->send(1, 0, out.data(), kFragment + 1, 1), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(a->transfer_region(TUTTI_TRANSFER_SEND, 1, 1, in.data(), 8, 1, from), TUTTI_INVALID_ARGUMENT)
      << "a region that does not hold the memory";
  a->deregister(from);
  b->deregister(into);
}

TEST_P(Transfer, ManyMessagesKeepTheOrderOfTheirLane) {
  constexpr uint32_t kMessages = 60, kLanes = 4;
  const auto size = [&](uint32_t i, uint32_t lane) -> uint64_t {
    const uint64_t sizes[] = {8, 0, 3000, 17, 8192, 5000, 40000, 1, 70000, 4096};
    return sizes[(i * 7 + lane * 3) % 10];
  };
  auto source = pattern(70000 + kMessages * kLanes, 5);  // message (i, lane) begins at its own offset
  tutti_region* region = a->register_memory(source.data(), source.size());
  std::vector<unsigned char> target(kLanes * 8 * 70000);
  tutti_region* into = b->register_memory(target.data(), target.size());
  ASSERT_TRUE(region && into);
  std::vector<uint32_t> sent(kLanes), posted(kLanes), checked(kLanes);
  const auto name = [&](uint32_t i, uint32_t lane) { return uint64_t{i} * kLanes + lane; };
  ASSERT_TRUE(both([&] {
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      while (sent[lane] < kMessages) {
        const uint64_t bytes = size(sent[lane], lane), cookie = name(sent[lane], lane);
        auto t = Rank::transfer(a->link(1), TUTTI_TRANSFER_SEND, lane, source.data() + cookie, bytes, cookie,
                                bytes <= 8192 && sent[lane] % 2 ? TUTTI_TRANSFER_INLINE : 0);
        if (sent[lane] % 3) t.region = region;
        if (a->post(t)) break;
        ++sent[lane];
      }
      while (posted[lane] < kMessages && posted[lane] < checked[lane] + 8) {
        unsigned char* memory = target.data() + (lane * 8 + posted[lane] % 8) * 70000;
        if (b->transfer_region(TUTTI_TRANSFER_RECV, 0, lane, memory, size(posted[lane], lane), name(posted[lane], lane),
                               posted[lane] % 5 ? into : nullptr))
          break;
        ++posted[lane];
      }
      while (checked[lane] < posted[lane] && b->has(name(checked[lane], lane))) {
        const unsigned char* memory = target.data() + (lane * 8 + checked[lane] % 8) * 70000;
        EXPECT_TRUE(std::equal(memory, memory + size(checked[lane], lane),
                               source.begin() + static_cast<long>(name(checked[lane], lane))))
            << "message " << checked[lane] << " of lane " << lane;
        ++checked[lane];
      }
    }
    return std::accumulate(checked.begin(), checked.end(), 0u) == kMessages * kLanes;
  }));
  for (uint32_t lane = 0; lane < kLanes; ++lane) {  // completions of a lane come in the order of posting
    std::vector<uint64_t> order;
    for (const uint64_t c : b->order)
      if (c % kLanes == lane) order.push_back(c);
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  }
  a->deregister(region);
  b->deregister(into);
}

TEST_P(Transfer, ALaneWithoutReceivesHoldsNobodyUp) {
  const auto out = pattern(kFragment, 3);
  std::vector<unsigned char> in(kFragment);
  uint64_t stuck = 1000;  // lane 0: small messages beyond the window, then a large one, until refused
  while (a->send(1, 0, out.data(), stuck % 20 == 19 ? 30000 : 100, stuck) == TUTTI_OK) ++stuck;
  EXPECT_GE(stuck, 1016u);
  for (uint64_t i = 0; i < 30; ++i) {
    const uint32_t lane = 1 + i % 3;
    const uint64_t bytes = i % 2 ? 30000 : 64;
    ASSERT_EQ(b->receive(0, lane, in.data(), bytes, 2 * i), TUTTI_OK);
    ASSERT_EQ(a->send(1, lane, out.data(), bytes, 2 * i + 1), TUTTI_OK);
    ASSERT_TRUE(both([&] { return b->has(2 * i) && a->has(2 * i + 1); })) << "lane " << lane << " is held up";
  }
}

TEST_P(Transfer, ControlMessagesNeedNoReceiveAndKeepTheirOrder) {
  std::vector<std::string> sent;
  for (int i = 0; i < 40; ++i) sent.push_back(std::to_string(i) + std::string(static_cast<size_t>(i * 6), 'x'));
  size_t next = 0;
  ASSERT_TRUE(both([&] {
    while (next < sent.size() && table().send_control(a->link(1), sent[next].data(), sent[next].size()) == TUTTI_OK)
      ++next;
    return b->controls.size() == sent.size();
  }));
  EXPECT_EQ(b->controls, sent);
  const std::string longest(caps().control_bytes, 'x'), larger = longest + 'x';
  EXPECT_GE(longest.size(), TUTTI_CONTROL_BYTES);
  EXPECT_EQ(table().send_control(a->link(1), larger.data(), larger.size()), TUTTI_INVALID_ARGUMENT);
  ASSERT_TRUE(both([&] { return table().send_control(a->link(1), longest.data(), longest.size()) == TUTTI_OK; }));
  ASSERT_TRUE(both([&] { return b->controls.size() == sent.size() + 1; }));
  EXPECT_EQ(b->controls.back(), longest);
}

TEST_P(Transfer, MessagesOfAnotherSizeEndTheReceive) {
  std::vector<unsigned char> memory(kFragment);
  const std::vector<std::pair<uint64_t, uint64_t>> cases{{8, 9}, {9, 8}, {8, 30000}, {30000, 8}, {30000, 40000}};
  uint64_t cookie = 1;
  for (const auto& [sent, received] : cases) {
    ASSERT_EQ(b->receive(0, 2, memory.data(), received, cookie), TUTTI_OK);
    ASSERT_EQ(a->send(1, 2, memory.data(), sent, cookie), TUTTI_OK);
    ASSERT_TRUE(both([&] { return b->has(cookie, TUTTI_MISMATCH) && a->has(cookie); })) << sent << " -> " << received;
    ++cookie;
  }
  ASSERT_EQ(a->send(1, 2, memory.data(), 30000, cookie), TUTTI_OK);  // the large message waits before its small RECV
  for (int i = 0; i < 5000; ++i) a->progress(), b->progress();
  ASSERT_EQ(b->receive(0, 2, memory.data(), 8, cookie), TUTTI_OK);
  ASSERT_TRUE(both([&] { return b->has(cookie, TUTTI_MISMATCH) && a->has(cookie); }));
  ++cookie;
  ASSERT_EQ(b->receive(0, 2, memory.data(), 8, cookie), TUTTI_OK);  // the lane goes on
  ASSERT_EQ(a->send(1, 2, memory.data(), 8, cookie), TUTTI_OK);
  ASSERT_TRUE(both([&] { return b->has(cookie) && a->has(cookie); }));
}

// Small messages in frames, early and late; large ones in frames and by writes into registered memory.
TEST_P(Transfer, MessagesOfAnotherMarkEndTheReceive) {
  auto out = pattern(kFragment, 6);
  std::vector<unsigned char> in(kFragment);
  tutti_region* from = a->register_memory(out.data(), out.size());
  tutti_region* into = b->register_memory(in.data(), in.size());
  ASSERT_TRUE(from && into);
  uint64_t cookie = 1;
  for (const bool early : {false, true})
    for (const bool registered : {false, true})
      for (const uint64_t bytes : {0, 8, 8192, 30000, 70000})
        for (const auto& [sent, expected] : {std::pair{7u, 7u}, {7u, 8u}, {0u, 1u << 31}, {UINT32_MAX, UINT32_MAX}}) {
          std::fill(in.begin(), in.end(), static_cast<unsigned char>(0x55));
          const auto receive = [&] {
            ASSERT_EQ(b->transfer_region(TUTTI_TRANSFER_RECV, 0, 2, in.data(), bytes, cookie,
                                         registered ? into : nullptr, expected),
                      TUTTI_OK);
          };
          if (!early) receive();
          ASSERT_EQ(a->transfer_region(TUTTI_TRANSFER_SEND, 1, 2, out.data(), bytes, cookie,
                                       registered ? from : nullptr, sent),
                    TUTTI_OK);
          for (int i = 0; early && i < 50; ++i) a->progress(), b->progress();
          if (early) receive();
          ASSERT_TRUE(both([&] { return b->ended.contains(cookie) && a->has(cookie); })) << bytes;
          const auto& ended = b->ended[cookie++];
          EXPECT_EQ(ended.status, sent == expected ? TUTTI_OK : TUTTI_MISMATCH);
          EXPECT_EQ(ended.bytes, bytes);
          EXPECT_EQ(ended.mark, sent);
          const auto written = std::mismatch(in.begin(), in.end(), out.begin()).first - in.begin();
          EXPECT_TRUE(sent == expected ? static_cast<uint64_t>(written) >= bytes : bytes == 0 || in[0] == 0x55)
              << (sent == expected ? "it has not arrived" : "a message of another call was written");
        }
  a->deregister(from);
  b->deregister(into);
}

TEST_P(Transfer, SleepsUntilSomethingArrives) {
  int32_t fd = -1;
  ASSERT_EQ(wait_table().get_fd(b->endpoint, &fd), TUTTI_OK);
  unsigned char in = 0, out = 7;
  ASSERT_EQ(b->receive(0, 0, &in, 1, 1), TUTTI_OK);
  bool armed = false;
  for (int i = 0; i < 1000 && !armed; ++i) {
    a->progress();
    armed = wait_table().arm(b->endpoint) == TUTTI_OK;
    if (!armed) wait_table().disarm(b->endpoint), b->progress();
  }
  ASSERT_TRUE(armed);
  pollfd watched{fd, POLLIN, 0};
  EXPECT_EQ(::poll(&watched, 1, 100), 0) << "woken by nothing";
  ASSERT_EQ(a->send(1, 0, &out, 1, 1, TUTTI_TRANSFER_INLINE), TUTTI_OK);
  EXPECT_EQ(::poll(&watched, 1, 20000), 1);
  wait_table().disarm(b->endpoint);
  ASSERT_TRUE(both([&] { return b->has(1); }));
  EXPECT_EQ(in, 7);
}

TEST_P(Transfer, BothRailsCarryTheirShareOfLargeMessages) {
  auto out = pattern(kFragment, 9);
  std::vector<unsigned char> in(kFragment);
  tutti_region* from = a->register_memory(out.data(), out.size());
  tutti_region* into = b->register_memory(in.data(), in.size());
  const uint64_t first = packets(0), second = packets(2);
  for (uint64_t i = 1; i <= 2; ++i) {
    ASSERT_EQ(b->transfer_region(TUTTI_TRANSFER_RECV, 0, 0, in.data(), in.size(), i, into), TUTTI_OK);
    ASSERT_EQ(a->transfer_region(TUTTI_TRANSFER_SEND, 1, 0, out.data(), out.size(), i, from), TUTTI_OK);
    ASSERT_TRUE(both([&] { return a->has(i) && b->has(i); }));
  }
  EXPECT_EQ(in, out);
  const double on_first = static_cast<double>(packets(0) - first), on_second = static_cast<double>(packets(2) - second);
  const double all = on_first + on_second;
  EXPECT_GT(all, 2 * kFragment / 1024) << "fewer packets than 1 KiB pieces";
  if (GetParam() == 2) {
    EXPECT_GT(std::min(on_first, on_second), 0.25 * all) << on_first << " and " << on_second << " packets";
  } else {
    EXPECT_EQ(on_second, 0);
  }
  a->deregister(from);
  b->deregister(into);
}

}  // namespace
}  // namespace tutti_test
