// SPDX-License-Identifier: Apache-2.0
//
// Splitting a communicator, ranks as threads. Ranks as processes: split_processes_test.
#include <tutti/registry.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <numeric>

#include "../../../tests/harness/ranks.hpp"
#include "../../../tests/harness/virtual_time/virtual_time.hpp"

namespace tutti::test {
namespace {

// Numbers that differ by rank of the world and by call, so that what comes from another part shows.
void expect_gathered(Communicator& part, uint32_t world_rank, const std::vector<uint32_t>& members, uint32_t call) {
  ASSERT_EQ(part.nranks(), members.size());
  const std::vector<uint32_t> mine(257, world_rank * 1000 + call);
  std::vector<uint32_t> all(mine.size() * members.size()), expected;
  part.all_gather<uint32_t>(mine, all);
  for (const uint32_t member : members) expected.insert(expected.end(), mine.size(), member * 1000 + call);
  EXPECT_EQ(all, expected);
}

std::vector<uint32_t> ranks_where(uint32_t n, const std::function<bool(uint32_t)>& holds) {
  std::vector<uint32_t> ranks;
  for (uint32_t r = 0; r < n; ++r)
    if (holds(r)) ranks.push_back(r);
  return ranks;
}

TEST(Split, PartsWorkBesideEachOtherAndTheWhole) {
  for (const char* transports : {"shm", "tcp"})
    run_ranks(7,
              [](Communicator& world) {
                const uint32_t r = world.rank();
                std::optional<Communicator> third = world.split(r % 3);
                ASSERT_TRUE(third);
                const auto members = ranks_where(7, [&](uint32_t other) { return other % 3 == r % 3; });
                EXPECT_EQ(members[third->rank()], r);
                std::optional<Communicator> half = world.split(r < 4 ? 40 : 3);
                const auto neighbours = ranks_where(7, [&](uint32_t other) { return (other < 4) == (r < 4); });
                std::vector<uint32_t> everybody(7);
                std::iota(everybody.begin(), everybody.end(), 0u);
                for (uint32_t call = 0; call < 20; ++call) {
                  expect_gathered(*third, r, members, call);
                  if (call % 3 == r % 2) expect_gathered(*third, r, members, call + 100);
                  if (call % 3 != r % 2) expect_gathered(*third, r, members, call + 100);
                  expect_gathered(world, r, everybody, call);
                  expect_gathered(*half, r, neighbours, call);
                }
              },
              {.transports = transports});
}

TEST(Split, KeysOrderAndEqualKeysKeepTheOrder) {
  run_ranks(5, [](Communicator& world) {
    const uint32_t r = world.rank();
    std::optional<Communicator> back = world.split(0, -static_cast<int64_t>(r));
    EXPECT_EQ(back->rank(), 4 - r);
    expect_gathered(*back, r, {4, 3, 2, 1, 0}, 1);
    std::optional<Communicator> pairs = world.split(0, INT64_MIN + (r % 2));
    expect_gathered(*pairs, r, {0, 2, 4, 1, 3}, 2);
    Communicator again = pairs->duplicate();
    expect_gathered(again, r, {0, 2, 4, 1, 3}, 3);
  });
}

TEST(Split, ARankMayBeInNone) {
  run_ranks(4, [](Communicator& world) {
    const uint32_t r = world.rank();
    std::optional<Communicator> part = world.split(r == 2 ? TUTTI_NO_COLOR : 1);
    EXPECT_EQ(part.has_value(), r != 2);
    if (part) expect_gathered(*part, r, {0, 1, 3}, 1);
    std::optional<Communicator> alone = world.split(r);
    expect_gathered(*alone, r, {r}, 2);
    EXPECT_FALSE(world.split(TUTTI_NO_COLOR));
  });
}

TEST(Split, NamesAndPlaces) {
  run_ranks(3, [](Communicator& world) {
    std::optional<Communicator> half = world.split(world.rank() % 2), own = world.split(0, 0, "red"),
                                host = world.split_by(TUTTI_SPLIT_BY_HOST);
    EXPECT_EQ(half->name(), "world.1:" + std::to_string(world.rank() % 2));
    EXPECT_EQ(own->name(), "red");
    EXPECT_EQ(host->nranks(), 3u);
    EXPECT_EQ(host->host().local_nranks, 3u);
    own->abort("to see the name");
    const Failed failed = failure_of([&] { own->barrier(); });
    EXPECT_NE(failed.text.find(" in red"), std::string::npos) << failed.text;
    host->abort("to see the name");
    EXPECT_NE(failure_of([&] { host->barrier(); }).text.find(" in world.3:host0"), std::string::npos);
    world.barrier();
  });
}

TEST(Split, PartsOutliveTheirParentsAndCanBeSplit) {
  run_ranks(8, [](Communicator& world) {
    const uint32_t r = world.rank();
    std::optional<Communicator> pair;
    {
      std::optional<Communicator> half = world.split(r / 4);
      pair = half->split(half->rank() % 2, r);
    }
    Communicator(std::move(world));  // is destroyed
    const uint32_t first = r / 4 * 4 + r % 2;
    for (uint32_t call = 0; call < 5; ++call) expect_gathered(*pair, r, {first, first + 2}, call);
    std::optional<Communicator> last = pair->split(0);
    expect_gathered(*last, r, {first, first + 2}, 9);
  });
}

// Each rank uses three communicators of one family in a thread each.
TEST(Split, ThreadsUseTheirOwnParts) {
  run_ranks(4, [](Communicator& world) {
    const uint32_t r = world.rank();
    std::array<std::optional<Communicator>, 3> parts;
    for (auto& part : parts) part = world.split(r % 2);
    const std::vector<uint32_t> members = {r % 2, r % 2 + 2};
    std::vector<std::thread> threads;
    for (auto& part : parts)
      threads.emplace_back([&] {
        for (uint32_t call = 0; call < 50; ++call) expect_gathered(*part, r, members, call);
      });
    for (uint32_t call = 0; call < 50; ++call) expect_gathered(world, r, {0, 1, 2, 3}, call);
    for (std::thread& thread : threads) thread.join();
  });
}

TEST(Split, PendingOperationsGoOn) {
  run_ranks(3, [](Communicator& world) {
    std::vector<int64_t> data(100'000, world.rank() + 1);
    Request pending = world.async().all_reduce<int64_t>(data, data, Op::sum);
    std::optional<Communicator> part = world.split(world.rank() % 2);
    part->barrier();
    pending.wait();
    EXPECT_EQ(data, std::vector<int64_t>(data.size(), 6));
  });
}

// ---- Wrong calls ---------------------------------------------------------------------------------------------

// All ranks get the status and the text, which has these words, and the communicator stays usable.
void expect_refused(uint32_t nranks, const std::function<void(uint32_t rank, tutti_split& how)>& change,
                    tutti_status status, const std::vector<std::string>& words) {
  run_ranks(nranks, [&](Communicator& world) {
    tutti_split how{};
    how.struct_size = sizeof how;
    change(world.rank(), how);
    tutti_comm* part = world.handle();
    EXPECT_EQ(tutti_comm_split(world.handle(), &how, &part), status);
    EXPECT_EQ(part, nullptr);
    for (const std::string& word : words)
      EXPECT_NE(world.error_text().find(word), std::string::npos) << word << " is not in: " << world.error_text();
    EXPECT_EQ(world.async_error(), TUTTI_OK);
    EXPECT_EQ(world.split(0)->nranks(), nranks);
  });
}

TEST(SplitRefuses, WhatOneRankSaysWrong) {
  expect_refused(3, [](uint32_t r, tutti_split& how) { how.by = r == 1 ? 4 : 0; }, TUTTI_INVALID_ARGUMENT,
                 {"tutti_comm_split: rank 1: by is 4, expected one of TUTTI_SPLIT_BY_*, 0 to 3"});
  expect_refused(3, [](uint32_t r, tutti_split& how) { how.flags = r == 2 ? 8 : 0; }, TUTTI_NOT_SUPPORTED,
                 {"tutti_comm_split: rank 2: flags is 0x8, expected 0"});
}

TEST(SplitRefuses, RanksThatDoNotGoTogether) {
  expect_refused(3, [](uint32_t r, tutti_split& how) { how.by = r == 2 ? TUTTI_SPLIT_BY_HOST : TUTTI_SPLIT_BY_COLOR; },
                 TUTTI_MISMATCH, {"rank 0 splits by 0, rank 2 by 1: expected the same on all ranks"});
  expect_refused(4,
                 [](uint32_t r, tutti_split& how) {
                   how.color = r % 2;
                   how.name = r == 3 ? "blue" : "green";
                 },
                 TUTTI_MISMATCH,
                 {"cannot make its part of world: rank 1 calls it \"green\", rank 3 \"blue\": expected one name"});
}

TEST(SplitRefuses, WhatConcernsTheCallerAlone) {
  run_ranks(1, [](Communicator& world) {
    EXPECT_EQ(tutti_comm_split(world.handle(), nullptr, nullptr), TUTTI_INVALID_ARGUMENT);
    EXPECT_NE(world.error_text().find("split: part is NULL"), std::string::npos);
    tutti_split unset{};
    tutti_comm* part = nullptr;
    EXPECT_EQ(tutti_comm_split(world.handle(), &unset, &part), TUTTI_INVALID_ARGUMENT);
    EXPECT_NE(world.error_text().find("tutti_split.struct_size"), std::string::npos) << world.error_text();
    EXPECT_EQ(tutti_comm_split(nullptr, nullptr, &part), TUTTI_INVALID_ARGUMENT);
  });
}

TEST(SplitRefuses, AnotherCallOnOtherRanks) {
  run_ranks(2,
            [](Communicator& world) {
              const Failed failed = failure_of([&] {
                if (world.rank() == 0) world.split(0);
                std::vector<int> memory(1);
                const Window window(world, memory);
              });
              EXPECT_EQ(failed.status, TUTTI_MISMATCH) << failed.text;
              EXPECT_NE(failed.text.find("tutti_comm_split"), std::string::npos) << failed.text;
            },
            {.timeout_ns = 20'000'000'000});
}

// ---- Failures ------------------------------------------------------------------------------------------------

TEST(SplitFailures, AnAbortConcernsOnePartAlone) {
  run_ranks(4, [](Communicator& world) {
    const uint32_t r = world.rank();
    std::optional<Communicator> half = world.split(r / 2), all = world.split(0);
    if (r == 0) half->abort("the first half is wrong");
    if (r < 2) {
      const Failed failed = failure_of([&] {
        for (;;) half->barrier();
      });
      EXPECT_EQ(failed.status, TUTTI_ABORTED);
      EXPECT_TRUE(failed.text.starts_with("rank 0 aborted: the first half is wrong")) << failed.text;
    } else {
      expect_gathered(*half, r, {2, 3}, 1);
    }
    expect_gathered(world, r, {0, 1, 2, 3}, 2);
    expect_gathered(*all, r, {0, 1, 2, 3}, 3);
    if (r < 2) {
      Communicator next = half->shrink();  // nobody has gone
      EXPECT_EQ(next.nranks(), 2u);
    }
  });
}

TEST(SplitFailures, TheParentMayBreakWhilePartsGoOn) {
  run_ranks(3, [](Communicator& world) {
    std::optional<Communicator> all = world.split(5);
    all->barrier();  // all have it
    if (world.rank() == 2) world.abort("the parent is not needed");
    EXPECT_EQ(failure_of([&] {
                for (;;) world.barrier();
              }).status,
              TUTTI_ABORTED);
    const uint32_t r = world.rank();
    for (uint32_t call = 0; call < 10; ++call) expect_gathered(*all, r, {0, 1, 2}, call);
    EXPECT_EQ(failure_of([&] { world.split(0); }).status, TUTTI_ABORTED);
    std::optional<Communicator> pair = all->split(r == 1 ? TUTTI_NO_COLOR : 0);
    if (pair) expect_gathered(*pair, r, {0, 2}, 11);
  });
}

// Rank 2 has its part and aborts the parent at once: the others have theirs, or the part ends for all, soon.
TEST(SplitFailures, AnAbortOnTheWayLeavesNobodyWaiting) {
  uint32_t without = 0;
  std::mutex mutex;
  for (uint32_t round = 0; round < 40; ++round) {
    std::vector<tutti_status> ends(3, TUTTI_INTERNAL);
    run_ranks(3, [&](Communicator& world) {
      tutti_status end = TUTTI_OK;
      try {
        std::optional<Communicator> all = world.split(5);
        if (world.rank() == 2) world.abort("the parent is not needed");
        expect_gathered(*all, world.rank(), {0, 1, 2}, round);
      } catch (const Error& error) {
        end = error.status();
      }
      const std::lock_guard lock(mutex);
      ends[world.rank()] = end;
    });
    for (const tutti_status end : ends) EXPECT_TRUE(end == TUTTI_OK || end == TUTTI_ABORTED) << end;
    without += ends[0] != TUTTI_OK || ends[1] != TUTTI_OK;
  }
  std::cout << without << " of 40 splits did not end before the abort\n";
}

TEST(SplitFailures, ARankThatDoesNotComeIsNamed) {
  const VirtualTime time;
  run_ranks(2, [&](Communicator& world) {
    if (world.rank() == 1) {
      EXPECT_EQ(failure_of([&] {
                  while (world.async_error() == TUTTI_OK) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                  world.barrier();
                }).status,
                TUTTI_TIMEOUT);
      return;
    }
    tutti_split how{};
    how.struct_size = sizeof how;
    how.timeout_ns = 45'000'000'000;
    tutti_comm* part = nullptr;
    const auto begin = time.passed();
    EXPECT_EQ(tutti_comm_split(world.handle(), &how, &part), TUTTI_TIMEOUT);
    EXPECT_GE(time.passed() - begin, std::chrono::seconds(45));
    EXPECT_LT(time.passed() - begin, late(std::chrono::seconds(45)));
    const char* const late_rank = "rank 1 did not come to tutti_comm_split within 45.0 s (the call's timeout)";
    EXPECT_NE(world.error_text().find(late_rank), std::string::npos) << world.error_text();
  });
}

}  // namespace
}  // namespace tutti::test
