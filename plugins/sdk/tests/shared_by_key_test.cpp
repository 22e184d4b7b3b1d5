// SPDX-License-Identifier: Apache-2.0
//
// shared_by_key.hpp: one object for each key, for as long as somebody holds it.
#include <gtest/gtest.h>

#include <tutti/sdk/local/shared_by_key.hpp>
#include <vector>

namespace {

// A process of many ranks makes and drops thousands of mappings and doorbells at once.
TEST(SharedByKey, FindsInFewStepsAndKeepsNothingThatIsDropped) {
  struct Key {
    int value;
    bool operator<(const Key& other) const {
      compared()++;
      return value < other.value;
    }
    static uint64_t& compared() {
      static uint64_t count = 0;
      return count;
    }
  };
  tutti::sdk::local::SharedByKey<Key, int> table;
  const auto any = [](int) { return true; };
  const auto get = [&](int key) { return table.get({key}, any, [&] { return std::make_unique<int>(key); }); };
  std::vector<std::shared_ptr<int>> held;
  for (int key = 0; key < 1000; key++) held.push_back(get(key));
  Key::compared() = 0;
  EXPECT_EQ(get(500), held[500]);
  EXPECT_LE(Key::compared(), 40u);
  const std::shared_ptr<int> other = table.get(
      {500}, [](int) { return false; }, [] { return std::make_unique<int>(-1); });
  EXPECT_EQ(*other, -1);
  held.clear();
  EXPECT_EQ(table.size(), 1u);
  EXPECT_EQ(get(500), other) << "the older one's end took the younger one's place";
}

}  // namespace
