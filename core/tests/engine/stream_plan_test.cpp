// SPDX-License-Identifier: Apache-2.0
//
// What a rank's stream is given for messages that peers in other processes read where they are.
#include "engine/stream_plan.hpp"

#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <map>

namespace tutti::core {
namespace {

// A device that writes down what its stream is given.
struct Recorder {
  std::vector<tutti_command> commands;
  tutti_device memory{};
  tutti_executor executor{};
  Recorder() {
    memory.name = "recorder";
    executor.self = this;
    executor.enqueue = [](void* self, void*, const tutti_command* list, uint32_t n) -> tutti_status {
      auto& all = static_cast<Recorder*>(self)->commands;
      all.insert(all.end(), list, list + n);
      return TUTTI_OK;
    };
  }
};

// Words 0, 1: the first message's `empty` and `full`; 2, 3: the second's.
TEST(StreamPlan, WhatPeersReadIsNotOverwrittenBeforeTheyHave) {
  Link one, two;
  one.peer = 1;
  two.peer = 2;
  int32_t in[8] = {}, out[8] = {};
  uint32_t words[4] = {};
  tutti_mark* const end = reinterpret_cast<tutti_mark*>(&words);

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

  Recorder recorder;
  StreamLaunch launch;
  launch.plan = &plan;
  launch.in = reinterpret_cast<std::byte*>(in);
  launch.out = reinterpret_cast<std::byte*>(out);
  launch.end = end;
  launch.slot = [&](uint32_t peer, uint32_t, bool, uint64_t) {
    uint32_t* first = words + 2 * (peer - 1);
    return StreamSlot{nullptr, first, first + 1};
  };
  issue({&recorder.memory, &recorder.executor}, {&launch}, [] {});

  struct Expected {
    uint32_t kind;
    void* what;
    uint32_t value;
  };
  const Expected expected[] = {
      {TUTTI_COMMAND_WRITE, words, 0},     {TUTTI_COMMAND_WRITE, words + 1, 1}, {TUTTI_COMMAND_WRITE, words + 2, 0},
      {TUTTI_COMMAND_WRITE, words + 3, 1}, {TUTTI_COMMAND_COPY, out + 4, 0},  // nobody reads these
      {TUTTI_COMMAND_WAIT, words, 1},      {TUTTI_COMMAND_COPY, out + 3, 0},  // rank 1 reads this
      {TUTTI_COMMAND_WAIT, words + 2, 1},  {TUTTI_COMMAND_MARK, end, 0},
  };
  ASSERT_EQ(recorder.commands.size(), std::size(expected));
  for (size_t i = 0; i < std::size(expected); ++i) {
    const tutti_command& command = recorder.commands[i];
    EXPECT_EQ(command.kind, expected[i].kind) << i;
    const void* what = command.kind == TUTTI_COMMAND_COPY   ? command.dst
                       : command.kind == TUTTI_COMMAND_MARK ? static_cast<void*>(command.mark)
                                                            : command.word;
    EXPECT_EQ(what, expected[i].what) << i;
    EXPECT_EQ(command.value, expected[i].value) << i;
  }
}

}  // namespace
}  // namespace tutti::core
