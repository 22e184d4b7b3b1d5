// SPDX-License-Identifier: Apache-2.0
//
// The scratch memory of many communicators: parts of few files, none of which is another's.
#include "engine/fabric/scratch.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <vector>

#include "engine/fabric/memory.hpp"

namespace tutti::core {
namespace {

size_t descriptors() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}
bool is_registered(const std::byte* address, uint64_t bytes) { return Memory::Lookup().holds(address, bytes); }

TEST(Scratch, ManyPartsLieInFewFiles) {
  const size_t before = descriptors();
  Scratch scratch;
  std::vector<std::byte*> parts;
  for (size_t n = 0; n < 1000; ++n) {
    const uint64_t bytes = 1 + n * 37 % 60'000;
    parts.push_back(scratch.take(bytes));
    ASSERT_EQ(reinterpret_cast<uintptr_t>(parts.back()) % 4096, 0u);
    ASSERT_TRUE(is_registered(parts.back(), bytes));
    std::memset(parts.back(), static_cast<int>(n % 251), bytes);
  }
  EXPECT_LE(descriptors(), before + 16) << "each file is as large as all before it";
  for (size_t n = 0; n < parts.size(); ++n)
    for (const uint64_t at : {uint64_t{0}, n * 37 % 60'000})
      ASSERT_EQ(parts[n][at], static_cast<std::byte>(n % 251)) << "part " << n << " byte " << at;
  for (std::byte* part : parts) scratch.give_back(part);
  EXPECT_EQ(descriptors(), before);
  EXPECT_FALSE(is_registered(parts[0], 1));
}

TEST(Scratch, ARoomThatWasGivenBackIsUsedAgain) {
  Scratch scratch;
  std::byte* const large = scratch.take(100'000);
  std::byte* const first = scratch.take(8192);
  std::byte* const second = scratch.take(8192);
  EXPECT_EQ(second, first + 8192) << "of one file, which is as large as the first one";
  scratch.give_back(first);
  EXPECT_NE(scratch.take(8193), first) << "it is too small";
  EXPECT_EQ(scratch.take(4000), first);
  EXPECT_EQ(scratch.take(4096), first + 4096);
  for (std::byte* part : {first, first + 4096, second, second + 8192, large}) scratch.give_back(part);
}

// A part that is larger than all others together has a file of its own size.
TEST(Scratch, NothingIsWastedOnAFirstPart) {
  Scratch scratch;
  std::byte* const only = scratch.take(5000);
  EXPECT_TRUE(is_registered(only, 8192));
  EXPECT_FALSE(is_registered(only, 8193));
  scratch.give_back(only);
}

// A peer that reads memory by reference may be late: it reads these bytes and no others.
TEST(Scratch, APartThatIsLentIsNotUsedAgain) {
  Scratch scratch;
  std::byte* const large = scratch.take(100'000);
  std::byte* const lent = scratch.take(8192);
  std::byte* const other = scratch.take(8192);
  scratch.give_back(lent, true);
  std::byte* const next = scratch.take(8192);
  EXPECT_NE(next, lent);
  EXPECT_TRUE(is_registered(lent, 8192));
  scratch.give_back(next);
  scratch.give_back(other);
  EXPECT_FALSE(is_registered(lent, 1)) << "nobody here uses the file any more";
  scratch.give_back(large);
}

}  // namespace
}  // namespace tutti::core
