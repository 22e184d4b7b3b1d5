// SPDX-License-Identifier: Apache-2.0
//
// Plugins that break a rule, and peers that go.
#include "../src/network.hpp"
#include "nccl_ranks.hpp"

namespace tutti_test {
namespace {

// Both connect with a fault, and both must hear of it.
std::pair<tutti_status, std::string> refused(const std::string& fault, uint64_t timeout_ns = 60'000'000'000) {
  use_fault(fault);
  Shape shape;
  shape.timeout_ns = timeout_ns;
  Rank a(0, shape), b(1, shape);
  tutti_status sa = TUTTI_AGAIN, sb = TUTTI_AGAIN;
  EXPECT_TRUE(drive({&a, &b}, [&] {
    if (sa == TUTTI_AGAIN) sa = a.connect(1);
    if (sb == TUTTI_AGAIN) sb = b.connect(0);
    return sa != TUTTI_AGAIN && sb != TUTTI_AGAIN;
  }));
  EXPECT_LT(sa, 0);
  EXPECT_LT(sb, 0);
  return {sa, a.error};
}

TEST(NcclFailure, ConnectingSaysWhichCallFailedWithThePluginsOwnWords) {
  const auto [status, text] = refused("listen-fails");
  EXPECT_EQ(status, TUTTI_SYSTEM);
  EXPECT_TRUE(says(text, "listen failed with ncclSystemError (2): no port is left on eth9")) << text;
  EXPECT_TRUE(says(refused("connect-fails").second, "connect failed with ncclRemoteError (6)"));
}

TEST(NcclFailure, AHandleThatIsTooLongIsNamed) {
  const auto [status, text] = refused("long-handle");
  EXPECT_EQ(status, TUTTI_SYSTEM);
  EXPECT_TRUE(says(text, "listen wrote more than the 128 bytes")) << text;
  EXPECT_TRUE(says(refused("no-listener").second, "without a listenComm"));
}

TEST(NcclFailure, AConnectionThatNeverComesEndsAtTheTimeout) {
  const auto [status, text] = refused("never-connects", 1);
  EXPECT_EQ(status, TUTTI_TIMEOUT);
  EXPECT_TRUE(says(text, "have returned no comm")) << text;
}

// A rank that is connected without a fault meets one later.
class NcclLater : public testing::Test {
 protected:
  void SetUp() override {
    use_fault("none");
    a = std::make_unique<Rank>(0);
    b = std::make_unique<Rank>(1);
    ASSERT_NO_FATAL_FAILURE(join(*a, *b));
  }
  // A message of `bytes` leaves rank 0 until one reports the other lost; what was logged or reported by then.
  std::string loss(const char* fault, uint64_t bytes) {
    choose_fault(fault);
    std::vector<unsigned char> out(bytes), in(bytes);
    EXPECT_EQ(b->receive(0, 0, in.data(), bytes, 1), TUTTI_OK);
    EXPECT_EQ(a->send(1, 0, out.data(), bytes, 2), TUTTI_OK);
    EXPECT_TRUE(drive({a.get(), b.get()}, [&] { return !a->failures.empty() && !b->failures.empty(); }));
    choose_fault("none");
    return a->failures[1] + "; " + b->failures[0];
  }
  std::unique_ptr<Rank> a, b;
};

TEST_F(NcclLater, ASendThatFails) { EXPECT_TRUE(says(loss("isend-fails", 8), "isend failed with ncclSystemError")); }
TEST_F(NcclLater, ARegistrationThatFails) {
  EXPECT_TRUE(says(loss("regmr-fails", 100'000), "regMr failed with ncclInternalError"));
}
TEST_F(NcclLater, ASizeThatCannotBe) {
  const std::string text = loss("size-of-room", 8);
  EXPECT_TRUE(says(text, "test reported 1048576 bytes for an irecv of")) << text;
}
TEST_F(NcclLater, ASizeThatWasNotSent) {
  const std::string text = loss("one-byte-less", 100'000);
  EXPECT_TRUE(says(text, "test reported 99999 bytes") && says(text, "of which 100000 were sent")) << text;
}

TEST(NcclFailure, ARequestThatIsNeverDoneIsNamedInTheLog) {
  auto& limit = tutti::nccl::Network::Patience::limit;
  const auto usual = std::exchange(limit, std::chrono::nanoseconds(0));
  choose_fault("completion-lost");  // of irecvs with room for 4095 bytes
  use_network(FAULTY, {{"TUTTI_NCCL_NET_EAGER_BYTES", "0"}});
  Rank a(0), b(1);
  ASSERT_NO_FATAL_FAILURE(join(a, b));
  std::vector<unsigned char> out(4095), in(4095);
  ASSERT_EQ(b.receive(0, 0, in.data(), in.size(), 1), TUTTI_OK);
  ASSERT_EQ(a.send(1, 0, out.data(), out.size(), 2), TUTTI_OK);
  EXPECT_TRUE(drive({&a, &b}, [] { return host().logged("test of an irecv of 4095 bytes has not reported it done"); }));
  limit = usual;
  choose_fault("none");
}

// The plugin ends all comms when one is closed with requests pending. An endpoint that is closed has receives of frames
// under way.
TEST(NcclFailure, AnEndpointThatIsClosedEndsNoOtherOnesComms) {
  use_fault("close-ends-all");
  Shape another;
  another.communicator = 8;
  Rank a(0), b(1), c(0, another), d(1, another);
  ASSERT_NO_FATAL_FAILURE(join(a, b));
  ASSERT_NO_FATAL_FAILURE(join(c, d));
  ASSERT_NO_FATAL_FAILURE(move(c, d, 0, 100'000));
  a.close();
  ASSERT_NO_FATAL_FAILURE(move(c, d, 0, 100'000));
  b.close();
  ASSERT_NO_FATAL_FAILURE(move(d, c, 0, 100'000));
  choose_fault("none");
}

// Nothing is sent or received, and irecv does not fail.
TEST_F(NcclLater, APeerThatOnlyAnIsendMissesIsLost) {
  choose_fault("isend-fails");
  EXPECT_TRUE(drive({a.get(), b.get()}, [&] { return !a->failures.empty() && !b->failures.empty(); }));
  choose_fault("none");
}

TEST_F(NcclLater, FailPeerAndAbortEndWhatIsPending) {
  uint64_t word = 0;
  ASSERT_EQ(a->receive(1, 0, &word, 8, 1), TUTTI_OK);
  ASSERT_EQ(b->receive(0, 0, &word, 8, 2), TUTTI_OK);
  EXPECT_EQ(table().fail_peer(a->endpoint, 1), TUTTI_OK);
  EXPECT_EQ(table().abort(b->endpoint), TUTTI_OK);
  ASSERT_TRUE(drive({a.get(), b.get()}, [&] { return a->has(1, TUTTI_PEER_FAILED) && b->has(2, TUTTI_ABORTED); }));
  EXPECT_TRUE(a->failures.empty()) << "the caller knows";
}

TEST_F(NcclLater, BytesThatAreNoPairMessageAreRefused) {
  Rank c(0);
  EXPECT_LT(c.receive_pair(1, "no message of this transport"), 0);
  EXPECT_TRUE(says(c.error, "same version of this plugin")) << c.error;
}

}  // namespace
}  // namespace tutti_test
