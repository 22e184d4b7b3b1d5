// SPDX-License-Identifier: Apache-2.0
//
// A wait polls, yields and sleeps by how long its yields take. The clock and the yields are the test's own.
#include "comm/waiter.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace {

constexpr uint64_t us = 1000, ms = 1'000'000;
uint64_t now_ns = 0;  // 0: the real clock
uint64_t yield_ns = 0;
uint32_t yields = 0;

}  // namespace

extern "C" int sched_yield() noexcept {
  ++yields;
  now_ns += yield_ns;
  return 0;
}
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  if (now_ns == 0) return static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  *time = {static_cast<time_t>(now_ns / (1000 * ms)), static_cast<long>(now_ns % (1000 * ms))};
  return 0;
}

namespace tutti::core {
namespace {

class Idle final : public Waiter::Work {
 public:
  bool progress() override { return false; }
  void look_around() override {}
  void sleep(uint64_t) override { ++sleeps; }
  bool is_over() const override { return false; }
  uint32_t sleeps = 0;
};

class WaiterTest : public testing::Test {
 protected:
  void SetUp() override { now_ns = 1000 * ms; }
  void TearDown() override { now_ns = 0; }

  struct Passed {
    uint32_t yields, sleeps;
  };
  // A wait of so many fruitless polls, of which each yield takes so long.
  Passed wait(Waiter& waiter, uint32_t polls, uint64_t each_yield_ns) {
    yield_ns = each_yield_ns;
    yields = work_.sleeps = 0;
    for (uint32_t fruitless = 0; fruitless < polls;) waiter.pass(fruitless, false);
    return {yields, work_.sleeps};
  }
  // Waits whose first yields give the core to a program that keeps it for a slice.
  void lose_slices(Waiter& waiter, int n) {
    yield_ns = 3 * ms;
    for (int i = 0; i < n; ++i) {
      yields = 0;
      for (uint32_t fruitless = 0; yields == 0;) waiter.pass(fruitless, false);
    }
  }

  static constexpr WaitPolicy own_core{}, crowded{16, crowded_yields};
  static constexpr uint32_t polls = 256 + 90;  // the first yield comes within the first 256
  Idle work_;
};

TEST_F(WaiterTest, ARankYieldsForAWhile) {
  for (const WaitPolicy& policy : {own_core, crowded}) {
    Waiter waiter(work_, policy);
    const Passed passed = wait(waiter, polls, 2 * us);
    EXPECT_GE(passed.yields, 90u);
    EXPECT_EQ(passed.sleeps, 0u);
  }
}

TEST_F(WaiterTest, AFewLongYieldsProveNothing) {
  Waiter waiter(work_, own_core);
  lose_slices(waiter, 3);
  EXPECT_EQ(wait(waiter, polls, 2 * us).sleeps, 0u);
  lose_slices(waiter, 3);  // the first ones lie too many yields back
  EXPECT_EQ(wait(waiter, polls, 2 * us).sleeps, 0u);
}

TEST_F(WaiterTest, WhereAForeignProgramTakesTurnsARankSleepsForAWhile) {
  Waiter waiter(work_, own_core);
  lose_slices(waiter, 4);
  Passed passed = wait(waiter, polls, 2 * us);
  EXPECT_EQ(passed.yields, 0u);
  EXPECT_GE(passed.sleeps, 90u);
  now_ns += 300 * ms;
  passed = wait(waiter, polls, 2 * us);
  EXPECT_GE(passed.yields, 90u);
  EXPECT_EQ(passed.sleeps, 0u);
}

TEST_F(WaiterTest, WhereRanksShareCoresLongYieldsAreTheirs) {
  Waiter waiter(work_, crowded);
  lose_slices(waiter, 10);
  const Passed passed = wait(waiter, polls, 2 * us);
  EXPECT_GE(passed.yields, 90u);
  EXPECT_EQ(passed.sleeps, 0u);
}

}  // namespace
}  // namespace tutti::core
