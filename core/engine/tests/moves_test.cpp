// SPDX-License-Identifier: Apache-2.0
//
// Every way of moving bytes that a plan tries gives the same results: each call is made often enough to have tried all,
// by ranks as threads, which read each other's memory, and as processes, which fetch it.
#include <sys/wait.h>
#include <tutti/registry.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>

#include "../../tests/harness/ranks.hpp"
#include "engine/plan/move_trial.hpp"

namespace tutti::test {
namespace {

constexpr uint64_t count = 30011;  // 120 KB a block: fragments of 64 KiB, and a rest
constexpr int launches = core::MoveTrial::most_launches() + core::MoveTrial::first_launches + 2;

std::vector<int32_t> contribution(uint32_t rank, uint64_t n, int launch) {
  std::vector<int32_t> values(n);
  for (uint64_t i = 0; i < n; ++i) values[i] = static_cast<int32_t>(rank * 1000003 + i * 7919 + launch);
  return values;
}

// The number of wrong elements of a result made of such blocks.
uint64_t wrong(std::span<const int32_t> out, uint64_t at, const std::vector<int32_t>& expected) {
  uint64_t n = 0;
  for (uint64_t i = 0; i < expected.size(); ++i) n += out[at + i] != expected[i];
  return n;
}

std::vector<int32_t> sum(uint32_t nranks, uint64_t n, int launch) {
  std::vector<int32_t> total(n);
  for (uint32_t rank = 0; rank < nranks; ++rank) {
    const std::vector<int32_t> part = contribution(rank, n, launch);
    for (uint64_t i = 0; i < n; ++i) total[i] += part[i];
  }
  return total;
}

void move_all(Communicator& comm) {
  const uint32_t n = comm.nranks(), me = comm.rank();
  std::vector<int32_t> out(count * n), out2(count * n), one(count);
  for (int k = 0; k < launches; ++k) {
    const std::vector<int32_t> mine = contribution(me, count, k), total = sum(n, count, k);
    comm.all_reduce(mine, one, Op::sum);
    EXPECT_EQ(wrong(one, 0, total), 0u) << k;
    one = mine;
    comm.all_reduce(one, one, Op::sum);
    EXPECT_EQ(wrong(one, 0, total), 0u) << k;
    // Rank 1 changes over to a plan of its own, in place, and so is not in step with the others from then on.
    if (me == 1 && k > 2) {
      std::copy(mine.begin(), mine.end(), out.begin() + count);
      comm.all_gather(std::span<const int32_t>(out).subspan(count, count), out);
    } else {
      comm.all_gather(mine, out);
    }
    for (uint32_t rank = 0; rank < n; ++rank)
      EXPECT_EQ(wrong(out, rank * count, contribution(rank, count, k)), 0u) << k;
    std::vector<int32_t> blocks;
    for (uint32_t to = 0; to < n; ++to) {
      const std::vector<int32_t> block = contribution(me * n + to, count, k);
      blocks.insert(blocks.end(), block.begin(), block.end());
    }
    comm.all_to_all(blocks, out2);
    for (uint32_t rank = 0; rank < n; ++rank)
      EXPECT_EQ(wrong(out2, rank * count, contribution(rank * n + me, count, k)), 0u) << k;
    one = me == 1 ? mine : std::vector<int32_t>(count);
    comm.broadcast(one, 1);
    EXPECT_EQ(wrong(one, 0, contribution(1, count, k)), 0u) << k;
    const std::vector<int32_t> all = contribution(me, count * n, k);
    comm.async().reduce_scatter(all, one, Op::sum).wait();
    const std::vector<int32_t> whole = sum(n, count * n, k);
    EXPECT_EQ(wrong(one, 0, {whole.begin() + me * count, whole.begin() + (me + 1) * count}), 0u) << k;
  }
}

TEST(Moves, OfThreadsAllGiveTheSame) {
  for (const uint32_t n : {2u, 3u}) run_ranks(n, move_all, {.transports = "shm"});
}

void run_processes(const char* algorithms) {
  list_transports();
  std::string folder = std::filesystem::temp_directory_path() / "tutti-moves-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  constexpr uint32_t n = 3;
  std::vector<pid_t> ranks;
  for (uint32_t r = 0; r < n; ++r) {
    ranks.push_back(fork());
    if (ranks.back()) continue;
    try {
      const std::string place = "file:" + folder;
      tutti_comm_config config = config_of(place, r, n);
      config.transports = "shm";
      config.algorithms = algorithms;
      Communicator comm(config);
      move_all(comm);
    } catch (const std::exception& e) {
      ADD_FAILURE() << "rank " << r << ": " << e.what();
    }
    std::_Exit(testing::Test::HasFailure() ? 1 : 0);
  }
  for (const pid_t rank : ranks) {
    int status = 0;
    waitpid(rank, &status, 0);
    EXPECT_EQ(status, 0);
  }
  std::filesystem::remove_all(folder);
}

TEST(Moves, OfProcessesAllGiveTheSame) {
  run_processes(nullptr);
  run_processes("all_gather:ring;broadcast:ring;all_reduce:ring");  // which send on what they receive
}

uint32_t number(const core::Moves& m) {
  return m.zero_copy ? 4u + m.stream_results : (m.stream_slots ? 1u : 0u) + (m.stream_results ? 2u : 0u);
}

// Launches by `trial` until it is over, of `bytes` each, of which those by way w take cost(w, launch). How many were by
// each way.
template <typename Cost>
std::array<uint32_t, 6> carry_out(core::MoveTrial& trial, uint64_t bytes, Cost&& cost) {
  std::array<uint32_t, 6> launched{};
  for (uint32_t k = 0; k < trial.length(); ++k) {
    const uint32_t way = number(trial.next(2));
    ++launched.at(way);
    trial.report(2, cost(way, k) * bytes, bytes);
  }
  return launched;
}

// Each way has its turn, and the fastest is taken.
TEST(Moves, OfWhichTheFastestIsTaken) {
  for (const uint32_t best : {1u, 3u, 4u, 5u}) {
    core::LastTrial last;
    core::MoveTrial trial({1 << 20, true}, last);
    const auto launched = carry_out(trial, 1 << 20, [&](uint32_t way, uint32_t) { return way == best ? 10u : 14u; });
    for (const uint32_t way : {1u, 2u, 3u, 4u, 5u}) EXPECT_EQ(launched[way], way == best ? 4u : 2u) << way;
    EXPECT_EQ(number(trial.next(2)), best);
    EXPECT_EQ(number(trial.next(0)), best) << "a new plan begins with it";
  }
}

// In a large call results pass the caches by, and the way that differs in the transport's memory alone comes first.
TEST(Moves, MostLikeTheUsualOnesComeFirst) {
  core::LastTrial last;
  core::MoveTrial trial({8 << 20, true}, last);
  std::vector<uint32_t> ways;
  carry_out(trial, 8 << 20, [&](uint32_t way, uint32_t) { return ways.push_back(way), way == 2 ? 10u : 20u; });
  ASSERT_GT(ways.size(), 24u);
  for (const uint32_t k : {0u, 1u, 4u, 5u, 8u, 9u}) EXPECT_EQ(ways[k], 2u) << k;
  EXPECT_EQ((std::vector<uint32_t>{ways[6], ways[10], ways[14], ways[18], ways[22]}),
            (std::vector<uint32_t>{3, 4, 5, 0, 1}));
}

TEST(Moves, OfNewPlansAndSmallCallsAreNotTried) {
  core::LastTrial last;
  core::MoveTrial large({1 << 20, true}, last), staged({1 << 20, false}, last), small({4096, true}, last);
  for (uint64_t k = 0; k < core::MoveTrial::most_launches(); ++k) {
    EXPECT_EQ(number(large.next(k % 2)), 0u) << "a new plan takes no part";
    large.report(k % 2, 1, 1 << 20);
    EXPECT_FALSE(staged.next(2).zero_copy);
    staged.report(2, 1, 1 << 20);
    EXPECT_FALSE(small.next(2).zero_copy);
    small.report(2, 1, 4096);
  }
  EXPECT_EQ(number(large.next(2)), 0u);
}

// A way that is far behind has one launch.
TEST(Moves, OfWhichTheSlowestAreTriedOnce) {
  core::LastTrial last;
  core::MoveTrial trial({1 << 20, true}, last);
  const auto launched = carry_out(trial, 1 << 20, [](uint32_t way, uint32_t) { return way == 0 ? 10u : 16u; });
  for (const uint32_t way : {1u, 2u, 3u, 4u, 5u}) EXPECT_EQ(launched[way], 1u) << way;
}

// The way in use is not given up for a launch that was lucky, nor for a small gain.
TEST(Moves, StayAsTheyAreUnlessAnotherIsSurelyFaster) {
  core::LastTrial last;
  core::MoveTrial lucky({1 << 20, true}, last), alike({1 << 20, true}, last);
  carry_out(lucky, 1 << 20, [](uint32_t way, uint32_t k) { return way == 0 || k > 24 ? 10u : 8u; });
  EXPECT_EQ(number(lucky.next(2)), 0u);
  carry_out(alike, 1 << 20, [](uint32_t way, uint32_t) { return way == 0 ? 100u : 91u; });
  EXPECT_EQ(number(alike.next(2)), 0u);
}

// A rank that only sends does not see what its stores cost the receivers.
TEST(Moves, OfARankThatOnlySendsChangeForALargeGain) {
  for (const uint64_t bytes : {1u << 13, 1u << 18, 1u << 20}) {
    for (const uint32_t cost : {80u, 70u}) {
      core::LastTrial last;
      core::MoveTrial trial({bytes, true, true}, last);
      carry_out(trial, bytes, [&](uint32_t way, uint32_t) { return way == 1 ? cost : 100u; });
      EXPECT_EQ(number(trial.next(2)), cost == 70u ? 1u : 0u) << bytes << " " << cost;
    }
  }
}

// Trials of large calls take long, and what the last trial found of the stores into the transport's memory holds for
// them, too. All ranks try the same way at the same launch, whatever each has found.
TEST(Moves, OfALargeCallBeginAsTheLastTrialEnded) {
  core::LastTrial last;
  core::MoveTrial before({1 << 20, false}, last), tells({1 << 14, false}, last);
  EXPECT_FALSE(before.next(2).stream_slots);
  carry_out(tells, 1 << 14, [&](uint32_t way, uint32_t) { return way == 1 ? 10u : 20u; });
  core::MoveTrial large({1 << 20, false}, last), larger({8 << 20, false}, last), small({1 << 15, false}, last);
  EXPECT_EQ(number(large.next(2)), 1u);
  EXPECT_EQ(number(larger.next(2)), 3u);
  EXPECT_EQ(number(small.next(2)), 0u);
  EXPECT_GT(carry_out(large, 1 << 20, [&](uint32_t way, uint32_t) { return way == 0 ? 10u : 20u; })[0], 2u);
  EXPECT_EQ(number(large.next(2)), 0u) << "and has its own end";
  EXPECT_FALSE(last.stream_slots);
  last.stream_slots = true;
  core::MoveTrial one({1 << 20, false}, last);
  last.stream_slots = false;
  core::MoveTrial other({1 << 20, false}, last);
  for (uint32_t k = 0; k < one.length(); ++k) {
    if (k < 16 && k % 4 >= 2) {
      EXPECT_EQ(number(one.next(2)), number(other.next(2))) << k;
    }
    one.report(2, 10, 1);
    other.report(2, 10, 1);
  }
}

// A way that is no faster for the bytes that it moves is not taken because the plans that tried it were smaller.
TEST(Moves, OfPlansOfDifferentSizesAreComparedByBytes) {
  core::LastTrial last;
  core::MoveTrial trial({1 << 20, false}, last);
  for (uint32_t k = 0; k < core::MoveTrial::most_launches(); ++k) {
    const core::Moves moves = trial.next(2);
    const uint64_t bytes = moves.stream_slots ? 1100000 : 2000000;
    trial.report(2, moves.stream_slots ? bytes * 3 : bytes * 2, bytes);
  }
  EXPECT_FALSE(trial.next(2).stream_slots);
}

// A machine changes, and trials cost: so they are made again, ever more rarely.
TEST(Moves, AreTriedAgainEverMoreRarely) {
  core::LastTrial last;
  core::MoveTrial trial({1 << 20, false}, last);
  std::vector<int> begins;
  bool in_slots = false;
  for (int k = 0; k < 20000; ++k) {
    const bool tried = trial.next(2).stream_slots;  // the slower way
    if (tried && !in_slots && (begins.empty() || k - begins.back() > 100)) begins.push_back(k);
    in_slots = tried;
    trial.report(2, tried ? 20 : 10, 1);
  }
  ASSERT_GT(begins.size(), 2u);
  EXPECT_EQ(begins[1] - begins[0], 512);
  EXPECT_EQ(begins[2] - begins[1], 1024);
}

TEST(Moves, AreSharedByPlansLikeEachOther) {
  core::MoveTrials trials(false);
  core::MoveTrial& one = trials.of(3, {1 << 20, true});
  EXPECT_EQ(&trials.of(3, {(2 << 20) - 1, true}), &one);
  EXPECT_NE(&trials.of(3, {2 << 20, true}), &one);
  EXPECT_NE(&trials.of(4, {1 << 20, true}), &one);
  EXPECT_NE(&trials.of(3, {1 << 20, false}), &one);
  EXPECT_NE(&trials.of(3, {1 << 20, true, true}), &one);
}

TEST(Moves, AreNeverByReferenceWhereRanksShareCores) {
  core::MoveTrials apart(false), shared(true);
  for (const bool share : {false, true}) {
    core::MoveTrial& trial = (share ? shared : apart).of(3, {1 << 20, true});
    bool by_reference = false;
    for (int k = 0; k < 600; ++k) {
      const core::Moves moves = trial.next(2);
      by_reference |= moves.zero_copy;
      trial.report(2, moves.zero_copy ? 1 << 20 : 9 << 20, 1 << 20);
    }
    EXPECT_EQ(by_reference, !share);
  }
}

}  // namespace
}  // namespace tutti::test
