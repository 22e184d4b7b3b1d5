// SPDX-License-Identifier: Apache-2.0
//
// What tutti-info --hang makes of records of several communicators: cycles of waits, and whose communicators come
// first.
#include "info/src/wait_graph.hpp"

#include <gtest/gtest.h>
#include <tutti/flight_record.h>
#include <tutti/tutti.h>

#include <utility>

#include "info/src/hang_report.hpp"

namespace info {
namespace {

constexpr double now = 100e9;

Operation operation(uint64_t sequence, bool complete) {
  Operation o;
  o.sequence = sequence;
  o.collective = TUTTI_ALL_REDUCE;
  o.dtype = TUTTI_FLOAT32;
  o.begin_ns = now - 14e9;
  o.complete = complete;
  o.end_ns = complete ? now - 13e9 : 0;
  return o;
}

RankView rank(uint32_t rank, uint64_t pid) {
  RankView view;
  view.process = ProcessState::running;
  view.record.rank = rank;
  view.record.pid = view.record.thread = pid;
  view.record.phase = TUTTI_FLIGHT_READY;
  return view;
}

// It has ended `calls` all_reduces.
RankView done(RankView view, uint64_t calls) {
  for (uint64_t i = 0; i < calls; ++i) view.record.operations.push_back(operation(i, true));
  return view;
}

// ... and a call waits in the next one.
RankView waiting(RankView view, uint64_t calls) {
  view = done(std::move(view), calls);
  view.record.operations.push_back(operation(calls, false));
  view.record.awaited = calls + 1;
  return view;
}

constexpr uint32_t any_rank = UINT32_MAX;

RankView transferring(RankView view, bool sending, uint32_t peer, bool any_tag = false) {
  TransferRecord transfer;
  transfer.any_tag = any_tag;
  transfer.sending = sending;
  transfer.peer = peer;
  transfer.tag = 7;
  transfer.begin_ns = now - 3e9;
  view.record.transfers.push_back(transfer);
  view.record.awaited = TUTTI_FLIGHT_TRANSFER | 1;
  return view;
}

JudgedCommunicator communicator(const std::string& name, std::vector<RankView> ranks, uint32_t nranks = 0) {
  CommunicatorView view;
  view.name = name;
  view.id = std::hash<std::string>()(name);
  view.nranks = nranks ? nranks : static_cast<uint32_t>(ranks.size());
  view.ranks = std::move(ranks);
  view.now_ns = now;
  Verdict verdict = judge(view);
  return {std::move(view), std::move(verdict)};
}

// The texts of the cycles.
std::vector<std::string> cycles(const std::vector<JudgedCommunicator>& communicators) {
  std::vector<std::string> texts;
  for (const WaitCycle& cycle : find_cycles(communicators)) texts.push_back(cycle.text);
  return texts;
}
using Texts = std::vector<std::string>;

constexpr const char* order = ": a cycle; use the communicators in the same order on every rank";

std::vector<JudgedCommunicator> crossed() {
  return {communicator("world", {rank(0, 10), rank(1, 11)}),
          communicator("world.1", {done(rank(0, 10), 1), waiting(rank(1, 11), 1)}),
          communicator("world.2", {waiting(rank(0, 10), 1), done(rank(1, 11), 1)})};
}

TEST(WaitGraph, TwoCommunicatorsInDifferentOrder) {
  const auto all = crossed();
  EXPECT_EQ(all[1].verdict.finding, Finding::missing);  // each alone blames one rank
  EXPECT_EQ(all[2].verdict.finding, Finding::missing);
  const auto found = find_cycles(all);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].text,
            std::string("rank 0 waits in all_reduce #1 of world.2 for rank 1, which waits in all_reduce #1 "
                        "of world.1 for rank 0, since 14 s") +
                order);
  const std::map<size_t, std::vector<uint32_t>> ranks{{1, {0, 1}}, {2, {0, 1}}};
  EXPECT_EQ(found[0].ranks, ranks);
}

TEST(WaitGraph, NamesCallSitesWhereTheyAreKnown) {
  auto all = crossed();
  all[2].view.ranks[0].record.site = "train.py:14";
  EXPECT_EQ(cycles(all),
            Texts{std::string("rank 0 waits in all_reduce #1 of world.2 (at train.py:14) for rank 1, which waits in "
                              "all_reduce #1 of world.1 for rank 0, since 14 s") +
                  order});
  // One communicator alone: where all that wait do so at one place it is named.
  std::vector<RankView> ranks{waiting(rank(0, 10), 0), waiting(rank(1, 11), 0), rank(2, 12)};
  ranks[0].record.site = ranks[1].record.site = "step+0x4a";
  const auto missing = communicator("world", ranks);
  EXPECT_NE(missing.verdict.text.find("; ranks 0 and 1 wait in all_reduce #0 (at step+0x4a) for it"), std::string::npos)
      << missing.verdict.text;
  ranks[1].record.site = "step+0x9b";
  EXPECT_EQ(communicator("world", ranks).verdict.text.find("(at"), std::string::npos);
  HangReport report;
  report.communicators = in_order({missing});
  EXPECT_NE(hang_text(report).find("\n          waits at step+0x4a\n"), std::string::npos) << hang_text(report);
}

TEST(WaitGraph, ThreeRanksInTurn) {
  EXPECT_EQ(
      cycles({communicator("a", {waiting(rank(0, 10), 0), rank(1, 11)}),
              communicator("b", {waiting(rank(0, 11), 0), rank(1, 12)}),
              communicator("c", {rank(0, 10), waiting(rank(1, 12), 0)}),
              communicator("world", {rank(0, 10), rank(1, 11), rank(2, 12)})}),
      Texts{std::string("rank 0 waits in all_reduce #0 of a for rank 1, which waits in all_reduce #0 of b for rank 2, "
                        "which waits in all_reduce #0 of c for rank 0 (ranks of world), since 14 s") +
            order});
}

// Of equally large communicators that have all ranks the order of the files does not choose.
TEST(WaitGraph, TheCommunicatorThatOthersWereSplitFromNumbersTheRanks) {
  std::vector<JudgedCommunicator> all{communicator("a", {waiting(rank(0, 10), 0), rank(1, 11)}),
                                      communicator("b", {waiting(rank(0, 11), 0), rank(1, 10)}),
                                      communicator("world.2:0", {rank(0, 11), rank(1, 10), rank(2, 12)}),
                                      communicator("world", {rank(0, 10), rank(1, 11), rank(2, 12)})};
  const Texts first = cycles(all);
  std::swap(all[2], all[3]);
  EXPECT_EQ(cycles(all), first);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_NE(first[0].find("(ranks of world)"), std::string::npos) << first[0];
}

// No communicator has all: each number is one of the communicator beside it.
TEST(WaitGraph, RanksWithoutACommonCommunicator) {
  EXPECT_EQ(cycles({communicator("a", {waiting(rank(0, 10), 0), rank(1, 11)}),
                    communicator("b", {waiting(rank(0, 11), 0), rank(1, 12)}),
                    communicator("c", {rank(0, 10), waiting(rank(1, 12), 0)})}),
            Texts{std::string(
                      "rank 0 of a waits in all_reduce #0 of a for rank 1 of a, which waits in all_reduce #0 of b for "
                      "rank 1 of b, which waits in all_reduce #0 of c for rank 0 of c, since 14 s") +
                  order});
}

// Two pairs of ranks cross the same two communicators: that is told once.
TEST(WaitGraph, OneSentenceForTheSameCommunicators) {
  EXPECT_EQ(cycles({communicator("a", {waiting(rank(0, 10), 0), waiting(rank(1, 11), 0), rank(2, 12), rank(3, 13)}),
                    communicator("b", {rank(0, 10), rank(1, 11), waiting(rank(2, 12), 0), waiting(rank(3, 13), 0)})})
                .size(),
            1u);
}

TEST(WaitGraph, SendsAndReceives) {
  EXPECT_EQ(
      cycles({communicator("a", {transferring(rank(0, 10), false, 1), rank(1, 11)}),
              communicator("b", {rank(0, 10), waiting(rank(1, 11), 0)})}),
      Texts{std::string("rank 0 waits in a receive with tag 7 of a for rank 1, which waits in all_reduce #0 of b for "
                        "rank 0, since 3.0 s") +
            order});
  EXPECT_EQ(
      cycles({communicator("a", {transferring(rank(0, 10), true, 1), transferring(rank(1, 11), true, 0)})}),
      Texts{
          "rank 0 waits in a send with tag 7 of a for rank 1, which waits in a send with tag 7 of a for rank 0, since "
          "3.0 s: a cycle; bring the calls into the same order on these ranks, or put the sends and receives into "
          "one group (tutti_exchange)"});
  // They have met: the transport moves nothing, and nobody's order is to blame.
  EXPECT_EQ(cycles({communicator("a", {transferring(rank(0, 10), true, 1), transferring(rank(1, 11), false, 0)})}),
            Texts{});
}

TEST(WaitGraph, ReceivesWithAnyTag) {
  EXPECT_EQ(
      cycles({communicator("a", {transferring(rank(0, 10), false, 1, true), rank(1, 11)}),
              communicator("b", {rank(0, 10), waiting(rank(1, 11), 0)})}),
      Texts{std::string("rank 0 waits in a receive with any tag of a for rank 1, which waits in all_reduce #0 of b for "
                        "rank 0, since 3.0 s") +
            order});
  // It meets a send of whatever tag, and from its side the send meets it.
  RankView receiving = transferring(rank(0, 10), false, 1, true);
  receiving.record.transfers[0].tag = 0;
  EXPECT_EQ(cycles({communicator("a", {receiving, transferring(rank(1, 11), true, 0)})}), Texts{});
}

// Any of the others can end it: there is a cycle only where all of them wait for it.
TEST(WaitGraph, ReceivesFromAnyRank) {
  const RankView receiving = transferring(rank(0, 10), false, any_rank);
  const Texts found{std::string("rank 0 waits in a receive from any rank with tag 7 of a for rank 1, which waits in "
                                "all_reduce #0 of b for rank 0, since 3.0 s") +
                    order};
  EXPECT_EQ(cycles({communicator("a", {receiving, rank(1, 11)}),
                    communicator("b", {rank(0, 10), waiting(rank(1, 11), 0)})}),
            found);
  const auto three = [&](const RankView& second, const RankView& third) {
    return cycles({communicator("a", {receiving, rank(1, 11), rank(2, 12)}),
                   communicator("b", {rank(0, 10), second, third})});
  };
  EXPECT_EQ(three(waiting(rank(1, 11), 0), waiting(rank(2, 12), 0)), found);
  EXPECT_EQ(three(waiting(rank(1, 11), 0), rank(2, 12)), Texts{});  // rank 2 may send
  // Of rank 2 there is no record.
  EXPECT_EQ(cycles({communicator("a", {receiving, rank(1, 11)}, 3),
                    communicator("b", {rank(0, 10), waiting(rank(1, 11), 0)})}),
            Texts{});
  // Rank 2 waits for a rank that goes on.
  EXPECT_EQ(cycles({communicator("a", {receiving, rank(1, 11), rank(2, 12)}),
                    communicator("b", {rank(0, 10), waiting(rank(1, 11), 0)}),
                    communicator("c", {waiting(rank(0, 12), 0), rank(1, 13)})}),
            Texts{});
  // A send that another rank waits in is for it, if the tags are equal.
  RankView sending = transferring(rank(1, 11), true, 0);
  EXPECT_EQ(cycles({communicator("a", {receiving, sending})}), Texts{});
  sending.record.transfers[0].tag = 8;
  EXPECT_EQ(cycles({communicator("a", {receiving, sending})}).size(), 1u);
}

TEST(WaitGraph, DestroyingInsteadOfTheOther) {
  RankView ending = rank(0, 10);
  ending.record.phase = TUTTI_FLIGHT_ENDING;
  ending.record.phase_ns = now - 2e9;
  EXPECT_EQ(
      cycles({communicator("a", {ending, rank(1, 11)}), communicator("b", {rank(0, 10), waiting(rank(1, 11), 0)})}),
      Texts{
          std::string("rank 0 waits in tutti_comm_destroy of a for rank 1, which waits in all_reduce #0 of b for rank "
                      "0, since 2.0 s") +
          order});
}

// Only a call that waits keeps its rank from others.
TEST(WaitGraph, OperationsThatNobodyWaitsFor) {
  RankView begun = waiting(rank(0, 10), 0);
  begun.record.awaited = 0;
  EXPECT_EQ(
      cycles({communicator("a", {begun, rank(1, 11)}), communicator("b", {rank(0, 10), waiting(rank(1, 11), 0)})}),
      Texts{});
  RankView over = done(rank(0, 10), 1);
  over.record.awaited = 1;
  EXPECT_EQ(cycles({communicator("a", {over, rank(1, 11)}), communicator("b", {rank(0, 10), waiting(rank(1, 11), 0)})}),
            Texts{});
}

TEST(WaitGraph, WhatMovesOrIsExplainedIsNoCycle) {
  auto all = crossed();
  all[1].view.ranks[1].moved = true;
  EXPECT_EQ(cycles(all), Texts{});
  all = crossed();
  all[1].view.ranks[0].process = ProcessState::stopped;
  all[1].verdict = judge(all[1].view);
  EXPECT_EQ(cycles(all), Texts{});
}

// Ranks that are threads of one process are told apart by the thread that made the communicator.
TEST(WaitGraph, ThreadsAsRanks) {
  auto all = crossed();
  EXPECT_EQ(cycles(all).size(), 1u);
  for (JudgedCommunicator& c : all)
    for (RankView& r : c.view.ranks) r.record.pid = 10;
  EXPECT_EQ(cycles(all).size(), 1u);
  // A rank that waits in two threads: no cycle with itself.
  EXPECT_EQ(cycles({communicator("a", {waiting(rank(0, 10), 0), rank(1, 11)}),
                    communicator("b", {waiting(rank(0, 10), 0), rank(1, 11)})}),
            Texts{});
}

TEST(HangReport, TellsACycleOnceAndWhatHasEndedLast) {
  auto all = crossed();
  auto ended = communicator("before", {waiting(rank(0, 20), 0), rank(1, 21)});
  for (RankView& r : ended.view.ranks) r.process = ProcessState::gone;
  ended.verdict = judge(ended.view);
  all.insert(all.begin(), {communicator("idle", {rank(0, 30), rank(1, 31)}), ended});
  all.push_back(communicator("late", {waiting(rank(0, 40), 0), rank(1, 41)}));
  HangReport report;
  report.communicators = in_order(std::move(all));
  Texts names;
  for (const auto& entry : report.communicators) names.push_back(entry.view.name);
  EXPECT_EQ(names, (Texts{"world.1", "world.2", "world", "late", "idle", "before"}));
  EXPECT_TRUE(report.trouble());
  EXPECT_EQ(report.communicators[0].verdict.text, report.communicators[1].verdict.text);
  EXPECT_FALSE(report.communicators[4].ended);
  EXPECT_TRUE(report.communicators[5].ended);
  const std::string text = hang_text(report);
  EXPECT_EQ(text.find(order), text.rfind(order)) << text;
  EXPECT_NE(text.find("processes 10, 11\n"), std::string::npos) << text;
  EXPECT_NE(text.find("processes 20, 21, ended\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace info
