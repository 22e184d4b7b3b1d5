// SPDX-License-Identifier: Apache-2.0
#include "base/graveyard.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

namespace {

bool no_memory = false;

}  // namespace

void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return no_memory ? nullptr : ::operator new(bytes);
}

namespace tutti::core {
namespace {

using Shared = std::vector<std::shared_ptr<int>>;

TEST(Graveyard, KeepsWhatItIsGiven) {
  const auto watched = std::make_shared<int>(7);
  keep_for_ever(std::make_unique<Shared>(2, watched), "a device may still read it");
  keep_for_ever(std::make_unique<std::shared_ptr<int>>(watched), "a peer may");
  keep_for_ever(std::unique_ptr<Shared>(), "there is none");
  EXPECT_EQ(watched.use_count(), 4);
}

TEST(Graveyard, KeepsItWithoutMemory) {
  const auto watched = std::make_shared<int>(7);
  auto given = std::make_unique<Shared>(2, watched);
  static const Shared* reachable = nullptr;
  reachable = given.get();
  no_memory = true;
  keep_for_ever(std::move(given), "a device may still read it");
  no_memory = false;
  EXPECT_EQ(watched.use_count(), 3);
  EXPECT_EQ(reachable->size(), 2u);
}

}  // namespace
}  // namespace tutti::core
