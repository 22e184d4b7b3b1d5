// SPDX-License-Identifier: Apache-2.0
//
// The order of calls and messages, from traces made for the purpose; and the picture of it.
#include "sequence.hpp"

#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <stdexcept>

#include "sequence_svg.hpp"

namespace trace {
namespace {

// Communicators of processes: process p is rank p of the world.
Group group_of(const std::string& name, const std::vector<uint32_t>& processes) {
  Group group;
  group.name = name;
  group.nranks = static_cast<uint32_t>(processes.size());
  for (uint32_t r = 0; r < group.nranks; ++r) {
    RankTrace& rank = group.ranks.emplace_back();
    rank.rank = r;
    rank.host = "host";
    rank.program = "program";
    rank.pid = 100 + processes[r];
  }
  return group;
}

void call(RankTrace& rank, uint64_t ticks, uint64_t sequence, uint32_t collective = TUTTI_ALL_REDUCE) {
  Call& call = rank.calls.emplace_back();
  call.sequence = sequence;
  call.collective = collective;
  call.dtype = TUTTI_FLOAT32;
  call.count = collective == TUTTI_BARRIER ? 0 : 12345;
  call.begin_ticks = ticks;
  call.end_ticks = ticks + 1;
}

void transfer(RankTrace& rank, uint64_t begin, uint64_t end, uint32_t peer, bool sending) {
  Transfer& transfer = rank.transfers.emplace_back();
  transfer.begin_ticks = begin;
  transfer.end_ticks = end;
  transfer.peer = peer;
  transfer.bytes = 5000;
  transfer.sending = sending;
}

std::vector<size_t> places(const Sequence& sequence, size_t row) {
  std::vector<size_t> all;
  for (const Event& event : sequence.events[row]) all.push_back(event.place);
  return all;
}
using Places = std::vector<size_t>;

TEST(TraceSequence, AReceiveComesAfterItsSendHoweverEarlyItWasPosted) {
  Timeline timeline{.groups = {group_of("world", {0, 1, 2})}};
  auto& ranks = timeline.groups[0].ranks;
  for (uint32_t r = 0; r < 3; ++r) {  // a ring: each posts its receive first
    transfer(ranks[r], 10, 1000 - 10 * r, (r + 2) % 3, false);
    transfer(ranks[r], 20 + r, 500, (r + 1) % 3, true);
  }
  const Sequence sequence = sequence_of(timeline, 0);
  EXPECT_EQ(sequence.places, 2u);
  for (size_t row = 0; row < 3; ++row) {
    EXPECT_EQ(places(sequence, row), (Places{0, 1}));
    EXPECT_EQ(sequence.events[row][0].kind, Event::Kind::send);
    EXPECT_EQ(sequence.events[row][0].place_of_receive, 1u);
  }
}

TEST(TraceSequence, MessagesOfOneWayKeepTheirOrder) {
  Timeline timeline{.groups = {group_of("world", {0, 1})}};
  auto& ranks = timeline.groups[0].ranks;
  for (uint64_t i = 0; i < 3; ++i) {
    transfer(ranks[0], 10 * i, 900, 1, true);
    transfer(ranks[1], 5, 700 + i, 0, false);
  }
  const Sequence sequence = sequence_of(timeline, 0);
  EXPECT_EQ(places(sequence, 0), (Places{0, 1, 2}));
  EXPECT_EQ(places(sequence, 1), (Places{1, 2, 3}));
}

TEST(TraceSequence, ACallStandsAtOnePlaceOnAllItsRanks) {
  Timeline timeline{.groups = {group_of("world", {0, 1, 2, 3}), group_of("pair", {3, 1})}};
  auto& world = timeline.groups[0].ranks;
  auto& pair = timeline.groups[1].ranks;
  transfer(world[0], 10, 11, 1, true);
  transfer(world[1], 9, 20, 0, false);
  call(pair[1], 30, 0);
  call(pair[0], 3, 0);
  for (uint32_t r = 0; r < 4; ++r) call(world[r], 50 - r, 7);
  const Sequence sequence = sequence_of(timeline, 0);
  EXPECT_EQ(places(sequence, 0), (Places{0, 3}));
  EXPECT_EQ(places(sequence, 1), (Places{1, 2, 3}));
  EXPECT_EQ(places(sequence, 2), (Places{3}));
  EXPECT_EQ(places(sequence, 3), (Places{2, 3}));
  EXPECT_EQ(sequence.events[1][1].communicator, "pair");
  EXPECT_EQ(sequence.events[1][1].ranks, (std::vector<uint32_t>{1, 3}));
  EXPECT_EQ(sequence.events[1][2].communicator, "");
}

TEST(TraceSequence, ACallComesAfterWhatEachOfItsRanksDidBefore) {
  for (const uint32_t busy : {0u, 1u}) {
    Timeline timeline{.groups = {group_of("world", {0, 1})}};
    auto& ranks = timeline.groups[0].ranks;
    for (uint64_t i = 0; i < 3; ++i) transfer(ranks[busy], i, i + 1, 1 - busy, true);
    transfer(ranks[1 - busy], 5, 6, busy, true);
    for (uint32_t r = 0; r < 2; ++r) call(ranks[r], 50, 7);
    const Sequence sequence = sequence_of(timeline, 0);
    EXPECT_EQ(places(sequence, busy), (Places{0, 1, 2, 3}));
    EXPECT_EQ(places(sequence, 1 - busy), (Places{0, 3}));
  }
}

TEST(TraceSequence, LiesBetweenTwoBarriers) {
  Timeline timeline{.groups = {group_of("world copy", {0, 1}), group_of("world", {0, 1})}};
  auto& ranks = timeline.groups[1].ranks;
  for (uint32_t r = 0; r < 2; ++r) {
    call(ranks[r], 10, 0);
    call(ranks[r], 20, 1, TUTTI_BARRIER);
    call(ranks[r], 30, 2);
    call(ranks[r], 40, 3, TUTTI_BARRIER);
    call(timeline.groups[0].ranks[r], 35, 0);
    call(timeline.groups[0].ranks[r], 45, 1);
  }
  const Sequence sequence = sequence_of(timeline, 1);
  EXPECT_EQ(sequence.places, 2u);
  EXPECT_EQ(sequence.events[0][0].call.sequence, 2u);
  EXPECT_EQ(sequence.events[0][1].communicator, "world copy");
  EXPECT_EQ(sequence_of(timeline, 0).places, 6u);
  try {
    sequence_of(timeline, 2);
    FAIL() << "there is no third barrier";
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(
        e.what(),
        "rank 0 of world has 2 barriers, expected at least 3: --barrier 2 is what lies between that one and the "
        "next");
  }
}

TEST(TraceSequence, TwoCommunicatorsUsedInDifferentOrderAreDrawnAllTheSame) {
  Timeline timeline{.groups = {group_of("a", {0, 1}), group_of("b", {0, 1})}};
  for (uint32_t r = 0; r < 2; ++r) {  // both begin before either ends
    call(timeline.groups[0].ranks[r], 10 + r, 0);
    call(timeline.groups[1].ranks[r], 11 - r, 0);
  }
  const Sequence sequence = sequence_of(timeline, 0);
  EXPECT_EQ(sequence.events[0].size() + sequence.events[1].size(), 4u);
}

TEST(TraceSequence, RanksThatAreThreadsAreRefused) {
  Timeline timeline{.groups = {group_of("world", {0, 0})}};
  EXPECT_THROW(sequence_of(timeline, 0), std::runtime_error);
}

TEST(TraceSequence, ThePictureHasEveryCallAndMessage) {
  Timeline timeline{.groups = {group_of("world", {0, 1})}};
  auto& ranks = timeline.groups[0].ranks;
  transfer(ranks[1], 10, 11, 0, true);
  transfer(ranks[0], 9, 20, 1, false);
  for (uint32_t r = 0; r < 2; ++r) call(ranks[r], 50, 7);
  const std::string svg = sequence_svg(sequence_of(timeline, 0));
  for (const char* words : {"program: 2 ranks", "all_reduce(12345 x float32)", "12,345 float32",
                            "rank 1 to rank 0: 5,000 bytes, tag 0", "to a lower one"})
    EXPECT_NE(svg.find(words), std::string::npos) << words;
  EXPECT_EQ(svg.find("to a higher rank"), std::string::npos);
}

}  // namespace
}  // namespace trace
