// SPDX-License-Identifier: Apache-2.0
//
// How many doorbells transfers take: one for all that are posted between two calls of progress.
#include "ib_ranks.hpp"
#include "model/adapters.hpp"

namespace tutti_test {
namespace {

constexpr uint64_t kPosts = 8, kPostBytes = 100;

class Doorbells : public OverCables {
 protected:
  void SetUp() override {
    OverCables::SetUp();
    if (IsSkipped()) return;
    ASSERT_NO_FATAL_FAILURE(open_joined(1));
    ASSERT_NO_FATAL_FAILURE(move(*a, *b, 0, kPostBytes));
    for (uint64_t i = 0; i < kPosts; ++i)
      ASSERT_EQ(b->receive(0, i % 4, in.data() + i * kPostBytes, kPostBytes, i), TUTTI_OK) << b->error;
    before = model::counts("rxe0").doorbells;
  }
  void send(uint64_t i, uint16_t flags = 0) {
    ASSERT_EQ(a->send(1, i % 4, out.data() + i * kPostBytes, kPostBytes, i, flags), TUTTI_OK) << a->error;
  }
  uint64_t rung() const { return model::counts("rxe0").doorbells - before; }
  void all_arrive() {
    EXPECT_TRUE(both([&] {
      for (uint64_t i = 0; i < kPosts; ++i)
        if (!b->has(i)) return false;
      return true;
    }));
    EXPECT_EQ(in, out);
  }

  std::vector<unsigned char> out = pattern(kPosts * kPostBytes, 1);
  std::vector<unsigned char> in = std::vector<unsigned char>(out.size());
  uint64_t before = 0;
};

TEST_F(Doorbells, TransfersOfOneTurnLeaveWithOne) {
  for (uint64_t i = 0; i < kPosts; ++i) send(i);
  EXPECT_EQ(rung(), 0u);
  a->progress();
  EXPECT_EQ(rung(), 1u);
  all_arrive();
}

TEST_F(Doorbells, AnInlineSendLeavesAtOnceWithThoseBeforeIt) {
  for (uint64_t i = 0; i + 1 < kPosts; ++i) send(i);
  send(kPosts - 1, TUTTI_TRANSFER_INLINE);
  EXPECT_EQ(rung(), 1u);
  all_arrive();
}

// progress has no room for all completions, and does nothing else then.
TEST_F(Doorbells, ACompletedSendHasLeft) {
  for (uint64_t i = 0; i < kPosts; ++i) send(i);
  tutti_completion one;
  uint32_t n = 0;
  ASSERT_EQ(table().progress(a->endpoint, &one, 1, &n), TUTTI_OK);
  EXPECT_EQ(n, 1u);
  EXPECT_EQ(rung(), 1u);
}

}  // namespace
}  // namespace tutti_test
