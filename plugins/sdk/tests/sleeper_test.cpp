// SPDX-License-Identifier: Apache-2.0
//
// The descriptor is readable exactly while something that is watched is ready or the timer has run out.
#include <gtest/gtest.h>
#include <poll.h>

#include <tutti/sdk/sleeper.hpp>

namespace {

using tutti::sdk::Sleeper;
using namespace std::chrono_literals;

bool readable(const Sleeper& sleeper, int limit_ms = 0) {
  pollfd p{sleeper.descriptor(), POLLIN, 0};
  return ::poll(&p, 1, limit_ms) == 1;
}

TEST(Sleeper, IsReadableWhileAWatchedDescriptorIsReady) {
  Sleeper sleeper;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  sleeper.watch(ends[0], EPOLLIN, 42);
  EXPECT_FALSE(readable(sleeper));
  EXPECT_TRUE(sleeper.ready().empty());
  ASSERT_EQ(::write(ends[1], "xy", 2), 2);
  for (int i = 0; i < 2; ++i) {  // until it is read
    ASSERT_TRUE(readable(sleeper));
    const auto found = sleeper.ready();
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].data.u64, 42u);
  }
  sleeper.change(ends[0], 0, 42);
  EXPECT_FALSE(readable(sleeper));
  sleeper.change(ends[0], EPOLLIN, 43);
  ASSERT_EQ(sleeper.ready().size(), 1u);
  EXPECT_EQ(sleeper.ready()[0].data.u64, 43u);
  sleeper.forget(ends[0]);
  EXPECT_FALSE(readable(sleeper));
  for (const int end : ends) ::close(end);
  EXPECT_THROW(sleeper.watch(ends[0]), tutti::sdk::Error);
}

TEST(Sleeper, ATimerWakesUntilItIsSetAnew) {
  Sleeper sleeper;
  sleeper.wake_after(1h);
  EXPECT_FALSE(readable(sleeper));
  sleeper.wake_after(1ms);
  ASSERT_TRUE(readable(sleeper, 60'000));
  EXPECT_TRUE(readable(sleeper)) << "it was not dealt with";
  sleeper.wake_after({});
  EXPECT_FALSE(readable(sleeper));
  sleeper.wake_after(1ms);
  ASSERT_TRUE(readable(sleeper, 60'000));
  const auto found = sleeper.ready();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].data.u64, Sleeper::kTimer);
  EXPECT_FALSE(readable(sleeper, 20)) << "it is told once";
}

}  // namespace
