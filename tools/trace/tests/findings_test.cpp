// SPDX-License-Identifier: Apache-2.0
//
// Who is blamed for waits, which link is found slow, and how ticks become times, on traces made for the purpose.
#include "findings.hpp"

#include <gtest/gtest.h>
#include <tutti/schedule.h>

#include "clocks.hpp"
#include "timeline_svg.hpp"

namespace trace {
namespace {

constexpr int64_t ms = 1'000'000;

Group group_of(uint32_t n) {
  Group group;
  group.name = "test";
  group.nranks = n;
  for (uint32_t r = 0; r < n; ++r) {
    group.ranks.emplace_back().rank = r;
  }
  return group;
}

void call(RankTrace& rank, int64_t begin, int64_t end) {
  Call call;
  call.begin = begin;
  call.end = end;
  call.collective = TUTTI_ALL_REDUCE;
  call.dtype = TUTTI_FLOAT32;
  call.count = 10;
  rank.calls.push_back(call);
}

void wait(RankTrace& rank, int64_t begin, int64_t end, uint32_t peer) {
  Step step;
  step.begin = begin;
  step.end = end;
  step.peer = peer;
  rank.waits.push_back(step);
}

TEST(TraceFindings, AWaitIsPassedOnToTheEndOfTheChain) {
  Group group = group_of(4);
  for (const uint32_t r : {0u, 1u, 3u}) call(group.ranks[r], 0, 100 * ms);
  call(group.ranks[2], 80 * ms, 100 * ms);
  wait(group.ranks[0], 1 * ms, 90 * ms, 1);  // which waits for 2 all the time
  wait(group.ranks[1], 1 * ms, 90 * ms, 2);  // late until 80
  wait(group.ranks[3], 1 * ms, 90 * ms, 2);
  const Findings findings = find(group);
  EXPECT_EQ(findings.straggler, 2u);
  EXPECT_EQ(findings.find(2)->late_ns, 3 * 79 * ms);
  EXPECT_EQ(findings.find(2)->slow_ns, 3 * 10 * ms);
  EXPECT_EQ(findings.find(1)->blamed_ns(), 0);
  EXPECT_EQ(findings.find(0)->waited_ns, 89 * ms);
  EXPECT_EQ(findings.find(0)->in_calls_ns, 100 * ms);
}

TEST(TraceFindings, OfACircleOfWaitsNoRankIsBlamed) {
  Group group = group_of(3);
  for (RankTrace& rank : group.ranks) {
    call(rank, 0, 10 * ms);
    wait(rank, 0, 10 * ms, (rank.rank + 1) % 3);
  }
  const Findings findings = find(group);
  EXPECT_FALSE(findings.straggler);
  EXPECT_EQ(findings.in_transit_ns, 30 * ms);
}

TEST(TraceFindings, ARankWithoutTraceCanBeTheStraggler) {
  Group group = group_of(3);
  group.ranks.pop_back();
  for (RankTrace& rank : group.ranks) {
    call(rank, 0, 10 * ms);
    wait(rank, 1 * ms, 9 * ms, 2);
  }
  EXPECT_EQ(find(group).straggler, 2u);
}

TEST(TraceFindings, CallsThatOverlapCountOnce) {
  Group group = group_of(2);
  call(group.ranks[0], 0, 10 * ms);
  call(group.ranks[0], 5 * ms, 12 * ms);
  EXPECT_EQ(find(group).find(0)->in_calls_ns, 12 * ms);
  EXPECT_EQ(find(group).find(1)->in_calls_ns, 0);
}

// A message of a step at both ends.
void message(Group& group, uint32_t from, uint32_t to, uint64_t sequence, int64_t sent, int64_t asked, int64_t there,
             uint32_t flags = 0) {
  Step send;
  send.begin = sent;
  send.end = sent + ms / 100;
  send.peer = to;
  send.sequence = sequence;
  send.bytes = 1 << 20;
  send.kind = TUTTI_STEP_SEND;
  send.flags = TUTTI_TRACE_SENDING | flags;
  send.transport = "tcp";
  Step receive = send;
  receive.begin = asked;
  receive.end = there;
  receive.peer = from;
  receive.kind = TUTTI_STEP_RECV;
  receive.flags = 0;
  group.ranks[from].steps.push_back(send);
  group.ranks[to].steps.push_back(receive);
}

TEST(TraceFindings, TheSlowestLinkIsTheOneThatTakesLongestForItsBytes) {
  Group group = group_of(3);
  for (uint64_t i = 0; i < 8; ++i) {
    const int64_t at = static_cast<int64_t>(i) * 100 * ms;
    message(group, 0, 1, i, at, at, at + 1 * ms);
    message(group, 1, 2, i, at, at, at + 4 * ms);
    // The receiver is late, and a forwarded message waits for the slow link: neither says anything of the link.
    message(group, 2, 0, i, at, at + 50 * ms, at + 51 * ms);
    message(group, 2, 0, i + 100, at, at, at + 60 * ms, TUTTI_TRACE_FORWARDED);
  }
  const Findings findings = find(group);
  ASSERT_EQ(findings.links.size(), 3u);
  EXPECT_EQ(findings.links[0].from, 1u);
  EXPECT_EQ(findings.links[0].to, 2u);
  EXPECT_EQ(findings.links[0].transport, "tcp");
  EXPECT_NEAR(findings.links[0].gigabytes_per_second(), double(1 << 20) / (4 * ms), 1e-6);
  EXPECT_NEAR(findings.links[1].gigabytes_per_second(), double(1 << 20) / ms, 1e-6);
  EXPECT_NEAR(findings.links[2].gigabytes_per_second(), double(1 << 20) / ms, 1e-6);
}

TEST(TraceClocks, TicksAreRelatedToTheNearestClockRecords) {
  const auto at = [](uint64_t ns, uint64_t ticks) { return tutti_trace_clock{TUTTI_TRACE_CLOCK, 0, ns, ticks, {}}; };
  // Two ticks a nanosecond, then three; a record that is too near to make a rate of is left out.
  const TickClock clock(
      {at(1'000'000'000, 0), at(1'000'000'010, 400), at(1'050'000'000, 100'000'000), at(1'100'000'000, 250'000'000)},
      0);
  EXPECT_TRUE(clock.known());
  EXPECT_EQ(clock.ns(50'000'000), 1'025'000'000);
  EXPECT_EQ(clock.ns(175'000'000), 1'075'000'000);
  EXPECT_FALSE(TickClock({at(5, 5)}, 0).known());
  EXPECT_EQ(TickClock({at(1'000, 100)}, .5).ns(300), 1'100);
}

TEST(TraceDrawing, ItsSizeDependsOnRanksAndNotOnCalls) {
  Group group = group_of(100);
  for (RankTrace& rank : group.ranks)
    for (int64_t i = 0; i < 5000; ++i) call(rank, i * 1000, i * 1000 + 900);
  const std::string svg = timeline_svg(group, find(group), {0, 5 * ms});
  EXPECT_LT(svg.size(), 40'000u);
  EXPECT_NE(svg.find("100 ranks, the 64 most waited for"), std::string::npos);
}

}  // namespace
}  // namespace trace
