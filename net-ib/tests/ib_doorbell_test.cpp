// SPDX-License-Identifier: Apache-2.0
//
// How many doorbells transfers take: one for all that are posted between two calls of progress.
#include "ib_ranks.hpp"
#include "model/adapters.hpp"

namespace tutti_test {
namespace {

constexpr uint64_t kMessages = 8, kSize = 100;

class Doorbells : public OverCables {
 protected:
  void SetUp() override {
    OverCables::SetUp();
    if (IsSkipped()) return;
    ASSERT_NO_FATAL_FAILURE(open_joined(1));
    ASSERT_NO_FATAL_FAILURE(move(*a, *b, 0, kSize));
    for (uint64_t i = 0; i < kMessages; ++i)
      ASSERT_EQ(b->receive(0, i % 4, in.data() + i * kSize, kSize, i), TUTTI_OK) << b->error;
    before = model::counts("rxe0").doorbells;
  }
  void send(uint64_t i, uint16_t flags = 0) {
    ASSERT_EQ(a->send(1, i % 4, out.data() + i * kSize, kSize, i, flags), TUTTI_OK) << a->error;
  }
  uint64_t rung() const { return model::counts("rxe0").doorbells - before; }
  void all_arrive() {
    EXPECT_TRUE(both([&] {
      for (uint64_t i = 0; i < kMessages; ++i)
        if (!b->has(i)) return false;
      return true;
    }));
    EXPECT_EQ(in, out);
  }

  std::vector<unsigned char> out = pattern(kMessages * kSize, 1), in = std::vector<unsigned char>(kMessages * kSize);
  uint64_t before = 0;
};

TEST_F(Doorbells, TransfersOfOneTurnLeaveWithOne) {
  for (uint64_t i = 0; i < kMessages; ++i) send(i);
  EXPECT_EQ(rung(), 0u);
  a->progress();
  EXPECT_EQ(rung(), 1u);
  all_arrive();
}

TEST_F(Doorbells, AnInlineSendLeavesAtOnceWithThoseBeforeIt) {
  for (uint64_t i = 0; i + 1 < kMessages; ++i) send(i);
  send(kMessages - 1, TUTTI_TRANSFER_INLINE);
  EXPECT_EQ(rung(), 1u);
  all_arrive();
}

// progress has no room for all completions, and does nothing else then.
TEST_F(Doorbells, ACompletedSendHasLeft) {
  for (uint64_t i = 0; i < kMessages; ++i) send(i);
  tutti_completion one;
  uint32_t n = 0;
  ASSERT_EQ(table().progress(a->endpoint, &one, 1, &n), TUTTI_OK);
  EXPECT_EQ(n, 1u);
  EXPECT_EQ(rung(), 1u);
}

}  // namespace
}  // namespace tutti_test
