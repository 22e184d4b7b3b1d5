// SPDX-License-Identifier: Apache-2.0
//
// The library believes no completion that cannot be right.
#include "../../../tests/harness/faulty.hpp"
#include "../../../tests/harness/ranks.hpp"

namespace tutti::test {
namespace {

TEST(Completion, AReceiveThatTellsNoBytesIsNotTakenForAMessage) {
  run_ranks(2,
            [](Communicator& comm) {
              std::vector<int32_t> data(1000, 1);
              comm.all_reduce<int32_t>(data, data, Op::sum);
              EXPECT_EQ(data[999], 2);
              comm.barrier();
              faulty::hides_bytes = true;
              const Failed failed = failure_of([&] { comm.all_reduce<int32_t>(data, data, Op::sum); });
              EXPECT_EQ(failed.status, TUTTI_MISMATCH) << failed.text;
            },
            {"faulty"});
  faulty::hides_bytes = false;
}

// A transport may begin in progress what has been posted before it (transport.h).
TEST(Completion, NoCallReturnsBetweenAPostAndTheNextProgress) {
  run_ranks(2,
            [](Communicator& comm) {
              const auto check = [](const char* after) { ASSERT_EQ(faulty::not_begun, 0u) << "after " << after; };
              const uint32_t peer = 1 - comm.rank();
              std::vector<int32_t> out(100'000, 1), in(out.size());
              for (int i = 0; i < 20; ++i) {
                Request received = comm.async().receive<int32_t>(in, peer);
                check("receive");
                Request sent = comm.async().send<int32_t>(out, peer);
                check("send");
                while (!received.test()) check("a test of receive");
                check("the last test of receive");
                while (!sent.test()) check("a test of send");
                Request reduced = comm.async().all_reduce<int32_t>(out, in, Op::sum);
                check("all_reduce");
                while (!reduced.test()) check("a test of all_reduce");
                comm.all_reduce<int32_t>(out, in, Op::sum);
                check("a blocking all_reduce");
              }
              EXPECT_EQ(in.back(), 2);
            },
            {"faulty"});
}

// A transport may notice that a peer closes before this rank has heard why: here rank 2 aborts only then.
TEST(Completion, AReceiveWhosePeerIsGoneNamesTheCause) {
  std::atomic<uint32_t> beyond{0};  // the barrier, of which nobody is to lose a receive
  run_ranks(3,
            [&](Communicator& comm) {
              comm.barrier();
              for (++beyond; beyond < 3;) std::this_thread::yield();
              std::vector<int32_t> data(1000, 1);
              if (comm.rank() == 2) {
                while (!faulty::has_lost) std::this_thread::yield();
                comm.abort("because of the test");
                return;
              }
              faulty::loses_peers = true;
              if (comm.rank() == 1) {
                failure_of([&] { comm.send<int32_t>(data, 0); });  // it may be over before the abort
                return;
              }
              const Failed failed = failure_of([&] { comm.receive<int32_t>(data, 1); });
              EXPECT_EQ(failed.status, TUTTI_ABORTED) << failed.text;
              EXPECT_NE(failed.text.find("rank 2"), std::string::npos) << failed.text;
              EXPECT_NE(failed.text.find("because of the test"), std::string::npos) << failed.text;
            },
            {"faulty"});
  faulty::loses_peers = false;
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  tutti::test::faulty::load();
  return RUN_ALL_TESTS();
}
