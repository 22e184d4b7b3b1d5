// SPDX-License-Identifier: Apache-2.0
//
// Persistent requests on host memory: calls that are checked once and started again and again. Ranks as threads.
#include <array>
#include <barrier>
#include <chrono>
#include <span>

#include "../../../tests/harness/ranks.hpp"

namespace tutti::test {
namespace {

using std::chrono::seconds;

constexpr Options persistent{.persistent = true};

int64_t value(uint32_t rank, size_t i, int round) { return rank * 1000 + static_cast<int64_t>(i) * 7 + round * 13; }

// Where it is: a persistent call has its address.
void fill(std::span<int64_t> data, uint32_t rank, int round) {
  for (size_t i = 0; i < data.size(); ++i) data[i] = value(rank, i, round);
}

std::vector<int64_t> values(uint32_t rank, size_t n, int round) {
  std::vector<int64_t> made(n);
  fill(made, rank, round);
  return made;
}

int64_t sum_of(uint32_t ranks, size_t i, int round) {
  int64_t sum = 0;
  for (uint32_t r = 0; r < ranks; ++r) sum += value(r, i, round);
  return sum;
}

// Started in turn, with other data each time, between calls that are not persistent.
TEST(Persistent, CollectivesStartAgainWithNewData) {
  for (const char* transports : {"shm", "tcp"})
    for (const uint32_t n : {1u, 2u, 5u})
      for (const size_t count : {size_t{1}, size_t{3000}, size_t{200'000}})
        run_ranks(n,
                  [&](Communicator& world) {
                    const uint32_t rank = world.rank();
                    std::vector<int64_t> in(count), sum(count), all(n * count), same(count);
                    Request reduces = world.async().all_reduce(in, sum, Op::sum, persistent);
                    Request gathers = world.async().all_gather(in, all, persistent);
                    Request spreads = world.async().broadcast(same, n - 1, persistent);
                    EXPECT_TRUE(reduces.test()) << "one that was not started is complete";
                    for (int round = 0; round < 4; ++round) {
                      fill(in, rank, round);
                      if (rank == n - 1) fill(same, rank, round);
                      reduces.start();
                      gathers.start();
                      spreads.start();
                      reduces.wait();
                      gathers.wait();
                      spreads.wait();
                      EXPECT_EQ(same, values(n - 1, count, round));
                      for (const size_t i : {size_t{0}, count / 2, count - 1}) {
                        ASSERT_EQ(sum[i], sum_of(n, i, round));
                        for (uint32_t r = 0; r < n; ++r) ASSERT_EQ(all[r * count + i], value(r, i, round));
                      }
                      world.barrier();
                    }
                  },
                  {.transports = transports});
}

// The arrays of the call are copied, and other calls of the collective do not change the plan.
// Making a request is local: ranks may plan calls of one size class in orders of their own, and choose alike.
TEST(Persistent, RanksMakeRequestsInOrdersOfTheirOwn) {
  for (const uint32_t n : {2u, 3u, 4u})
    run_ranks(n, [&](Communicator& world) {
      for (size_t smallest = 128; smallest <= 65536; smallest *= 2) {
        const std::array<size_t, 2> counts{smallest, 2 * smallest - 1};
        std::array<std::vector<float>, 2> in, out;
        std::array<Request, 2> requests;
        for (size_t made = 0; made < 2; ++made) {
          const size_t i = world.rank() == 0 ? made : 1 - made;
          in[i].assign(counts[i], 1);
          out[i].resize(counts[i]);
          requests[i] = world.async().all_reduce(in[i], out[i], Op::sum, persistent);
        }
        for (size_t i = 0; i < 2; ++i) {
          requests[i].start();
          requests[i].wait();
          EXPECT_EQ(out[i], std::vector<float>(counts[i], static_cast<float>(n)));
        }
      }
    });
}

TEST(Persistent, UnequalBlocksKeepTheirCounts) {
  run_ranks(3, [](Communicator& world) {
    const uint32_t rank = world.rank();
    std::vector<uint64_t> counts{2, 0, 5};
    std::vector<int64_t> in(counts[rank]), all(7), other(3);
    Request gathers = world.async().all_gather_v(in, all, {counts}, persistent);
    counts.assign(3, 77);
    for (int round = 0; round < 3; ++round) {
      world.all_gather_v(std::vector<int64_t>{value(rank, 0, round)}, other, {std::vector<uint64_t>{1, 1, 1}});
      fill(in, rank, round);
      gathers.start();
      gathers.wait();
      EXPECT_EQ(all[1], value(0, 1, round));
      EXPECT_EQ(all[2], value(2, 0, round));
      EXPECT_EQ(all[6], value(2, 4, round));
      EXPECT_EQ(other, (std::vector<int64_t>{value(0, 0, round), value(1, 0, round), value(2, 0, round)}));
    }
  });
}

TEST(Persistent, MessagesGroupsAndEnvelopes) {
  for (const size_t bytes : {size_t{0}, size_t{16}, size_t{300'000}})
    run_ranks(3, [&](Communicator& world) {
      const uint32_t rank = world.rank(), next = (rank + 1) % 3, before = (rank + 2) % 3;
      std::vector<uint8_t> out(bytes), in(bytes);
      tutti_message messages[2] = {{out.data(), bytes, TUTTI_UINT8, next, 4, TUTTI_SEND, {}},
                                   {in.data(), bytes, TUTTI_UINT8, before, 4, TUTTI_RECEIVE, {}}};
      tutti_options options{sizeof options};
      options.flags = TUTTI_PERSISTENT;
      tutti_request* made = nullptr;
      ASSERT_EQ(tutti_exchange(world.handle(), messages, 2, &options, &made), TUTTI_OK);
      messages[0] = messages[1] = {};
      Request ring(made);
      tutti_envelope envelope{sizeof envelope};
      envelope.flags = TUTTI_ANY_PEER | TUTTI_ANY_TAG;
      std::vector<uint8_t> got(bytes);
      made = nullptr;
      ASSERT_EQ(tutti_receive_any(world.handle(), got.data(), bytes, TUTTI_UINT8, &envelope, &options, &made),
                TUTTI_OK);
      Request any(made);
      for (uint8_t round = 1; round < 5; ++round) {
        std::fill(out.begin(), out.end(), static_cast<uint8_t>(rank * 50 + round));
        ring.start();
        ring.wait();
        EXPECT_EQ(in, std::vector<uint8_t>(bytes, static_cast<uint8_t>(before * 50 + round)));
        world.barrier();  // no message of the next round comes first
        if (rank != 0) {
          if (round % 2 + 1u == rank) world.send(out, 0, round);
        } else {
          any.start();
          any.wait();
          EXPECT_EQ(envelope.peer, round % 2 + 1u);
          EXPECT_EQ(envelope.tag, round);
          EXPECT_EQ(got, std::vector<uint8_t>(bytes, static_cast<uint8_t>((round % 2 + 1) * 50 + round)));
        }
        world.barrier();
      }
    });
}

TEST(Persistent, CheckedModeComparesEveryStart) {
  run_ranks(2,
            [](Communicator& world) {
              std::vector<int32_t> data(4, 1), out(4);
              Request sums = world.async().all_reduce(data, out, Op::sum, persistent);
              Request least = world.async().all_reduce(data, out, Op::min, persistent);
              sums.start();
              sums.wait();
              const Failed failed = failure_of([&] {
                Request& mine = world.rank() == 0 ? sums : least;
                mine.start();
                mine.wait();
              });
              EXPECT_EQ(failed.status, TUTTI_MISMATCH);
              EXPECT_NE(failed.text.find("min"), std::string::npos) << failed.text;
              EXPECT_EQ(failure_of([&] { sums.start(); }).status, TUTTI_MISMATCH) << "of the broken communicator";
            },
            {.flags = TUTTI_COMM_CHECK_CALLS});
}

// More persistent requests than plans are kept: none of them is thrown away, and other calls go on.
TEST(Persistent, PlansStayWhileTheirRequestsLive) {
  run_ranks(2, [](Communicator& world) {
    constexpr size_t many = 1100;
    std::vector<int64_t> in(many), out(many);
    std::vector<Request> requests;
    for (size_t n = 1; n <= many; ++n)
      requests.push_back(
          world.async().all_reduce(std::span(in).first(n), std::span(out).first(n), Op::sum, persistent));
    for (const size_t n : {size_t{1}, many / 2, many}) {
      fill(in, world.rank(), static_cast<int>(n));
      requests[n - 1].start();
      requests[n - 1].wait();
      EXPECT_EQ(out[n - 1], sum_of(2, n - 1, static_cast<int>(n)));
      world.all_reduce(in, out, Op::sum);
    }
  });
}

TEST(Persistent, AnOperatorIsInUseUntilTheRequestIsFreed) {
  run_ranks(2, [](Communicator& world) {
    const auto add = [](void* inout, const void* in, uint64_t count, uint32_t, void*) -> tutti_status {
      for (uint64_t i = 0; i < count; ++i) static_cast<int64_t*>(inout)[i] += static_cast<const int64_t*>(in)[i];
      return TUTTI_OK;
    };
    tutti_op_config config{sizeof config};
    config.name = "add";
    config.function = add;
    uint32_t op = 0;
    ASSERT_EQ(tutti_op_create(world.handle(), &config, &op), TUTTI_OK);
    int64_t in = world.rank() + 1, out = 0;
    tutti_options options{sizeof options};
    options.flags = TUTTI_PERSISTENT;
    tutti_request* request = nullptr;
    ASSERT_EQ(tutti_all_reduce(world.handle(), &in, &out, 1, TUTTI_INT64, op, &options, &request), TUTTI_OK);
    ASSERT_EQ(tutti_request_start(request), TUTTI_OK);
    ASSERT_EQ(tutti_request_wait(request), TUTTI_OK);
    EXPECT_EQ(out, 3);
    EXPECT_EQ(tutti_op_free(world.handle(), op), TUTTI_INVALID_USAGE);
    EXPECT_NE(std::string(tutti_comm_error(world.handle())).find("persistent request"), std::string::npos);
    tutti_request_free(request);
    EXPECT_EQ(tutti_op_free(world.handle(), op), TUTTI_OK) << tutti_comm_error(world.handle());
  });
}

TEST(Persistent, WrongUseIsRefusedAndChangesNothing) {
  run_ranks(2, [](Communicator& world) {
    tutti_comm* comm = world.handle();
    int64_t in = 1, out = 0;
    tutti_options options{sizeof options};
    options.flags = TUTTI_PERSISTENT;
    EXPECT_EQ(tutti_all_reduce(comm, &in, &out, 1, TUTTI_INT64, TUTTI_SUM, &options, nullptr), TUTTI_INVALID_ARGUMENT);
    EXPECT_NE(std::string(tutti_comm_error(comm)).find("request is NULL"), std::string::npos);
    EXPECT_EQ(tutti_send(comm, &in, 1, TUTTI_INT64, 1 - world.rank(), 0, &options, nullptr), TUTTI_INVALID_ARGUMENT);
    options.flags = TUTTI_PERSISTENT | 2;
    tutti_request* request = nullptr;
    EXPECT_EQ(tutti_barrier(comm, &options, &request), TUTTI_NOT_SUPPORTED);
    EXPECT_EQ(tutti_request_start(nullptr), TUTTI_INVALID_ARGUMENT);

    ASSERT_EQ(tutti_all_reduce(comm, &in, &out, 1, TUTTI_INT64, TUTTI_SUM, nullptr, &request), TUTTI_OK);
    ASSERT_EQ(tutti_request_wait(request), TUTTI_OK);
    EXPECT_EQ(tutti_request_start(request), TUTTI_INVALID_USAGE);
    EXPECT_NE(std::string(tutti_comm_error(comm)).find("TUTTI_PERSISTENT"), std::string::npos);
    tutti_request_free(request);

    options.flags = TUTTI_PERSISTENT;
    int64_t message = 0;
    ASSERT_EQ(tutti_receive(comm, &message, 1, TUTTI_INT64, 1 - world.rank(), 0, &options, &request), TUTTI_OK);
    ASSERT_EQ(tutti_request_start(request), TUTTI_OK);
    EXPECT_EQ(tutti_request_start(request), TUTTI_INVALID_USAGE) << "it is under way";
    EXPECT_NE(std::string(tutti_comm_error(comm)).find("has not completed"), std::string::npos);
    world.barrier();
    ASSERT_EQ(tutti_send(comm, &in, 1, TUTTI_INT64, 1 - world.rank(), 0, nullptr, nullptr), TUTTI_OK);
    ASSERT_EQ(tutti_request_wait(request), TUTTI_OK);
    EXPECT_EQ(message, 1);
    tutti_request_free(request);
    Request empty;
    EXPECT_EQ(failure_of([&] { empty.start(); }).status, TUTTI_INVALID_ARGUMENT);
  });
}

TEST(Persistent, ARequestOutlivesItsCommunicator) {
  std::vector<tutti_request*> left(2);
  std::vector<int64_t> out(2);
  run_ranks(2, [&](Communicator& world) {
    tutti_options options{sizeof options};
    options.flags = TUTTI_PERSISTENT;
    static const int64_t in = 4;
    tutti_request*& mine = left[world.rank()];
    ASSERT_EQ(tutti_all_reduce(world.handle(), &in, &out[world.rank()], 1, TUTTI_INT64, TUTTI_SUM, &options, &mine),
              TUTTI_OK);
    ASSERT_EQ(tutti_request_start(mine), TUTTI_OK);
    ASSERT_EQ(tutti_request_wait(mine), TUTTI_OK);
  });
  for (tutti_request* request : left) {
    EXPECT_EQ(tutti_request_start(request), TUTTI_INVALID_USAGE);
    EXPECT_EQ(tutti_request_wait(request), TUTTI_OK);
    tutti_request_free(request);
  }
  EXPECT_EQ(out, (std::vector<int64_t>{8, 8}));
}

// A peer that has gone ends a start as it ends a call.
TEST(Persistent, AStartAfterAFailureHasItsError) {
  std::barrier both(2);
  run_ranks(2, [&](Communicator& world) {
    std::vector<int64_t> in(10), out(10);
    Request sums = world.async().all_reduce(in, out, Op::sum, persistent);
    sums.start();
    sums.wait();
    both.arrive_and_wait();  // a rank that has not ended the first one would be told in it
    if (world.rank() == 1) world.abort("test: enough");
    const auto until = std::chrono::steady_clock::now() + seconds(60);
    Failed failed;
    while (failed.status == TUTTI_OK && std::chrono::steady_clock::now() < until)
      failed = failure_of([&] {
        sums.start();
        sums.wait();
      });
    EXPECT_EQ(failed.status, TUTTI_ABORTED);
    EXPECT_NE(failed.text.find("test: enough"), std::string::npos) << failed.text;
  });
}

}  // namespace
}  // namespace tutti::test
