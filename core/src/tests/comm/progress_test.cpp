// SPDX-License-Identifier: Apache-2.0
//
// The list of engines that waits advance: no thread waits for another one's engine, except to take its own off the
// list.
#include "comm/progress.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "base/clock.hpp"

namespace tutti::core {
namespace {

class Busy final : public Engine {
 public:
  bool try_progress() noexcept override {
    const bool first = visits.fetch_add(1) == 0;
    while (first && held) std::this_thread::yield();
    return true;
  }
  void join(EngineSleep& sleep) noexcept override {
    ++joined;
    sleep.watch(*this);
    sleep.cancel();
  }
  std::atomic<int> visits{0}, joined{0};
  std::atomic<bool> held{false};  // the first visitor is
};

TEST(ActiveEngines, AnEngineThatTakesItsTimeHoldsUpNobodyElse) {
  ActiveEngines engines;
  Busy slow, other;
  slow.held = true;
  engines.add(&slow);
  std::thread visitor([&] { engines.progress_others(nullptr); });
  while (slow.visits == 0) std::this_thread::yield();
  // Each of these would wait for ever if the visitor kept the list to itself.
  engines.add(&other);
  EXPECT_TRUE(engines.progress_others(&slow));
  EXPECT_EQ(other.visits, 1);
  engines.remove(&other);
  EXPECT_FALSE(engines.progress_others(&slow));
  slow.held = false;
  visitor.join();
  engines.remove(&slow);
  EXPECT_FALSE(engines.progress_others(nullptr));
}

TEST(ActiveEngines, RemoveWaitsForTheVisitor) {
  ActiveEngines engines;
  auto engine = std::make_unique<Busy>();
  engine->held = true;
  engines.add(engine.get());
  std::thread visitor([&] { engines.progress_others(nullptr); });
  while (engine->visits == 0) std::this_thread::yield();
  std::atomic<bool> removed{false};
  std::thread owner([&] {
    engines.remove(engine.get());
    removed = true;
  });
  // No new visitor comes meanwhile.
  while (engines.progress_others(nullptr)) {
    ASSERT_FALSE(removed);
    std::this_thread::yield();
  }
  EXPECT_FALSE(removed);
  engine->held = false;
  owner.join();
  visitor.join();
  engine.reset();
  EXPECT_FALSE(engines.progress_others(nullptr));
}

TEST(ActiveEngines, ManyThreadsComeAndGo) {
  ActiveEngines engines;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        auto mine = std::make_unique<Busy>();
        engines.add(mine.get());
        engines.add(mine.get());  // once is enough
        engines.progress_others(mine.get());
        engines.remove(mine.get());
        engines.remove(mine.get());
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(engines.progress_others(nullptr));
}

TEST(Deadline, ATimeBeyondTheClockIsNever) {
  const uint64_t before = clock_ns(), minute = 60'000'000'000;
  const uint64_t deadline = deadline_after(minute);
  EXPECT_GE(deadline, before + minute);
  EXPECT_LE(deadline, clock_ns() + minute);
  for (const uint64_t below_most : {0, 1, 1000}) EXPECT_EQ(deadline_after(UINT64_MAX - below_most), UINT64_MAX);
}

}  // namespace
}  // namespace tutti::core
