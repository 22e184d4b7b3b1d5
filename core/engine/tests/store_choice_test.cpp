// SPDX-License-Identifier: Apache-2.0
#include "engine/fabric/store_choice.hpp"

#include <gtest/gtest.h>

namespace tutti::core {
namespace {

constexpr uint64_t bytes = 65536;

// Copies of which those by each kind take so many ticks; how many went past the caches.
uint32_t past_of(StoreChoice& stores, uint32_t copies, uint64_t ordinary, uint64_t past) {
  uint32_t n = 0;
  for (uint32_t k = 0; k < copies; ++k) {
    const bool goes_past = stores.next(bytes);
    n += goes_past;
    stores.report(goes_past, bytes, goes_past ? past : ordinary);
  }
  return n;
}

TEST(StoreChoice, TakesTheKindThatIsSurelyFaster) {
  StoreChoice far, near, alike;
  EXPECT_EQ(past_of(far, 640, 40000, 15000), 640u - 1 - 9);
  EXPECT_EQ(past_of(near, 640, 10000, 15000), 10u);
  EXPECT_EQ(past_of(alike, 640, 10000, 7000), 10u) << "the receiver pays for it";
}

// A virtual machine's cores move apart and together again.
TEST(StoreChoice, ChangesWithTheCores) {
  StoreChoice stores;
  past_of(stores, 640, 10000, 15000);
  past_of(stores, 64, 40000, 15000);
  EXPECT_GT(past_of(stores, 640, 40000, 15000), 600u);
  past_of(stores, 640, 10000, 15000);
  EXPECT_LT(past_of(stores, 640, 10000, 15000), 40u);
}

// One copy during which the thread lost its core decides nothing.
TEST(StoreChoice, OutlivesALostCore) {
  StoreChoice stores;
  past_of(stores, 640, 10000, 12000);
  past_of(stores, 1, 4000000, 12000);
  EXPECT_LE(past_of(stores, 128, 10000, 12000), 2u);
}

TEST(StoreChoice, LeavesSmallCopiesAlone) {
  StoreChoice stores;
  past_of(stores, 640, 40000, 15000);
  EXPECT_TRUE(stores.next(StoreChoice::smallest));
  EXPECT_FALSE(stores.next(StoreChoice::smallest - 1));
}

}  // namespace
}  // namespace tutti::core
