// SPDX-License-Identifier: Apache-2.0
//
// Messages: order, sizes, back-pressure, view against post, control messages.
#include "ranks.hpp"

namespace {
using ranks::As;
using ranks::Board;
using ranks::Rank;

class Transfer : public ::testing::TestWithParam<As> {};
INSTANTIATE_TEST_SUITE_P(, Transfer, ::testing::Values(As::kThreads, As::kProcesses), [](const auto& which) {
  return which.param == As::kThreads ? std::string("threads") : std::string("processes");
});

const std::vector<uint64_t> kSizes = {0, 1, 8, 47, 48, 49, 64, 100, 1023, 1024, 4097, (64 << 10) - 1, 64 << 10};

TEST(Query, SaysWhatIsTrue) {
  tutti_transport_caps caps{};
  caps.struct_size = sizeof caps;
  const tutti_transport* t = ranks::transport();
  tutti_domain* domain = nullptr;
  tutti_domain_config config{};
  config.struct_size = sizeof config;
  ASSERT_EQ(t->open_domain(t->self, &config, &domain), TUTTI_OK);
  ASSERT_EQ(t->query(domain, &caps), TUTTI_OK);
  t->close_domain(domain);
  EXPECT_STREQ(t->name, "shm");
  EXPECT_EQ(caps.reach, uint32_t{TUTTI_REACH_HOST});
  EXPECT_EQ(caps.inline_bytes, 48u);
  EXPECT_EQ(caps.fragment_bytes, 65536u);
  EXPECT_GE(caps.receive_depth, 2u);
  EXPECT_EQ(caps.control_bytes, 256u);
  EXPECT_EQ(t->get_interface(t->self, "tutti.nothing/1"), nullptr);
}

TEST(Query, RefusesBadSettings) {
  const tutti_transport* t = ranks::transport();
  for (const auto& [key, value] : std::vector<std::pair<std::string, std::string>>{{"TUTTI_SHM_SLOT_BYTES", "100"},
                                                                                   {"TUTTI_SHM_SLOT_BYTES", "4097"},
                                                                                   {"TUTTI_SHM_SLOTS", "9"},
                                                                                   {"TUTTI_SHM_SLOTS", ""},
                                                                                   {"TUTTI_SHM_STREAM_BYTES", "many"},
                                                                                   {"TUTTI_SHM_TEST_FIRST", "4294967280"},
                                                                                   {"TUTTI_SHM_DIRECT_COPY", "2"}}) {
    const ranks::Setting setting(key, value);
    tutti_domain* domain = nullptr;
    tutti_domain_config config{};
    config.struct_size = sizeof config;
    EXPECT_EQ(t->open_domain(t->self, &config, &domain), TUTTI_INVALID_ARGUMENT) << key << "=" << value;
    EXPECT_NE(ranks::last_error().find(key), std::string::npos) << ranks::last_error();
  }
}

// Both ranks send and receive every size on every lane by post; the completions of a lane come in order.
TEST_P(Transfer, PostsOfAllSizesOnManyLanesKeepTheirOrder) {
  ranks::run(GetParam(), 2, [](Board& board, uint32_t rank) {
    constexpr uint32_t kLanes = 8, kRounds = 3;
    Rank r(board, rank, 2, {.lanes = kLanes});
    r.connect_all();
    tutti_link* link = r.links[1 - rank];
    const uint64_t messages = kSizes.size() * kRounds;
    std::vector<std::vector<uint8_t>> in(kLanes * messages), out(kLanes * messages);
    for (uint64_t m = 0; m < messages; m++)
      for (uint32_t lane = 0; lane < kLanes; lane++) {
        const uint64_t bytes = kSizes[m % kSizes.size()], at = lane * messages + m;
        out[at].resize(bytes + 1);
        in[at].resize(bytes + 1, 0xee);
        ranks::fill(out[at].data(), bytes, m + rank, lane);
        r.post_soon(Rank::transfer(link, lane, TUTTI_TRANSFER_RECV, in[at].data(), bytes, at));
        r.post_soon(Rank::transfer(link, lane, TUTTI_TRANSFER_SEND, out[at].data(), bytes, at + 1'000'000));
      }
    r.until([&] { return r.done.size() == 2 * kLanes * messages; });
    std::map<uint64_t, uint64_t> next;
    for (const auto& c : r.done) {
      REQUIRE(c.status == TUTTI_OK);
      const uint64_t queue = c.cookie / messages * messages;  // sends are numbered from 1,000,000
      if (c.cookie < 1'000'000) REQUIRE(c.cookie - queue == next[queue]++);
    }
    for (uint64_t m = 0; m < messages; m++)
      for (uint32_t lane = 0; lane < kLanes; lane++) {
        const uint64_t bytes = kSizes[m % kSizes.size()], at = lane * messages + m;
        REQUIRE(ranks::matches(in[at].data(), bytes, m + 1 - rank, lane));
        REQUIRE(in[at][bytes] == 0xee);
      }
    r.meet();
  });
}

// View at one end, post at the other, in both combinations and INLINE among them.
TEST_P(Transfer, ViewMeetsPost) {
  ranks::run(GetParam(), 2, [](Board& board, uint32_t rank) {
    Rank r(board, rank, 2, {});
    r.connect_all();
    tutti_link* link = r.links[1 - rank];
    std::vector<uint8_t> buffer(64 << 10);
    for (uint64_t m = 0; m < 10 * kSizes.size(); m++) {
      const uint64_t size = kSizes[m % kSizes.size()];
      const bool by_view = m / kSizes.size() % 2 == 0;
      if (rank == 0 && by_view) {
        void* room = r.reserve(1, 2, size);
        REQUIRE(r.v->try_reserve(link, 2, size) == room);
        REQUIRE(size < 64 || reinterpret_cast<uintptr_t>(room) % 64 == 0);
        ranks::fill(room, size, m, 2);
        r.v->commit(link, 2, size);
      } else if (rank == 0) {
        ranks::fill(buffer.data(), size, m, 2);
        if (size <= 48) {
          r.post_soon(Rank::transfer(link, 2, TUTTI_TRANSFER_SEND, buffer.data(), size, 0, TUTTI_TRANSFER_INLINE));
        } else {
          r.done.clear();
          r.post_soon(Rank::transfer(link, 2, TUTTI_TRANSFER_SEND, buffer.data(), size, m));
          r.until([&] { return r.done.size() == 1; });
        }
      } else if (m % 3 == 0) {
        r.done.clear();
        r.post_soon(Rank::transfer(link, 2, TUTTI_TRANSFER_RECV, buffer.data(), size, m));
        r.until([&] { return r.done.size() == 1; });
        REQUIRE(r.done[0].cookie == m && r.done[0].status == TUTTI_OK && r.done[0].bytes == size);
        REQUIRE(ranks::matches(buffer.data(), size, m, 2));
      } else {
        uint64_t bytes = 99, again = 99;
        const void* message = r.receive(0, 2, bytes);
        REQUIRE(bytes == size && ranks::matches(message, size, m, 2));
        REQUIRE(r.v->try_receive(link, 2, &again) == message && again == size);
        r.v->release(link, 2);
      }
    }
    r.meet();
    REQUIRE(r.failed.empty());
  });
}

TEST_P(Transfer, ViewOrMorePostsThanRoomAreRefusedThenDrained) {
  ranks::run(GetParam(), 2, [](Board& board, uint32_t rank) {
    Rank r(board, rank, 2, {});
    r.connect_all();
    tutti_link* link = r.links[1 - rank];
    std::vector<uint8_t> big(64 << 10);
    // Lane 0 by post, lane 1 by view, lane 2 INLINE; lane 3 stays free and works all the time.
    uint64_t posted = 0, committed = 0, inlined = 0;
    if (rank == 0) {
      while (r.post(Rank::transfer(link, 0, TUTTI_TRANSFER_SEND, big.data(), big.size(), posted))) posted++;
      while (void* room = r.v->try_reserve(link, 1, 4096)) {
        ranks::fill(room, 4096, committed++, 1);
        r.v->commit(link, 1, 4096);
      }
      while (r.post(Rank::transfer(link, 2, TUTTI_TRANSFER_SEND, &inlined, 8, 0, TUTTI_TRANSFER_INLINE))) inlined++;
      REQUIRE(posted > 4 && posted < 200 && committed == 4 && inlined == 8);
      board.word[0] = static_cast<uint32_t>(posted);
      void* room = r.reserve(1, 3, 5);
      std::memcpy(room, "hello", 5);
      r.v->commit(link, 3, 5);
      r.meet();
      r.until([&] { return r.done.size() == posted; });
      for (uint64_t i = 0; i < posted; i++) REQUIRE(r.done[i].cookie == i && r.done[i].status == TUTTI_OK);
      r.meet();
      REQUIRE(r.v->try_reserve(link, 1, 4096) != nullptr);
      REQUIRE(r.post(Rank::transfer(link, 2, TUTTI_TRANSFER_SEND, &inlined, 8, 0, TUTTI_TRANSFER_INLINE)));
      r.meet();
    } else {
      r.meet();
      uint64_t bytes = 0;
      REQUIRE(std::memcmp(r.receive(0, 3, bytes), "hello", 5) == 0 && bytes == 5);
      for (uint64_t i = 0; i < board.word[0]; i++) {
        REQUIRE(r.receive(0, 0, bytes) && bytes == big.size());
        r.v->release(link, 0);
      }
      for (uint64_t i = 0; i < 4; i++) {
        REQUIRE(ranks::matches(r.receive(0, 1, bytes), 4096, i, 1) && bytes == 4096);
        r.v->release(link, 1);
      }
      for (uint64_t i = 0; i < 8; i++) {
        uint64_t value;
        std::memcpy(&value, r.receive(0, 2, bytes), 8);
        REQUIRE(value == i && bytes == 8);
        r.v->release(link, 2);
      }
      REQUIRE(r.v->try_receive(link, 2, &bytes) == nullptr);
      r.meet();
      r.meet();
    }
  });
}

TEST_P(Transfer, ReceivesUpToTheDepthAreTakenAndSizesMustBeEqual) {
  ranks::run(GetParam(), 2, [](Board& board, uint32_t rank) {
    Rank r(board, rank, 2, {});
    r.connect_all();
    tutti_link* link = r.links[1 - rank];
    tutti_transport_caps caps{};
    caps.struct_size = sizeof caps;
    r.t->query(r.domain, &caps);
    std::vector<uint64_t> values(caps.receive_depth + 1);
    if (rank == 1)
      for (uint32_t lane = 0; lane < 4; lane++)
        for (uint32_t i = 0; i <= caps.receive_depth; i++)
          REQUIRE(r.post(Rank::transfer(link, lane, TUTTI_TRANSFER_RECV, &values[i], 8, i)) ==
                  (i < caps.receive_depth));
    r.meet();
    for (uint32_t i = 0; rank == 0 && i < caps.receive_depth; i++)
      for (uint32_t lane = 0; lane < 4; lane++) {
        uint64_t value = i;  // the very first message of lane 3 is too short
        r.post_soon(Rank::transfer(link, lane, TUTTI_TRANSFER_SEND, &value, i == 0 && lane == 3 ? 7 : 8, 0,
                                   TUTTI_TRANSFER_INLINE));
      }
    if (rank == 1) {
      r.until([&] { return r.done.size() == 4 * caps.receive_depth; });
      uint32_t mismatches = 0;
      for (const auto& c : r.done) {
        mismatches += c.status == TUTTI_MISMATCH;
        REQUIRE(c.status == TUTTI_OK || (c.cookie == 0 && c.bytes == 7));
      }
      REQUIRE(mismatches == 1);
    }
    r.meet();
  });
}

TEST_P(Transfer, RefusesTransfersThatCanNeverBe) {
  ranks::run(GetParam(), 2, [](Board& board, uint32_t rank) {
    Rank r(board, rank, 2, {});
    r.connect_all();
    tutti_link* link = r.links[1 - rank];
    char data[64];
    const auto bad = [&](tutti_transfer x) { return r.post_status(x) < 0; };
    REQUIRE(bad(Rank::transfer(nullptr, 0, TUTTI_TRANSFER_SEND, data, 8, 0)));
    REQUIRE(bad(Rank::transfer(link, 4, TUTTI_TRANSFER_SEND, data, 8, 0)));
    REQUIRE(bad(Rank::transfer(link, 0, 3, data, 8, 0)));
    REQUIRE(bad(Rank::transfer(link, 0, TUTTI_TRANSFER_SEND, data, 65537, 0)));
    REQUIRE(bad(Rank::transfer(link, 0, TUTTI_TRANSFER_SEND, nullptr, 1, 0)));
    REQUIRE(bad(Rank::transfer(link, 0, TUTTI_TRANSFER_SEND, data, 49, 0, TUTTI_TRANSFER_INLINE)));
    REQUIRE(bad(Rank::transfer(link, 0, TUTTI_TRANSFER_RECV, data, 8, 0, TUTTI_TRANSFER_INLINE)));
    REQUIRE(bad(Rank::transfer(link, 0, TUTTI_TRANSFER_SEND, data, 8, 0, 2)));
    REQUIRE(r.post(Rank::transfer(link, 0, TUTTI_TRANSFER_RECV, data, 8, 0)));
    REQUIRE(r.post_status(Rank::transfer(link, 9, TUTTI_TRANSFER_RECV, data, 8, 0)) == TUTTI_INVALID_ARGUMENT);
    REQUIRE(r.v->try_reserve(link, 0, 65537) == nullptr && r.v->try_reserve(link, 4, 8) == nullptr);
    r.meet();
  });
}

TEST_P(Transfer, ControlMessagesComeInOrderAndNeedNoReceive) {
  ranks::run(GetParam(), 3, [](Board& board, uint32_t rank) {
    Rank r(board, rank, 3, {});
    r.connect_all();
    constexpr uint32_t kMessages = 300;
    uint32_t refused = 0;
    for (uint32_t i = 0; i < kMessages; i++)
      for (uint32_t peer = 0; peer < 3; peer++) {
        if (peer == rank) continue;
        std::string message(i % 257, static_cast<char>('a' + rank));
        if (i % 257 >= 4) std::memcpy(message.data(), &i, 4);
        tutti_status status;
        while ((status = r.t->send_control(r.links[peer], message.data(), message.size())) == TUTTI_AGAIN) {
          refused++;
          r.progress();
          sched_yield();
        }
        REQUIRE(status == TUTTI_OK);
      }
    r.until([&] { return r.control.size() == 2 * kMessages; });
    std::map<uint32_t, uint32_t> next;
    for (const auto& [peer, text] : r.control) {
      const uint32_t i = next[peer]++;
      std::string expected(i % 257, static_cast<char>('a' + peer));
      if (i % 257 >= 4) std::memcpy(expected.data(), &i, 4);
      REQUIRE(text == expected);
    }
    REQUIRE(r.t->send_control(r.links[(rank + 1) % 3], std::string(257, 'x').data(), 257) == TUTTI_INVALID_ARGUMENT);
    r.meet();
  });
}

// Messages committed before close still arrive.
TEST_P(Transfer, MessagesOutliveTheirSendersEndpoint) {
  ranks::run(GetParam(), 2, [](Board& board, uint32_t rank) {
    Rank r(board, rank, 2, {});
    r.connect_all();
    tutti_link* link = r.links[1 - rank];
    uint64_t bytes = 0;
    if (rank == 0) {
      for (uint64_t i = 0; i < 3; i++) {
        ranks::fill(r.reserve(1, 0, 5000), 5000, i, 0);
        r.v->commit(link, 0, 5000);
      }
      r.t->close_endpoint(std::exchange(r.endpoint, nullptr));
      r.meet();
    } else {
      r.meet();
      for (int i = 0; i < 3000; i++) r.progress();  // notices the end, and says nothing: nothing is missing
      REQUIRE(r.failed.empty());
      std::vector<uint8_t> buffer(5000);
      REQUIRE(r.post(Rank::transfer(link, 0, TUTTI_TRANSFER_RECV, buffer.data(), 5000, 1)));
      r.until([&] { return r.done.size() == 1; });
      REQUIRE(r.done[0].status == TUTTI_OK && ranks::matches(buffer.data(), 5000, 0, 0));
      for (uint64_t i = 1; i < 3; i++) {
        REQUIRE(ranks::matches(r.receive(0, 0, bytes), 5000, i, 0));
        r.v->release(link, 0);
      }
      REQUIRE(r.failed.empty());
      REQUIRE(r.v->try_receive(link, 0, &bytes) == nullptr);  // now something is missing
      r.until([&] { return r.failed.size() == 1; });
      REQUIRE(r.failed[0].second.find("closed its endpoint") != std::string::npos);
      REQUIRE(r.post_status(Rank::transfer(link, 0, TUTTI_TRANSFER_RECV, buffer.data(), 8, 0)) == TUTTI_PEER_FAILED);
    }
  });
}

}  // namespace
