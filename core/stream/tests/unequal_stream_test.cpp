// SPDX-License-Identifier: Apache-2.0
//
// Collectives with unequal blocks on device memory with ranks as threads of one process.
#include <barrier>

#include "../../tests/harness/graphs.hpp"
#include "../../tests/harness/sanitized.hpp"
#include "../../tests/harness/unequal_streams.hpp"

namespace tutti::test {
namespace {

TEST(UnequalStream, CountsChangeAndComeBack) {
  for (const uint32_t n : {1u, 2u, 3u, 5u})
    run_threads(n, [](tutti_comm* comm, uint32_t) { check_unequal(comm, 5000); });
}

// By every algorithm that offers them.
TEST(UnequalStream, EveryAlgorithm) {
  for (const tutti_algorithm* algorithm : thinned(list_algorithms()))
    for (const uint32_t n : {2u, 4u, 5u}) {
      std::vector<uint32_t> offered;
      std::string filter;
      for (const uint32_t collective : unequal_collectives) {
        Problem problem;
        problem.collective = collective;
        problem.nranks = n;
        problem.lanes = 4;
        problem.hosts.assign(n, 0);
        const tutti_query query = make_query(problem, 0);
        if (!(algorithm->collectives >> collective & 1) || algorithm->supports(algorithm->self, &query) != TUTTI_OK)
          continue;
        offered.push_back(collective);
        filter += (filter.empty() ? "" : ";") + std::string(collective_name(collective)) + ":" + algorithm->name;
      }
      take_plugin_error();
      if (offered.empty()) continue;
      SCOPED_TRACE(algorithm->name);
      run_threads(
          n, [&](tutti_comm* comm, uint32_t) { check_unequal(comm, 500, 7, offered); }, filter);
    }
}

// Several calls in flight, a persistent request for each table, and calls in a group.
TEST(UnequalStream, RequestsOfAllKinds) {
  for (const uint32_t n : {1u, 3u})
    run_threads(n, [](tutti_comm* comm, uint32_t) {
      const uint32_t ranks = tutti_comm_nranks(comm);
      Stream s;
      tutti_options options = on(s);
      for (const uint32_t collective : unequal_collectives) {
        UnequalCall one(s, comm, collective, sizes_of(0, ranks, 0)), other(s, comm, collective, sizes_of(1, ranks, 0));
        const auto each = [&](const std::function<void(UnequalCall&, size_t)>& body) {
          body(one, 0);
          body(other, 1);
        };
        tutti_request* requests[2] = {};
        int round = 0;
        const auto prepare = [&] {
          ++round;
          each([&](UnequalCall& call, size_t) { call.fill(round); });
        };
        const auto finish = [&] {
          ASSERT_TRUE(s.finish());
          each([](UnequalCall& call, size_t) { call.check(); });
        };
        prepare();
        each([&](UnequalCall& call, size_t i) {
          ASSERT_EQ(call.issue(options, &requests[i]), TUTTI_OK) << tutti_comm_error(comm);
        });
        for (tutti_request*& request : requests) {
          ASSERT_EQ(tutti_request_wait(request), TUTTI_OK) << tutti_request_error(request);
          tutti_request_free(std::exchange(request, nullptr));
        }
        finish();
        options.flags = TUTTI_PERSISTENT;
        each([&](UnequalCall& call, size_t i) {
          ASSERT_EQ(call.issue(options, &requests[i]), TUTTI_OK) << tutti_comm_error(comm);
        });
        options.flags = 0;
        for (int start = 0; start < 3; ++start) {
          prepare();
          for (tutti_request* request : requests) ASSERT_EQ(tutti_request_start(request), TUTTI_OK);
          for (tutti_request* request : requests) ASSERT_EQ(tutti_request_wait(request), TUTTI_OK);
          finish();
        }
        for (tutti_request* request : requests) tutti_request_free(request);
        prepare();
        ASSERT_EQ(tutti_group_begin(comm), TUTTI_OK);
        each([&](UnequalCall& call, size_t) { ASSERT_EQ(call.issue(options), TUTTI_OK) << tutti_comm_error(comm); });
        ASSERT_EQ(tutti_group_end(comm, nullptr, nullptr), TUTTI_OK) << tutti_comm_error(comm);
        finish();
        if (testing::Test::HasFatalFailure()) return;
      }
    });
}

// One graph of all their streams, as threads that capture together make it.
TEST(UnequalStream, IsRecorded) {
  static constexpr uint32_t n = 3;
  Stream streams[n];
  void* handles[n];
  for (uint32_t r = 0; r < n; ++r) handles[r] = streams[r].handle;
  void* graph = nullptr;
  std::barrier<> together(n);
  run_threads(n, [&](tutti_comm* comm, uint32_t rank) {
    Stream& s = streams[rank];
    const tutti_options options = on(s);
    std::vector<std::unique_ptr<UnequalCall>> calls;
    for (const uint32_t collective : unequal_collectives)
      for (const uint32_t turn : {0u, 1u})
        calls.push_back(std::make_unique<UnequalCall>(s, comm, collective, sizes_of(turn, n, 0)));
    const auto round = [&](int number, const std::function<void()>& body) {
      for (const auto& call : calls) call->fill(number);
      together.arrive_and_wait();
      body();
      together.arrive_and_wait();
      ASSERT_TRUE(s.finish());
      for (const auto& call : calls) call->check();
      together.arrive_and_wait();
    };
    const auto issue = [&] {
      for (const auto& call : calls) EXPECT_EQ(call->issue(options), TUTTI_OK) << tutti_comm_error(comm);
    };
    round(0, issue);
    if (rank == 0) {
      EXPECT_EQ(graphs().begin(handles, n, &graph), TUTTI_OK);
    }
    together.arrive_and_wait();
    issue();
    together.arrive_and_wait();
    if (rank == 0) {
      EXPECT_EQ(graphs().end(graph), TUTTI_OK);
    }
    for (int number = 1; number < 4; ++number)
      round(number, [&] {
        if (rank == 0) {
          EXPECT_EQ(graphs().launch(graph), TUTTI_OK);
        }
      });
    if (rank == 0) graphs().destroy(graph);
  });
}

// A rank without elements comes to the call by its stream, or by the address of a buffer.
TEST(UnequalStream, ARankWithoutElements) {
  run_threads(3, [](tutti_comm* comm, uint32_t rank) {
    Stream s;
    const uint64_t counts[] = {2, 0, 3}, none[] = {0, 0, 0};
    auto *in = s.make<int64_t>(3), *out = s.make<int64_t>(5);
    for (uint64_t i = 0; i < 3; ++i) in[i] = value(rank, i);
    const tutti_options options = on(s);
    const bool empty = rank == 1;
    ASSERT_EQ(tutti_gather_v(comm, empty ? nullptr : in, counts[rank], out, counts, nullptr, TUTTI_INT64, 0, &options,
                             nullptr),
              TUTTI_OK)
        << tutti_comm_error(comm);
    ASSERT_TRUE(s.finish());
    for (uint64_t i = 0; i < 5 && rank == 0; ++i) EXPECT_EQ(out[i], i < 2 ? value(0, i) : value(2, i - 2));
    // In the default stream.
    ASSERT_EQ(tutti_all_to_all_v(comm, in, none, nullptr, out, none, nullptr, TUTTI_INT64, nullptr, nullptr), TUTTI_OK)
        << tutti_comm_error(comm);
    EXPECT_EQ(served(comm, TUTTI_ALL_TO_ALL_V), device().memory->name);
    s.free(in);
    s.free(out);
  });
}

// Ranks of one process find at once that their counts do not fit.
TEST(UnequalStream, CountsThatDoNotFit) {
  const auto expect = [](uint32_t collective, const Sizes& wrong, const std::string& text) {
    run_threads(3, [&](tutti_comm* comm, uint32_t rank) {
      Stream s;
      const tutti_options options = on(s);
      UnequalCall right(s, comm, collective, sizes_of(0, 3, 0));
      UnequalCall call(s, comm, collective, rank == 2 ? wrong : sizes_of(0, 3, 0));
      EXPECT_EQ(right.issue(options), TUTTI_OK) << tutti_comm_error(comm);
      EXPECT_EQ(call.issue(options), TUTTI_MISMATCH);
      EXPECT_NE(std::string(tutti_comm_error(comm)).find(text), std::string::npos) << tutti_comm_error(comm);
      EXPECT_TRUE(s.finish());
    });
  };
  const auto but = [](uint32_t at_from, uint32_t at_to, uint64_t count) -> Sizes {
    return [=](uint32_t from, uint32_t to) { return from == at_from && to == at_to ? count : 3 * from + to + 1; };
  };
  expect(TUTTI_ALL_TO_ALL_V, but(0, 2, 9), "rank 2 expects 9 elements from rank 0 in all_to_all_v, but rank 0 sends 3");
  expect(TUTTI_ALL_TO_ALL_V, but(0, 2, 0), "rank 2 expects 0 elements from rank 0 in all_to_all_v, but rank 0 sends 3");
  expect(TUTTI_ALL_TO_ALL_V, but(2, 1, 0), "rank 1 expects 8 elements from rank 2 in all_to_all_v, but rank 2 sends 0");
  expect(TUTTI_GATHER_V, but(0, 2, 4), "rank 1 expects 3 elements from rank 2 in gather_v, but rank 2 sends 4");
  expect(TUTTI_ALL_GATHER_V, but(0, 0, 2), "with other counts than rank ");
}

}  // namespace
}  // namespace tutti::test
