// SPDX-License-Identifier: Apache-2.0
//
// The transport through its table, as the core uses it. This stays right for a transport that reaches further than the
// template: a connection may take time, and nothing here expects an answer within one call. The conformance suite tests
// the whole contract.
#include <tutti/sdk/transport_ranks.hpp>

extern "C" const tutti_plugin_entry_table tutti_plugin_entry_template;
const tutti_plugin_entry_table& tutti_test::plugin_under_test() { return tutti_plugin_entry_template; }

using namespace tutti_test;

// Two ranks that are connected.
class Transport : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(join(a, b)); }
  Rank a{0}, b{1};
};

TEST_F(Transport, DescribesItself) {
  EXPECT_EQ(table().reserved, 0u);
  EXPECT_GE(caps().receive_depth, 2u);
  EXPECT_GE(caps().fragment_bytes, 4096u);
  EXPECT_GE(caps().control_bytes, TUTTI_CONTROL_BYTES);
}

TEST_F(Transport, MessagesOfEverySizePassOnEveryLaneBothWays) {
  for (uint32_t lane = 0; lane < Shape().lanes; ++lane)
    for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, caps().inline_bytes + 1, caps().fragment_bytes}) {
      ASSERT_NO_FATAL_FAILURE(move(a, b, lane, bytes));
      ASSERT_NO_FATAL_FAILURE(move(b, a, lane, bytes));
    }
  ASSERT_NO_FATAL_FAILURE(move(a, b, 0, caps().inline_bytes, TUTTI_TRANSFER_INLINE));
  EXPECT_EQ(a.send(1, 0, nullptr, caps().fragment_bytes + 1, 1), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(a.send(1, Shape().lanes, nullptr, 0, 1), TUTTI_INVALID_ARGUMENT);
}

TEST_F(Transport, AMessageOfAnotherMarkEndsItsReceive) {
  if (!(caps().flags & TUTTI_TRANSPORT_MARKS)) GTEST_SKIP() << "its messages carry no marks";
  uint64_t word = 42, got = 0;
  ASSERT_EQ(b.transfer_region(TUTTI_TRANSFER_RECV, 0, 0, &got, 8, 1, nullptr, 7), TUTTI_OK);
  ASSERT_EQ(a.transfer_region(TUTTI_TRANSFER_SEND, 1, 0, &word, 8, 1, nullptr, 8), TUTTI_OK);
  ASSERT_TRUE(drive({&a, &b}, [&] { return b.has(1, TUTTI_MISMATCH) && a.has(1); }));
  EXPECT_EQ(b.ended[1].mark, 8u) << "the mark that came";
}

TEST_F(Transport, ALaneWithoutReceivesHoldsBackItsSenderAndNoOtherLane) {
  const std::string message(4096, 'x');
  uint64_t sent = 0;
  while (sent < 1 << 16 && a.send(1, 0, message.data(), message.size(), sent) == TUTTI_OK) ++sent;
  ASSERT_LT(sent, 1u << 16) << "nothing holds the sender back";
  ASSERT_NO_FATAL_FAILURE(move(a, b, 1, 4096));
}

TEST_F(Transport, ControlMessagesNeedNoReceiveAndKeepTheirOrder) {
  std::vector<std::string> sent;
  for (size_t k = 0; k < 100; ++k) {
    sent.push_back(std::string(k % 2 ? caps().control_bytes : 0, static_cast<char>(k)));
    ASSERT_TRUE(drive({&a, &b}, [&] { return table().send_control(a.link(1), sent[k].data(), sent[k].size()) == 0; }));
  }
  ASSERT_TRUE(drive({&a, &b}, [&] { return b.controls.size() == sent.size(); }));
  EXPECT_EQ(b.controls, sent);
  const std::string longer(caps().control_bytes + 1, 'x');
  EXPECT_EQ(table().send_control(a.link(1), longer.data(), longer.size()), TUTTI_INVALID_ARGUMENT);
}

TEST_F(Transport, APeerThatClosesIsLostOnlyIfSomethingIsExpectedOfIt) {
  uint64_t word = 42, got = 0, nothing = 0;
  ASSERT_EQ(b.send(0, 0, &word, 8, 1), TUTTI_OK);
  ASSERT_TRUE(drive({&b}, [&] { return b.has(1); }));
  b.close();
  EXPECT_FALSE(drive(
      {&a}, [&] { return !a.failures.empty(); }, std::chrono::milliseconds(200)));
  ASSERT_EQ(a.receive(1, 0, &got, 8, 2), TUTTI_OK);
  ASSERT_TRUE(drive({&a}, [&] { return a.has(2); })) << "what was sent before does not arrive";
  EXPECT_EQ(got, 42u);
  ASSERT_EQ(a.receive(1, 1, &nothing, 8, 3), TUTTI_OK);
  ASSERT_TRUE(drive({&a}, [&] {
    if (!a.failures.empty()) return a.has(3, TUTTI_PEER_FAILED);
    EXPECT_GE(a.send(1, 2, nullptr, 0, 100 + a.order.size()), 0) << "an error before the record: " << a.error;
    return false;
  }));
  EXPECT_NE(a.failures[1], "");
  EXPECT_EQ(a.send(1, 0, &word, 8, 4), TUTTI_PEER_FAILED);
  EXPECT_EQ(table().send_control(a.link(1), "x", 1), TUTTI_PEER_FAILED);
  EXPECT_EQ(a.connect(1), TUTTI_PEER_FAILED);
}

TEST_F(Transport, FailPeerAndAbortEndWhatIsPending) {
  uint64_t word = 0;
  ASSERT_EQ(a.receive(1, 0, &word, 8, 1), TUTTI_OK);
  ASSERT_EQ(b.receive(0, 0, &word, 8, 2), TUTTI_OK);
  EXPECT_EQ(table().fail_peer(a.endpoint, 1), TUTTI_OK);
  EXPECT_EQ(table().abort(b.endpoint), TUTTI_OK);
  ASSERT_TRUE(drive({&a, &b}, [&] { return a.has(1, TUTTI_PEER_FAILED) && b.has(2, TUTTI_ABORTED); }));
  EXPECT_EQ(a.receive(1, 0, &word, 8, 3), TUTTI_PEER_FAILED);
  EXPECT_EQ(b.receive(0, 0, &word, 8, 3), TUTTI_ABORTED);
  EXPECT_TRUE(a.failures.empty()) << "the caller knows";
}

TEST(Connecting, APairMessageThatIsNotUnderstoodIsAnError) {
  Rank a(0);
  EXPECT_LT(a.receive_pair(1, "no message of this transport"), 0);
  EXPECT_NE(a.error, "");
}
