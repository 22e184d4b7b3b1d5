// SPDX-License-Identifier: Apache-2.0
//
// Groups of calls on host memory: sends, receives and collectives that begin and end together. Ranks as threads.
#include <algorithm>
#include <map>
#include <numeric>
#include <span>

#include "../../../tests/harness/ranks.hpp"

namespace tutti::test {
namespace {

int64_t value(uint32_t rank, size_t i, int call) { return rank * 1000 + static_cast<int64_t>(i) * 7 + call * 13; }

std::vector<int64_t> values(uint32_t rank, size_t n, int call) {
  std::vector<int64_t> made(n);
  for (size_t i = 0; i < n; ++i) made[i] = value(rank, i, call);
  return made;
}

std::map<std::string, uint64_t> calls_of(const Communicator& world) {
  std::map<std::string, uint64_t> calls;
  for (const tutti_service& row : world.services()) calls[row.collective] += row.calls;
  return calls;
}

// Calls of every kind, several of each, of lengths that are joined and lengths that are not.
struct Everything {
  Everything(const Communicator& on, std::vector<size_t> of_lengths) : world(on), lengths(std::move(of_lengths)) {
    for (size_t k = 0; k < lengths.size(); ++k) {
      const size_t m = lengths[k];
      const int call = static_cast<int>(k);
      in.push_back(values(rank, n * m, call));
      for (auto* outs : {&sum, &reduced, &scan, &before, &root_only, &part, &mine}) outs->emplace_back(m, int64_t{-1});
      for (auto* outs : {&all, &gathered, &swapped}) outs->emplace_back(n * m, int64_t{-1});
      same.push_back(rank == n - 1 ? values(rank, m, call) : std::vector<int64_t>(m));
      in_place.push_back(values(rank, m, call));
      ring_out.push_back(values(rank, m, call));
      ring_in.emplace_back(m, int64_t{-1});
    }
  }
  void make() {
    for (size_t k = 0; k < lengths.size(); ++k) {
      const std::span<const int64_t> block(in[k].data(), lengths[k]);
      const uint32_t tag = static_cast<uint32_t>(k);
      world.all_reduce(block, std::span(sum[k]), Op::sum);
      world.broadcast(same[k], n - 1);
      world.all_gather(block, std::span(all[k]));
      world.reduce(block, std::span(rank == 0 ? reduced[k] : root_only[k]), Op::max, 0);
      world.all_to_all(in[k], swapped[k]);
      world.reduce_scatter(in[k], part[k], Op::sum);
      world.gather(block, std::span(rank == n - 1 ? gathered[k] : root_only[k]), n - 1);
      world.scatter(in[k], mine[k], 0);
      world.scan(block, std::span(scan[k]), Op::sum);
      world.exclusive_scan(block, std::span(before[k]), Op::sum);
      world.all_reduce(in_place[k], in_place[k], Op::sum);
      world.barrier();
      world.send(ring_out[k], (rank + 1) % n, tag);
      world.receive(ring_in[k], (rank + n - 1) % n, tag);
    }
  }
  void check() const {
    for (size_t k = 0; k < lengths.size(); ++k) {
      const size_t m = lengths[k];
      const int call = static_cast<int>(k);
      for (const size_t i : {size_t{0}, m / 2, m - 1}) {
        if (m == 0) break;
        int64_t total = 0, up_to = 0, own = 0;
        for (uint32_t r = 0; r < n; ++r) {
          total += value(r, i, call);
          if (r < rank) up_to += value(r, i, call);
          own += value(r, rank * m + i, call);
          ASSERT_EQ(all[k][r * m + i], value(r, i, call));
          ASSERT_EQ(swapped[k][r * m + i], value(r, rank * m + i, call));
          ASSERT_TRUE(rank != n - 1 || gathered[k][r * m + i] == value(r, i, call));
        }
        ASSERT_EQ(sum[k][i], total);
        ASSERT_EQ(in_place[k][i], total);
        ASSERT_EQ(same[k][i], value(n - 1, i, call));
        ASSERT_EQ(part[k][i], own);
        ASSERT_EQ(mine[k][i], value(0, rank * m + i, call));
        ASSERT_EQ(scan[k][i], up_to + value(rank, i, call));
        ASSERT_EQ(before[k][i], rank == 0 ? -1 : up_to) << "rank 0 has no result";
        ASSERT_EQ(ring_in[k][i], value((rank + n - 1) % n, i, call));
        ASSERT_TRUE(rank != 0 || reduced[k][i] == value(n - 1, i, call));
      }
    }
  }

  const Communicator& world;
  uint32_t rank = world.rank(), n = world.nranks();
  std::vector<size_t> lengths;
  std::vector<std::vector<int64_t>> in, sum, reduced, scan, before, root_only, part, mine, all, gathered, swapped, same,
      in_place, ring_out, ring_in;
};

TEST(CallGroups, CallsOfEveryKindBeginAndEndTogether) {
  for (const char* transports : {"shm", "tcp"})
    for (const uint32_t n : {1u, 2u, 3u, 5u})
      run_ranks(n,
                [](Communicator& world) {
                  Everything blocking(world, {3, 0, 40, 1, 5000});
                  world.group([&] { blocking.make(); });
                  blocking.check();
                  Everything asked(world, {700, 2, 2});
                  Request request = world.async().group([&] { asked.make(); });
                  world.barrier();
                  request.wait();
                  asked.check();
                },
                {.transports = transports});
}

// A hundred sums of one element each take one call, as do those of other lengths; those of another type do not join.
TEST(CallGroups, SmallCallsOfOneKindTravelAsOne) {
  run_ranks(3, [](Communicator& world) {
    std::vector<int64_t> one(100, world.rank()), out(100), some(33, world.rank()), sums(33);
    std::vector<double> other(4, 0.5), halves(4);
    std::vector<int64_t> large(100'000, 1), twice(100'000);
    world.group([&] {
      for (size_t i = 0; i < one.size(); ++i)
        world.all_reduce(std::span<const int64_t>(&one[i], 1), std::span(&out[i], 1), Op::sum);
      world.all_reduce(large, twice, Op::sum);
      world.all_reduce(other, halves, Op::sum);
      world.all_reduce(some, sums, Op::sum);
    });
    EXPECT_EQ(out, std::vector<int64_t>(100, 3));
    EXPECT_EQ(sums, std::vector<int64_t>(33, 3));
    EXPECT_EQ(halves, std::vector<double>(4, 1.5));
    EXPECT_EQ(twice, std::vector<int64_t>(100'000, 3));
    EXPECT_EQ(calls_of(world)["all_reduce"], 3u);
  });
}

TEST(CallGroups, UnequalBlocksAndOperatorsOfTheApplication) {
  run_ranks(2, [](Communicator& world) {
    const uint32_t rank = world.rank();
    tutti_op_config config{sizeof config};
    config.name = "add";
    config.function = [](void* inout, const void* in, uint64_t count, uint32_t, void*) -> tutti_status {
      for (uint64_t i = 0; i < count; ++i) static_cast<int64_t*>(inout)[i] += static_cast<const int64_t*>(in)[i];
      return TUTTI_OK;
    };
    uint32_t add = 0;
    ASSERT_EQ(tutti_op_create(world.handle(), &config, &add), TUTTI_OK);
    std::vector<int64_t> first = values(rank, 1 + rank, 1), second = values(rank, 4 - 3 * rank, 2), all1(3), all2(5);
    int64_t in = rank + 5, out = 0;
    Request request = world.async().group([&] {
      world.all_gather_v(first, all1, {std::vector<uint64_t>{1, 2}});
      world.all_gather_v(second, all2, {std::vector<uint64_t>{4, 1}});
      ASSERT_EQ(tutti_all_reduce(world.handle(), &in, &out, 1, TUTTI_INT64, add, nullptr, nullptr), TUTTI_OK);
      EXPECT_EQ(tutti_op_free(world.handle(), add), TUTTI_INVALID_USAGE) << "the group may use it";
    });
    request.wait();
    EXPECT_EQ(all1, (std::vector<int64_t>{value(0, 0, 1), value(1, 0, 1), value(1, 1, 1)}));
    EXPECT_EQ(all2[3], value(0, 3, 2));
    EXPECT_EQ(all2[4], value(1, 0, 2));
    EXPECT_EQ(out, 11);
    EXPECT_EQ(tutti_op_free(world.handle(), add), TUTTI_OK) << tutti_comm_error(world.handle());
  });
}

TEST(CallGroups, APersistentGroupStartsAgain) {
  run_ranks(2, [](Communicator& world) {
    const uint32_t rank = world.rank(), other = 1 - rank;
    int64_t a = 0, b = 0, sums[2] = {}, got = 0;
    Request request = world.async().group(
        [&] {
          world.all_reduce(std::span<const int64_t>(&a, 1), std::span(&sums[0], 1), Op::sum);
          world.all_reduce(std::span<const int64_t>(&b, 1), std::span(&sums[1], 1), Op::sum);
          world.send(std::span<const int64_t>(&a, 1), other, 7);
          world.receive(std::span(&got, 1), other, 7);
        },
        {.persistent = true});
    EXPECT_TRUE(request.test());
    for (int64_t round = 1; round < 6; ++round) {
      a = round + rank;
      b = 10 * round;
      request.start();
      request.wait();
      EXPECT_EQ(sums[0], 2 * round + 1);
      EXPECT_EQ(sums[1], 20 * round);
      EXPECT_EQ(got, round + other);
    }
    EXPECT_EQ(calls_of(world)["all_reduce"], 5u);
  });
}

// The factor of a premul_sum is that of the call: the operator may be freed at once.
TEST(CallGroups, APersistentGroupKeepsItsFactors) {
  run_ranks(2, [](Communicator& world) {
    const float factor = world.rank() ? 10 : 0.5f;
    uint32_t op = 0;
    ASSERT_EQ(tutti_op_create_premul_sum(world.handle(), TUTTI_FLOAT32, &factor, &op), TUTTI_OK);
    float in = 0, out = 0;
    Request request = world.async().group(
        [&] {
          ASSERT_EQ(tutti_all_reduce(world.handle(), &in, &out, 1, TUTTI_FLOAT32, op, nullptr, nullptr), TUTTI_OK);
        },
        {.persistent = true});
    ASSERT_EQ(tutti_op_free(world.handle(), op), TUTTI_OK) << tutti_comm_error(world.handle());
    for (float round = 1; round < 4; ++round) {
      in = round;
      request.start();
      request.wait();
      EXPECT_EQ(out, 10.5f * round);
    }
  });
}

TEST(CallGroups, ACallThatIsRefusedIsNotInTheGroup) {
  run_ranks(2, [](Communicator& world) {
    tutti_comm* comm = world.handle();
    int64_t in = 1, out = 0;
    tutti_request* request = nullptr;
    EXPECT_EQ(tutti_group_end(comm, nullptr, nullptr), TUTTI_INVALID_USAGE);
    EXPECT_EQ(tutti_group_cancel(comm), TUTTI_INVALID_USAGE);
    ASSERT_EQ(tutti_group_begin(comm), TUTTI_OK);
    EXPECT_EQ(tutti_group_begin(comm), TUTTI_INVALID_USAGE);
    EXPECT_NE(std::string(tutti_comm_error(comm)).find("a group of 0 calls is open"), std::string::npos);
    EXPECT_EQ(tutti_all_reduce(comm, &in, &out, 1, 99, TUTTI_SUM, nullptr, nullptr), TUTTI_INVALID_ARGUMENT);
    EXPECT_EQ(tutti_all_reduce(comm, &in, &out, 1, TUTTI_INT64, TUTTI_SUM, nullptr, &request), TUTTI_INVALID_ARGUMENT);
    EXPECT_NE(std::string(tutti_comm_error(comm)).find("tutti_group_end"), std::string::npos) << tutti_comm_error(comm);
    EXPECT_EQ(request, nullptr);
    tutti_options options{sizeof options};
    options.flags = TUTTI_PERSISTENT;
    EXPECT_EQ(tutti_barrier(comm, &options, &request), TUTTI_INVALID_ARGUMENT);
    ASSERT_EQ(tutti_all_reduce(comm, &in, &out, 1, TUTTI_INT64, TUTTI_SUM, nullptr, nullptr), TUTTI_OK);
    EXPECT_EQ(out, 0) << "nothing has begun";
    ASSERT_EQ(tutti_group_end(comm, nullptr, nullptr), TUTTI_OK) << tutti_comm_error(comm);
    EXPECT_EQ(out, 2);
    options.flags = 0;
    options.stream = &out;
    ASSERT_EQ(tutti_group_begin(comm), TUTTI_OK);
    EXPECT_EQ(tutti_group_end(comm, &options, nullptr), TUTTI_INVALID_ARGUMENT);
    EXPECT_EQ(tutti_group_cancel(comm), TUTTI_INVALID_USAGE) << "it has ended";
    world.barrier();
  });
}

TEST(CallGroups, WhatDoesNotFitTogetherEndsTheGroupBeforeItBegins) {
  run_ranks(2, [](Communicator& world) {
    std::vector<int64_t> data(8);
    const uint32_t other = 1 - world.rank();
    const Failed overlap = failure_of([&] {
      world.group([&] {
        world.receive(std::span(data).first(5), other, 1);
        world.receive(std::span(data).last(5), other, 2);
      });
    });
    EXPECT_EQ(overlap.status, TUTTI_INVALID_ARGUMENT);
    EXPECT_NE(overlap.text.find("overlap"), std::string::npos) << overlap.text;
    const Failed alone = failure_of([&] { world.group([&] { world.send(data, world.rank(), 1); }); });
    EXPECT_EQ(alone.status, TUTTI_INVALID_ARGUMENT);
    world.barrier();
  });
}

// An exception forgets the calls, on all ranks alike, and the communicator goes on.
TEST(CallGroups, AnExceptionForgetsTheCalls) {
  run_ranks(2, [](Communicator& world) {
    std::vector<int64_t> data(4, 1), out(4);
    EXPECT_THROW(world.group([&] {
      world.all_reduce(data, out, Op::sum);
      throw std::runtime_error("enough");
    }),
                 std::runtime_error);
    world.all_reduce(data, out, Op::sum);
    EXPECT_EQ(out[0], 2);
    EXPECT_EQ(calls_of(world)["all_reduce"], 1u);
  });
}

TEST(CallGroups, OneThatIsNeverEndedEndsTheCommunicator) {
  std::vector<tutti_status> ends(2);
  std::vector<std::string> texts(2);
  const std::string place = fresh_place();
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      std::vector<char> text(1000);
      tutti_comm_config config = config_of(place, r, 2);
      tutti_comm* comm = nullptr;
      ASSERT_EQ(tutti_comm_create(&config, &comm), TUTTI_OK);
      int64_t in = 1, out = 0;
      if (r == 0) {
        ASSERT_EQ(tutti_group_begin(comm), TUTTI_OK);
        ASSERT_EQ(tutti_all_reduce(comm, &in, &out, 1, TUTTI_INT64, TUTTI_SUM, nullptr, nullptr), TUTTI_OK);
      } else {
        EXPECT_EQ(tutti_all_reduce(comm, &in, &out, 1, TUTTI_INT64, TUTTI_SUM, nullptr, nullptr), TUTTI_ABORTED);
        texts[r] = tutti_comm_error(comm);
      }
      ends[r] = tutti_comm_destroy(comm);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ends[0], TUTTI_ABORTED);
  EXPECT_NE(texts[1].find("a group of 1 calls that was never ended"), std::string::npos) << texts[1];
}

// A rank that goes away ends the whole group, with its reason.
TEST(CallGroups, AFailureEndsAllOfIt) {
  run_ranks(2, [](Communicator& world) {
    if (world.rank() == 1) {
      world.abort("test: enough");
      return;
    }
    std::vector<int64_t> data(5000, 1), out(5000), got(10);
    const Failed failed = failure_of([&] {
      for (int i = 0; i < 1000; ++i)
        world.group([&] {
          world.all_reduce(data, out, Op::sum);
          world.all_reduce(std::span(data).first(3), std::span(got).first(3), Op::sum);
          world.all_reduce(std::span(data).first(3), std::span(got).last(3), Op::sum);
          world.receive(std::span(got).subspan(4, 1), 1);
        });
    });
    EXPECT_EQ(failed.status, TUTTI_ABORTED);
    EXPECT_NE(failed.text.find("test: enough"), std::string::npos) << failed.text;
  });
}

TEST(CallGroups, CheckedModeComparesThem) {
  run_ranks(2,
            [](Communicator& world) {
              std::vector<int32_t> data(4, 1), out(4), more(2, 3), sums(2);
              const auto both = [&](Op op) {
                world.group([&] {
                  world.all_reduce(data, out, op);
                  world.all_reduce(more, sums, op);
                });
              };
              both(Op::sum);
              EXPECT_EQ(sums[1], 6);
              const Failed failed = failure_of([&] { both(world.rank() == 0 ? Op::min : Op::max); });
              EXPECT_EQ(failed.status, TUTTI_MISMATCH);
            },
            {.flags = TUTTI_COMM_CHECK_CALLS});
}

}  // namespace
}  // namespace tutti::test
