// SPDX-License-Identifier: Apache-2.0
#include "base/graveyard.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace tutti::core {
namespace {

TEST(Graveyard, KeepsWhatItIsGiven) {
  const auto watched = std::make_shared<int>(7);
  {
    std::vector<std::shared_ptr<int>> given{watched, watched};
    keep_for_ever(std::move(given), "a device may still read it");
    EXPECT_TRUE(given.empty());  // NOLINT(bugprone-use-after-move): it has moved
    keep_for_ever(std::make_unique<std::shared_ptr<int>>(watched), "a peer may");
  }
  EXPECT_EQ(watched.use_count(), 4);
}

}  // namespace
}  // namespace tutti::core
