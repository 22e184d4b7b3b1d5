// SPDX-License-Identifier: Apache-2.0
//
// A failed path on adapters that keep no more than the verbs promise (model/adapters.hpp): what was acknowledged is
// taken in, however late its completion comes, and what cannot be known ends in a clear error.
#include "ib_ranks.hpp"
#include "model/adapters.hpp"

namespace tutti_test {
namespace {

constexpr uint64_t kMessages = 12, kSize = 100;
constexpr std::chrono::milliseconds kRealTimeLate{50};

class RealTimeDraining : public OverCables {
 protected:
  void SetUp() override {
    OverCables::SetUp();
    if (IsSkipped()) return;
    open_joined(2);
  }
  static void behave(const std::string& adapter, std::chrono::milliseconds late, bool tells_the_last = true) {
    model::change(adapter, [&](model::Manners& manners) {
      manners.receives_late = late;
      manners.holds_receives = true;
      manners.tells_the_last = tells_the_last;
    });
  }
  static void refuse_a_send() {
    model::change("rxe0", [](model::Manners& manners) { manners.refuses_a_send = true; });
  }
  // Messages from `from` to `to` over rail 0: acknowledged, but with no completion at `to`.
  void send_unseen(Rank& from, uint32_t peer, Rank& to, uint32_t self) {
    for (uint64_t i = 0; i < kMessages; ++i) {
      ASSERT_EQ(to.receive(self, 0, in.data() + i * kSize, kSize, i), TUTTI_OK) << to.error;
      ASSERT_EQ(from.send(peer, 0, out.data() + i * kSize, kSize, i), TUTTI_OK) << from.error;
    }
    const auto never = [] { return false; };
    drive({&from, &to}, never, std::chrono::milliseconds(300));
    EXPECT_FALSE(to.has(0)) << "its completion is held back";
  }
  // a's adapter refuses a message to b over rail 0; whether everything arrives all the same.
  bool survives() {
    refuse_a_send();
    EXPECT_EQ(b->receive(0, 0, last_in.data(), kSize, 100), TUTTI_OK) << b->error;
    EXPECT_EQ(a->send(1, 0, last_out.data(), kSize, 100), TUTTI_OK) << a->error;
    both([&] { return (a->has(100) && b->has(100)) || !a->failures.empty() || !b->failures.empty(); });
    both([&] {
      return !a->failures.empty() || !b->failures.empty() || (a->has(kMessages - 1) && b->has(kMessages - 1));
    });
    for (Rank* rank : {a.get(), b.get()})
      for (const auto& [peer, why] : rank->failures) ADD_FAILURE() << why;
    return in == out && last_in == last_out && host().logged("going on with the 1 left");
  }

  // Whether `rank` went by time, not by what its adapter said.
  static bool guessed(const std::string& rank) {
    return host().logged(rank + ": net-ib: rail rxe" + rank.back() + ":1: its adapter did not raise");
  }

  std::vector<unsigned char> out = pattern(kMessages * kSize, 1), in = std::vector<unsigned char>(kMessages * kSize);
  std::vector<unsigned char> last_out = pattern(kSize, 2), last_in = std::vector<unsigned char>(kSize);
};

TEST_F(RealTimeDraining, LateCompletionsCountAtTheEndThatSeesTheFailure) {
  behave("rxe0", kRealTimeLate);
  ASSERT_NO_FATAL_FAILURE(send_unseen(*b, 0, *a, 1));
  EXPECT_TRUE(survives());
  EXPECT_FALSE(guessed("rank 0"));
}

TEST_F(RealTimeDraining, LateCompletionsCountAtTheEndThatIsTold) {
  behave("rxe1", kRealTimeLate);
  ASSERT_NO_FATAL_FAILURE(send_unseen(*a, 1, *b, 0));
  EXPECT_TRUE(survives());
  EXPECT_FALSE(guessed("rank 1"));
}

TEST_F(RealTimeDraining, AnAdapterThatDoesNotTellTheLastReceiveIsGivenTime) {
  behave("rxe0", kRealTimeLate, false);
  ASSERT_NO_FATAL_FAILURE(send_unseen(*b, 0, *a, 1));
  EXPECT_TRUE(survives());
  EXPECT_TRUE(guessed("rank 0"));
}

// The frames were acknowledged, so their sender has them no longer.
TEST_F(RealTimeDraining, CompletionsThatNeverComeAreAClearError) {
  behave("rxe0", std::chrono::hours(1), false);
  ASSERT_NO_FATAL_FAILURE(send_unseen(*b, 0, *a, 1));
  refuse_a_send();
  ASSERT_EQ(a->send(1, 0, last_out.data(), kSize, 100), TUTTI_OK) << a->error;
  ASSERT_TRUE(both([&] { return b->failures.contains(0); }));
  EXPECT_NE(b->failures[0].find("frames that it had acknowledged"), std::string::npos) << b->failures[0];
}

TEST_F(RealTimeDraining, AnAdapterThatIsDeadIsAClearError) {
  model::change("rxe0", [](model::Manners& manners) { manners.is_dead = true; });
  refuse_a_send();
  ASSERT_EQ(a->send(1, 0, last_out.data(), kSize, 100), TUTTI_OK) << a->error;
  ASSERT_TRUE(both([&] { return a->failures.contains(1); }));
  EXPECT_NE(a->failures[1].find("within 2000 ms after its queue pair was stopped"), std::string::npos)
      << a->failures[1];
}

}  // namespace
}  // namespace tutti_test
