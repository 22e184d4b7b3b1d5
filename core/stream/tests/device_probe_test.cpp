// SPDX-License-Identifier: Apache-2.0
//
// A device is asked whether it works by a thread of its own, and the one that polls never waits.
#include "stream/device_probe.hpp"

#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <atomic>
#include <thread>

namespace tutti::core {
namespace {

std::atomic<int> asked{0}, destroyed{0};
std::atomic<bool> holds{false};
std::atomic<tutti_status> answer{TUTTI_OK};

DeviceTables device() {
  static tutti_device memory{};
  static tutti_executor executor{};
  memory.name = "none";
  executor.create_event = [](void*, uint32_t, tutti_event** event) -> tutti_status {
    *event = reinterpret_cast<tutti_event*>(&asked);
    return TUTTI_OK;
  };
  executor.destroy_event = [](void*, tutti_event*) { ++destroyed; };
  executor.query_event = [](void*, tutti_event*) -> tutti_status {
    const tutti_status status = answer;
    ++asked;
    while (holds) std::this_thread::yield();
    return status;
  };
  DeviceTables tables;
  tables.memory = &memory;
  tables.executor = &executor;
  return tables;
}

constexpr uint64_t second = 1'000'000'000;
void until(const auto& condition) {
  while (!condition()) std::this_thread::yield();
}

TEST(DeviceProbe, AsksOnceASecondAndTellsOfAFailure) {
  asked = destroyed = 0;
  DeviceProbe probe;
  EXPECT_FALSE(probe.poll(5 * second)) << "there is nothing to ask with";
  ASSERT_EQ(probe.open(device(), 0), TUTTI_OK);
  for (const uint64_t ns : {uint64_t{1}, second / 2, second}) EXPECT_FALSE(probe.poll(ns));
  probe.restart();
  EXPECT_FALSE(probe.poll(3 * second));
  EXPECT_FALSE(probe.poll(4 * second - 1));
  EXPECT_EQ(asked, 0);
  EXPECT_FALSE(probe.poll(4 * second));
  until([] { return asked == 1; });
  answer = TUTTI_SYSTEM;  // to the next question
  EXPECT_FALSE(probe.poll(5 * second - 1));
  std::optional<Failure> failed;
  until([&] { return (failed = probe.poll(5 * second)).has_value(); });
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(failed->status, TUTTI_SYSTEM);
  EXPECT_EQ(failed->text.rfind("device none: ", 0), 0u) << failed->text;
  answer = TUTTI_OK;
}

TEST(DeviceProbe, ADriverThatDoesNotAnswerHoldsUpNobody) {
  asked = destroyed = 0;
  holds = true;
  {
    DeviceProbe probe;
    ASSERT_EQ(probe.open(device(), 0), TUTTI_OK);
    for (uint64_t s = 1; s < 20; ++s) EXPECT_FALSE(probe.poll(s * second));
    until([] { return asked == 1; });
  }
  EXPECT_EQ(destroyed, 0) << "the event is still asked for";
  holds = false;
  until([] { return destroyed == 1; });
  EXPECT_EQ(asked, 1);
}

}  // namespace
}  // namespace tutti::core
