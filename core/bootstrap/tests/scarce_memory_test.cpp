// SPDX-License-Identifier: Apache-2.0
//
// A thread that lacks memory while it carries messages of ranks: none is lost, none comes changed.
#include "harness/scarce_memory.hpp"

#include "bootstrap/pair_ledger.hpp"
#include "meeting_fixture.hpp"

namespace tutti::core::test {
namespace {

using tutti::test::allocations_left;
using tutti::test::failed;
using tutti::test::lasts;

// Too long for the place that a std::string has in itself.
const std::string kWords(100, 'w');

std::vector<std::unique_ptr<Bootstrap>> two_ranks() {
  std::vector<std::unique_ptr<Bootstrap>> ranks(2);
  expect_no_failures(run_ranks(2, [&](uint32_t rank) {
    Rendezvous meeting;
    meeting.where = "local:scarce";
    meeting.rank = rank;
    meeting.nranks = 2;
    ranks[rank] = make_bootstrap(meeting, 60s);
  }));
  return ranks;
}

std::string the_one_of(const std::vector<PairMessage>& all) {
  return all.size() == 1 ? all[0].bytes : std::to_string(all.size()) + " messages";
}

// Rank 0 asks; while its thread delivers that, rank 1 sends, which rank 0's thread delivers, too. It lacks memory at
// its n-th allocation from there on. True when it came to that.
bool deliver_for_another(int64_t n, bool for_good) {
  const auto ranks = two_ranks();
  ControlPlane &poor = ranks[0]->control(), &other = ranks[1]->control();
  bool sent = false;
  other.answer_roll_calls([&] {
    if (std::exchange(sent, true)) return std::string();
    std::thread([&] { other.send_pair(0, kWords); }).join();
    failed = false;
    lasts = for_good;
    allocations_left = n;
    return std::string();
  });
  try {
    poor.roll_call(0s);
  } catch (const std::bad_alloc&) {
  }
  allocations_left = -1;
  const bool came_to_it = failed;
  if (for_good) poor.send_notice(NoticeKind::calls, "the next that sends");
  EXPECT_EQ(the_one_of(poor.take_pair_messages()), kWords)
      << "allocation " << n << (for_good ? " and all that follow" : "");
  return came_to_it;
}

TEST(ScarceMemory, WhoDeliversForAnotherRankLosesNothing) {
  for (const bool for_good : {false, true}) {
    int64_t n = 0;
    while (deliver_for_another(n, for_good) && !HasFailure()) ++n;
    EXPECT_GT(n, 3);
  }
}

TEST(ScarceMemory, WhatIsTakenIsNotLostAndItsSenderIsTold) {
  int64_t n = 0;
  for (bool came_to_it = true; came_to_it && !HasFailure(); ++n) {
    const auto ranks = two_ranks();
    ControlPlane &poor = ranks[0]->control(), &other = ranks[1]->control();
    other.send_pair(0, kWords);
    failed = lasts = false;
    allocations_left = n;
    const auto all = poor.take_pair_messages();
    allocations_left = -1;
    EXPECT_EQ(the_one_of(all), kWords) << "allocation " << n;
    came_to_it = failed;
    if (poor.has_pair_messages()) {
      EXPECT_EQ(the_one_of(poor.take_pair_messages()), "0 messages");
    }
    other.await_taken(0, 0s);
    for (uint64_t i = 0; i < kMaxPairsUntaken; ++i) other.send_pair(0, kWords);  // as many as only then are allowed
  }
  EXPECT_GT(n, 1);
}

TEST(ScarceMemory, ALedgerMayBeGivenAMessageAgain) {
  PairLedger ledger;
  constexpr uint64_t kMessages = 20;
  for (uint64_t number = 1; number <= kMessages; ++number)
    for (int64_t n = 0;; ++n) try {
        failed = lasts = false;
        allocations_left = n;
        ledger.receive(1, number, kWords);
        allocations_left = -1;
        break;
      } catch (const std::bad_alloc&) {
      }
  const auto all = ledger.take();
  ASSERT_EQ(all.size(), kMessages);
  for (const PairMessage& message : all) EXPECT_EQ(message.bytes, kWords);
}

}  // namespace
}  // namespace tutti::core::test
