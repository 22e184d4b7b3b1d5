// SPDX-License-Identifier: Apache-2.0
//
// The commands of a rank's stream for messages that peers in other processes read where they are.
#include "stream/stream_plan.hpp"

#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <map>
#include <memory>
#include <vector>

#include "base/failure.hpp"
#include "stream/windows.hpp"

namespace tutti::core {
namespace {

// A device that writes down what its stream is given.
struct Recorder {
  std::vector<tutti_command> commands;
  tutti_device memory{};
  tutti_executor executor{};
  Recorder() {
    memory.name = "recorder";
    memory.map_host = [](void*, void* address, uint64_t, void** seen) -> tutti_status {
      *seen = address;
      return TUTTI_OK;
    };
    executor.self = this;
    executor.enqueue = [](void* self, void*, const tutti_command* list, uint32_t n) -> tutti_status {
      auto& all = static_cast<Recorder*>(self)->commands;
      all.insert(all.end(), list, list + n);
      return TUTTI_OK;
    };
  }
};

// Flags 0, 1: the first message's `empty` and `full`; 2, 3: the second's.
TEST(StreamPlan, WhatPeersReadIsNotOverwrittenBeforeTheyHave) {
  Link one, two;
  one.peer = 1;
  two.peer = 2;
  int32_t in[8] = {}, out[8] = {};
  uint32_t flags[4] = {};

  StreamPlan plan;
  plan.plan.shape.dtype = TUTTI_INT32;
  plan.plan.element_bytes = sizeof(int32_t);
  const auto operand = [](uint32_t buffer, uint64_t first, uint64_t length) {
    Operand made;
    made.buffer = buffer;
    made.first = first;
    made.length = length;
    return made;
  };
  const auto send = [&](Link* to, const Operand& from) {
    BoundStep step;
    step.kind = TUTTI_STEP_SEND;
    step.out = to;
    step.src = from;
    return step;
  };
  const auto copy = [&](uint64_t to, uint64_t length) {
    BoundStep step;
    step.kind = TUTTI_STEP_COPY;
    step.dst = operand(TUTTI_BUFFER_OUT, to, length);
    step.src = operand(TUTTI_BUFFER_IN, 0, length);
    return step;
  };
  plan.plan.lanes = {{send(&one, operand(TUTTI_BUFFER_OUT, 0, 4)), send(&two, operand(TUTTI_BUFFER_IN, 0, 4)),
                      copy(4, 4), copy(3, 1)}};
  for (uint32_t step = 0; step < 4; ++step) plan.steps.push_back({step, 0, step, 0, 0, step < 2 ? 16u : 0u, 0});
  plan.windows = std::make_shared<WindowTable>();
  plan.traffic = {{1, 0, true, {16}}, {2, 0, true, {16}}};

  Recorder recorder;
  StreamCounter counter({&recorder.memory, &recorder.executor});
  StreamLaunch launch;
  launch.plan = &plan;
  launch.in = reinterpret_cast<std::byte*>(in);
  launch.out = reinterpret_cast<std::byte*>(out);
  launch.counter = &counter;
  launch.first = counter.next();
  launch.last = counter.next();
  launch.slot = [&](uint32_t way, uint64_t) { return StreamSlot{nullptr, flags + 2 * way, flags + 2 * way + 1}; };
  StreamWriter writer;
  issue(writer, {&recorder.memory, &recorder.executor}, {&launch}, [] {});

  struct Expected {
    uint32_t kind;
    void* what;
    uint32_t value;
  };
  uint32_t* const counted = counter.store(0).flag;
  const Expected expected[] = {
      {TUTTI_COMMAND_WRITE, counted, 1},   {TUTTI_COMMAND_WRITE, flags, 0},
      {TUTTI_COMMAND_WRITE, flags + 1, 1}, {TUTTI_COMMAND_WRITE, flags + 2, 0},
      {TUTTI_COMMAND_WRITE, flags + 3, 1}, {TUTTI_COMMAND_COPY, out + 4, 0},  // nobody reads these
      {TUTTI_COMMAND_WAIT, flags, 1},      {TUTTI_COMMAND_COPY, out + 3, 0},  // rank 1 reads this
      {TUTTI_COMMAND_WAIT, flags + 2, 1},  {TUTTI_COMMAND_WRITE, counted, 2},
  };
  ASSERT_EQ(recorder.commands.size(), std::size(expected));
  for (size_t i = 0; i < std::size(expected); ++i) {
    const tutti_command& command = recorder.commands[i];
    EXPECT_EQ(command.kind, expected[i].kind) << i;
    const void* what = command.kind == TUTTI_COMMAND_COPY ? command.dst : command.flag;
    EXPECT_EQ(what, expected[i].what) << i;
    EXPECT_EQ(command.value, expected[i].value) << i;
  }
}

// Two ranks of a process read each other's memory, in any order, and the device refuses at some point. Whatever a
// stream reads of the other rank's memory, the other rank's stream waits for it in the end, or the launch says so.
struct Pair {
  struct Entry {
    uint32_t stream;
    tutti_command command;
    const void* source;
  };
  std::vector<Entry> entries;
  uint32_t calls = 0, first_refused = UINT32_MAX, refused = 0;
  std::vector<std::unique_ptr<int>> events;
  tutti_device memory{};
  tutti_executor executor{};
  Link links[2];
  int32_t in[2][8] = {}, out[2][8] = {};
  StreamPlan plans[2];
  StreamLaunch launches[2];
  std::vector<tutti_event*> spare[2];
  std::unique_ptr<StreamCounter> counters[2];

  Pair() {
    memory.name = "refusing";
    memory.map_host = [](void*, void* address, uint64_t, void** seen) -> tutti_status {
      *seen = address;
      return TUTTI_OK;
    };
    executor.self = this;
    executor.create_event = [](void* self, uint32_t, tutti_event** event) -> tutti_status {
      auto& made = static_cast<Pair*>(self)->events;
      made.push_back(std::make_unique<int>());
      *event = reinterpret_cast<tutti_event*>(made.back().get());
      return TUTTI_OK;
    };
    executor.enqueue = [](void* self, void* stream, const tutti_command* list, uint32_t n) -> tutti_status {
      auto& pair = *static_cast<Pair*>(self);
      const uint32_t call = pair.calls++;
      if (call >= pair.first_refused && call - pair.first_refused < pair.refused) return TUTTI_NO_RESOURCES;
      for (uint32_t i = 0; i < n; ++i)
        pair.entries.push_back({stream == &pair.launches[1], list[i], list[i].src ? list[i].src[0] : nullptr});
      return TUTTI_OK;
    };
    for (uint32_t r = 0; r < 2; ++r) {
      links[r].peer = r;
      StreamPlan& plan = plans[r];
      plan.plan.shape.dtype = TUTTI_INT32;
      plan.plan.element_bytes = sizeof(int32_t);
    }
    for (uint32_t r = 0; r < 2; ++r) {
      const auto step = [&](uint32_t kind, uint64_t first) {
        BoundStep made;
        made.kind = kind;
        made.out = kind == TUTTI_STEP_SEND ? &links[1 - r] : nullptr;
        made.in = kind == TUTTI_STEP_RECV ? &links[1 - r] : nullptr;
        Operand& operand = kind == TUTTI_STEP_SEND ? made.src : made.dst;
        operand.buffer = kind == TUTTI_STEP_SEND ? TUTTI_BUFFER_IN : TUTTI_BUFFER_OUT;
        operand.first = first;
        operand.length = 4;
        return made;
      };
      plans[r].plan.lanes = {
          {step(TUTTI_STEP_SEND, 0), step(TUTTI_STEP_RECV, 0), step(TUTTI_STEP_SEND, 4), step(TUTTI_STEP_RECV, 4)}};
      for (uint32_t k = 0; k < 4; ++k) plans[r].steps.push_back({k, 0, k, 0, 0, 16u, k / 2});
      launches[r].rank = r;
      launches[r].plan = &plans[r];
      launches[r].in = reinterpret_cast<std::byte*>(in[r]);
      launches[r].out = reinterpret_cast<std::byte*>(out[r]);
      launches[r].stream = &launches[r];
      counters[r] = std::make_unique<StreamCounter>(DeviceTables{&memory, &executor});
      launches[r].counter = counters[r].get();
      launches[r].spare = &spare[r];
    }
  }

  // Is every copy out of rank r's memory ordered before what comes into r's stream from now on?
  bool is_ordered(uint32_t r) const {
    for (size_t i = 0; i < entries.size(); ++i) {
      const auto* source = static_cast<const std::byte*>(entries[i].source);
      if (entries[i].stream == r || source < launches[r].in || source >= launches[r].in + sizeof in[r]) continue;
      bool ordered = false;
      for (size_t event = i + 1; event < entries.size(); ++event)
        for (size_t after = event + 1; after < entries.size(); ++after)
          ordered |= entries[event].stream != r && entries[event].command.kind == TUTTI_COMMAND_RECORD &&
                     entries[after].stream == r && entries[after].command.kind == TUTTI_COMMAND_AFTER &&
                     entries[after].command.event == entries[event].command.event;
      if (!ordered) return false;
    }
    return true;
  }
};

TEST(StreamPlan, WhatFailsHalfWayIsReadByNobodyUnnoticed) {
  for (const uint32_t refused : {1u, UINT32_MAX}) {
    uint32_t all = UINT32_MAX, copied = 0;
    for (uint32_t first = 0; first < all; ++first) {
      Pair pair;
      pair.first_refused = first;
      pair.refused = refused;
      try {
        StreamWriter writer;
        issue(writer, {&pair.memory, &pair.executor}, {&pair.launches[0], &pair.launches[1]}, [] {});
        all = first;
      } catch (const Failure&) {
      }
      for (const uint32_t r : {0u, 1u}) {
        const bool told = refused != 1 && pair.launches[r].read_by == (r ? "rank 0" : "rank 1");
        EXPECT_TRUE(told || pair.is_ordered(r)) << "call " << first << ", rank " << r << pair.launches[r].read_by;
      }
      for (const Pair::Entry& entry : pair.entries) copied += entry.command.kind == TUTTI_COMMAND_COPY;
    }
    EXPECT_GT(copied, 4u);
  }
}

}  // namespace
}  // namespace tutti::core
