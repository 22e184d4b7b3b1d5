// SPDX-License-Identifier: Apache-2.0
//
// Plans in their brief form, of two ranks whose link holds one message each way.
#include "engine/plan/brief_plan.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "engine/host/executor.hpp"

namespace tutti::core {
namespace {

struct Message {
  bool there = false;
  uint64_t bytes = 0;
  uint32_t mark = 0;
  std::array<std::byte, 256> data{};
};
// One end of a link: of two lanes.
struct End {
  std::array<Message, 2>*in = nullptr, *out = nullptr;
  uint32_t mark = 0;
};
End& end_of(tutti_link* link) { return *reinterpret_cast<End*>(link); }

tutti_view view_of_one_message() {
  tutti_view view{};
  view.try_reserve = [](tutti_link* link, uint32_t lane, uint64_t) -> void* {
    Message& message = (*end_of(link).out)[lane];
    return message.there ? nullptr : message.data.data();
  };
  view.commit = [](tutti_link* link, uint32_t lane, uint64_t bytes) {
    Message& message = (*end_of(link).out)[lane];
    message.bytes = bytes;
    message.mark = end_of(link).mark;
    message.there = true;
  };
  view.try_receive = [](tutti_link* link, uint32_t lane, uint64_t* bytes) -> const void* {
    const Message& message = (*end_of(link).in)[lane];
    *bytes = message.bytes;
    return message.there ? message.data.data() : nullptr;
  };
  view.release = [](tutti_link* link, uint32_t lane) { (*end_of(link).in)[lane].there = false; };
  view.set_mark = [](tutti_link* link, uint32_t, uint32_t mark) { end_of(link).mark = mark; };
  view.get_mark = [](tutti_link* link, uint32_t lane) { return (*end_of(link).in)[lane].mark; };
  return view;
}

Step step_of(uint32_t kind, uint32_t dst, uint32_t src, uint32_t peer) {
  Step step;
  step.op.kind = kind;
  step.op.peer = peer;
  step.op.dependency_lane = TUTTI_NO_DEPENDENCY;
  if (dst) step.op.dst = {dst, 0, 1, 0};
  if (src) step.op.src = {src, 0, 1, 0};
  return step;
}

// Two ranks that run the same lanes of steps: an all_reduce of int32, out of place.
struct Pair {
  tutti_transport transport{};
  tutti_view view = view_of_one_message();
  Port port;
  std::array<Message, 2> boxes[2];
  End ends[2]{{&boxes[1], &boxes[0]}, {&boxes[0], &boxes[1]}};
  std::vector<Link> links[2]{std::vector<Link>(2), std::vector<Link>(2)};
  Plan plans[2];
  Execution executions[2];

  Pair(const std::vector<std::vector<Step>> (&lanes)[2], uint64_t count) {
    transport.name = "fake";
    port.api = &transport;
    port.view = &view;
    port.marks = true;
    for (const uint32_t rank : {0u, 1u}) {
      Link& link = links[rank][1 - rank];
      link.port = &port;
      link.view = &view;
      link.handle = reinterpret_cast<tutti_link*>(&ends[rank]);
      link.peer = 1 - rank;
      link.fragment = BriefPlan::most_bytes;
      Schedule schedule;
      schedule.scratch = {{0, 0}};
      schedule.lanes = lanes[rank];
      Shape shape;
      shape.collective = TUTTI_ALL_REDUCE;
      shape.dtype = TUTTI_INT32;
      shape.op = TUTTI_SUM;
      shape.count = count;
      plans[rank] = bind_plan(schedule, shape, 1, 2, rank, links[rank]);
      plans[rank].brief = make_brief(plans[rank]);
      executions[rank].init(0);
    }
  }
  void launch(uint32_t rank, uint32_t mark, const int32_t* in, int32_t* out) {
    executions[rank].launch_brief(plans[rank], mark, in, out);
  }
  // Both advance in turn: are they complete after so many turns?
  bool advance(int turns) {
    bool done[2] = {false, false};
    for (int i = 0; i < turns; ++i)
      for (const uint32_t rank : {0u, 1u}) done[rank] = done[rank] || executions[rank].advance();
    return done[0] && done[1];
  }
};

std::vector<Step> receive_first(uint32_t peer) {
  return {step_of(TUTTI_STEP_RECV_REDUCE, TUTTI_BUFFER_OUT, TUTTI_BUFFER_IN, peer),
          step_of(TUTTI_STEP_SEND, 0, TUTTI_BUFFER_IN, peer)};
}

// Both receive before they send.
TEST(BriefPlan, AStepOvertakesOneThatWaits) {
  Pair pair({{receive_first(1)}, {receive_first(0)}}, 3);
  ASSERT_TRUE(pair.plans[0].brief && pair.plans[1].brief);
  const std::vector<int32_t> in[2] = {{1, 2, 3}, {10, 20, 30}};
  std::vector<int32_t> out[2] = {std::vector<int32_t>(3), std::vector<int32_t>(3)};
  for (int k = 0; k < 3; ++k) {
    for (const uint32_t rank : {0u, 1u}) pair.launch(rank, 7, in[rank].data(), out[rank].data());
    ASSERT_TRUE(pair.advance(3)) << k;
    for (const auto& sum : out) EXPECT_EQ(sum, (std::vector<int32_t>{11, 22, 33}));
  }
}

// All that needs nothing of a step that waits is done meanwhile: here what another lane depends on.
TEST(BriefPlan, ManyStepsOvertakeOneThatWaits) {
  const auto lanes = [](uint32_t peer) {
    Step sends_copy = step_of(TUTTI_STEP_SEND, 0, TUTTI_BUFFER_SCRATCH, peer);
    sends_copy.op.dependency_lane = 0;
    sends_copy.op.dependency_step = 2;
    return std::vector<std::vector<Step>>{{step_of(TUTTI_STEP_RECV, TUTTI_BUFFER_OUT, 0, peer),
                                           step_of(TUTTI_STEP_SEND, 0, TUTTI_BUFFER_IN, peer),
                                           step_of(TUTTI_STEP_COPY, TUTTI_BUFFER_SCRATCH, TUTTI_BUFFER_IN, 0),
                                           step_of(TUTTI_STEP_RECV, TUTTI_BUFFER_OUT, 0, peer)},
                                          {sends_copy, step_of(TUTTI_STEP_RECV, TUTTI_BUFFER_SCRATCH, 0, peer)}};
  };
  Pair pair({lanes(1), lanes(0)}, 1);
  const BriefPlan& brief = *pair.plans[0].brief;
  EXPECT_EQ(brief.steps[3].behind, 1u) << "it overwrites what has come";
  EXPECT_EQ(brief.steps[3].behind_message, 1u);
  EXPECT_EQ(brief.steps[5].behind, 1u) << "it overwrites what is sent";
  const int32_t in[2] = {1, 10};
  int32_t out[2] = {};
  for (const uint32_t rank : {0u, 1u}) pair.launch(rank, 7, &in[rank], &out[rank]);
  EXPECT_FALSE(pair.executions[0].advance());
  EXPECT_TRUE(pair.boxes[0][0].there);
  EXPECT_TRUE(pair.boxes[0][1].there) << "the copy has overtaken the receive";
  EXPECT_FALSE(pair.executions[0].advance()) << "nothing has come yet";
}

// A received block is sent on: the send waits for it.
TEST(BriefPlan, AStepDoesNotOvertakeOneThatItNeeds) {
  const std::vector<Step> relays{step_of(TUTTI_STEP_RECV_REDUCE, TUTTI_BUFFER_OUT, TUTTI_BUFFER_IN, 1),
                                 step_of(TUTTI_STEP_SEND, 0, TUTTI_BUFFER_OUT, 1)};
  const std::vector<Step> asks{step_of(TUTTI_STEP_SEND, 0, TUTTI_BUFFER_IN, 0),
                               step_of(TUTTI_STEP_RECV, TUTTI_BUFFER_OUT, 0, 0)};
  Pair pair({{relays}, {asks}}, 1);
  EXPECT_EQ(pair.plans[0].brief->steps[1].behind, 1u);
  EXPECT_EQ(pair.plans[1].brief->steps[1].behind, 0u);
  const int32_t in[2] = {1, 10};
  int32_t out[2] = {};
  for (const uint32_t rank : {0u, 1u}) pair.launch(rank, 7, &in[rank], &out[rank]);
  ASSERT_TRUE(pair.advance(3));
  EXPECT_EQ(out[0], 11);
  EXPECT_EQ(out[1], 11);
}

// A dependency on the step of another lane, which one of this lane has overtaken meanwhile.
TEST(BriefPlan, DependenciesJoinLanes) {
  std::vector<Step> copies{step_of(TUTTI_STEP_COPY, TUTTI_BUFFER_OUT, TUTTI_BUFFER_SCRATCH, 0)};
  copies[0].op.dependency_lane = 1;
  copies[0].op.dependency_step = 1;
  const auto lanes = [&](uint32_t peer) {
    return std::vector<std::vector<Step>>{copies,
                                          {step_of(TUTTI_STEP_SEND, 0, TUTTI_BUFFER_IN, peer),
                                           step_of(TUTTI_STEP_RECV, TUTTI_BUFFER_SCRATCH, 0, peer)}};
  };
  Pair pair({lanes(1), lanes(0)}, 1);
  const int32_t in[2] = {1, 10};
  int32_t out[2] = {};
  for (const uint32_t rank : {0u, 1u}) pair.launch(rank, 7, &in[rank], &out[rank]);
  EXPECT_FALSE(pair.executions[0].advance());
  EXPECT_EQ(out[0], 0) << "nothing has come yet";
  ASSERT_TRUE(pair.advance(3));
  EXPECT_EQ(out[0], 10);
  EXPECT_EQ(out[1], 1);
}

TEST(BriefPlan, SaysWhetherItWaitsForOtherCores) {
  Pair pair({{receive_first(1)}, {receive_first(0)}}, 3);
  const int32_t in[3] = {};
  int32_t out[3];
  pair.launch(0, 7, in, out);
  EXPECT_FALSE(pair.executions[0].advance());
  EXPECT_FALSE(pair.executions[0].waits_beyond()) << "the peer may share this rank's core";
  pair.links[0][1].is_beyond = true;
  EXPECT_TRUE(pair.executions[0].waits_beyond());
  pair.launch(1, 7, in, out);
  pair.executions[1].advance();
  pair.links[0][1].is_beyond = false;
  EXPECT_TRUE(pair.executions[0].advance());
  EXPECT_TRUE(pair.executions[0].waits_beyond()) << "nothing is left that comes from this core";
}

TEST(BriefPlan, SaysWhereItStands) {
  Pair pair({{receive_first(1)}, {receive_first(0)}}, 3);
  const int32_t in[3] = {};
  int32_t out[3];
  pair.launch(0, 7, in, out);
  EXPECT_FALSE(pair.executions[0].advance());
  EXPECT_EQ(pair.executions[0].where(), "step 0 of lane 0, slice 1 of 1: recv_reduce from rank 1 over fake");
  std::array<tutti_flight_wait, 4> waits{};
  ASSERT_EQ(pair.executions[0].waits(41, waits), 1u);
  EXPECT_EQ(waits[0].operation, 42u);
  EXPECT_EQ(waits[0].peer, 1u);
  EXPECT_EQ(waits[0].bytes, sizeof in);
  EXPECT_STREQ(waits[0].transport, "fake");
  EXPECT_EQ(pair.executions[0].waited_for(41).peer, 1u);
}

// Every way in which a message differs from what is expected, with the words that say so.
TEST(BriefPlan, NamesAMessageThatDiffers) {
  Pair pair({{receive_first(1)}, {receive_first(0)}}, 3);
  const int32_t in[3] = {};
  int32_t out[3];
  const auto error = [&](uint32_t mark, uint64_t bytes) {
    pair.boxes[1][0] = {true, bytes, mark, {}};
    pair.launch(0, 7, in, out);
    try {
      pair.executions[0].advance();
    } catch (const MessageDiffers& differs) {
      EXPECT_EQ(differs.peer, 1u);
      EXPECT_EQ(differs.same_call, mark == 7);
      return differs.text;
    }
    return std::string("no error");
  };
  EXPECT_NE(error(8, sizeof in).find("the message belongs to another call"), std::string::npos);
  EXPECT_NE(error(7, sizeof in - 4).find("the message's size differs from what this rank expects, in the same call"),
            std::string::npos);
}

TEST(BriefPlan, LargeOrUnconnectedPlansHaveNone) {
  const auto brief = [](uint64_t count) {
    return Pair({{receive_first(1)}, {receive_first(0)}}, count).plans[0].brief != nullptr;
  };
  EXPECT_TRUE(brief(BriefPlan::most_bytes / sizeof(int32_t)));
  EXPECT_FALSE(brief(BriefPlan::most_bytes / sizeof(int32_t) + 1));
  Pair pair({{receive_first(1)}, {receive_first(0)}}, 1);
  pair.links[0][1].view = nullptr;
  EXPECT_EQ(make_brief(pair.plans[0]), nullptr);
  Plan many = bind_plan(Schedule{}, Shape{.collective = TUTTI_BARRIER}, 1, 2, 0, pair.links[0]);
  many.lanes = {std::vector<BoundStep>(BriefPlan::most_steps)};
  EXPECT_NE(make_brief(many), nullptr);
  many.lanes[0].emplace_back();
  EXPECT_EQ(make_brief(many), nullptr);
  many.lanes.assign(BriefPlan::most_lanes + 1, {});
  EXPECT_EQ(make_brief(many), nullptr);
}

}  // namespace
}  // namespace tutti::core
