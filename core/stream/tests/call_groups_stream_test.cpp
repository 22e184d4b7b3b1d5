// SPDX-License-Identifier: Apache-2.0
//
// Groups of calls on device memory, with calls on host memory among them.
#include "../../tests/harness/stream_ranks.hpp"

namespace tutti::test {
namespace {

void group_of_both(tutti_comm* comm, uint32_t rank, uint64_t count, bool again) {
  const uint32_t n = tutti_comm_nranks(comm), next = (rank + 1) % n, before = (rank + n - 1) % n;
  Stream s;
  const tutti_options options = on(s);
  auto *in = s.make<int64_t>(count), *sum = s.make<int64_t>(count), *got = s.make<int64_t>(count);
  int64_t host_in[2] = {rank + 1, rank + 10}, host_out[2] = {}, host_got = 0;
  const auto make = [&] {
    for (int i = 0; i < 2; ++i)
      ASSERT_EQ(tutti_all_reduce(comm, &host_in[i], &host_out[i], 1, TUTTI_INT64, TUTTI_SUM, nullptr, nullptr),
                TUTTI_OK);
    ASSERT_EQ(tutti_all_reduce(comm, in, sum, count, TUTTI_INT64, TUTTI_SUM, &options, nullptr), TUTTI_OK)
        << tutti_comm_error(comm);
    ASSERT_EQ(tutti_send(comm, in, count, TUTTI_INT64, next, 3, &options, nullptr), TUTTI_OK) << tutti_comm_error(comm);
    ASSERT_EQ(tutti_receive(comm, got, count, TUTTI_INT64, before, 3, &options, nullptr), TUTTI_OK);
    ASSERT_EQ(tutti_send(comm, &host_in[0], 1, TUTTI_INT64, next, 4, nullptr, nullptr), TUTTI_OK);
    ASSERT_EQ(tutti_receive(comm, &host_got, 1, TUTTI_INT64, before, 4, nullptr, nullptr), TUTTI_OK);
  };
  tutti_options ends{sizeof ends};
  ends.flags = again ? uint32_t{TUTTI_PERSISTENT} : 0;
  tutti_request* request = nullptr;
  for (int round = 0; round < 4; ++round) {
    for (uint64_t i = 0; i < count; ++i) in[i] = value(rank, i) + round;
    if (!again || round == 0) {
      ASSERT_EQ(tutti_group_begin(comm), TUTTI_OK) << tutti_comm_error(comm);
      make();
      ASSERT_EQ(tutti_group_end(comm, &ends, &request), TUTTI_OK) << tutti_comm_error(comm);
    }
    ASSERT_EQ(again ? tutti_request_start(request) : TUTTI_OK, TUTTI_OK) << tutti_comm_error(comm);
    ASSERT_EQ(tutti_request_wait(request), TUTTI_OK) << tutti_request_error(request);
    ASSERT_TRUE(s.finish());
    for (const uint64_t i : {uint64_t{0}, count / 2, count - 1}) {
      int64_t total = 0;
      for (uint32_t r = 0; r < n; ++r) total += value(r, i) + round;
      ASSERT_EQ(sum[i], total);
      ASSERT_EQ(got[i], value(before, i) + round);
    }
    EXPECT_EQ(host_out[0], n * (n + 1) / 2);
    EXPECT_EQ(host_out[1], n * (n - 1) / 2 + 10 * n);
    EXPECT_EQ(host_got, before + 1);
    if (!again) tutti_request_free(request);
  }
  if (again) tutti_request_free(request);
  for (void* data : {in, sum, got}) s.free(data);
}

TEST(CallGroupsStream, HostAndDeviceTogether) {
  for (const bool again : {false, true}) {
    run_processes(2, 1, [again](tutti_comm* comm, uint32_t rank) {
      for (const uint64_t count : {uint64_t{5}, uint64_t{300'000}}) group_of_both(comm, rank, count, again);
    });
    run_processes(3, 3, [again](tutti_comm* comm, uint32_t rank) { group_of_both(comm, rank, 4000, again); });
  }
}

TEST(CallGroupsStream, MessagesOfAGroupGoInOneStream) {
  run_processes(2, 2, [](tutti_comm* comm, uint32_t rank) {
    Stream first, second;
    auto *a = first.make<int64_t>(4), *b = second.make<int64_t>(4);
    const tutti_options one = on(first), other = on(second);
    ASSERT_EQ(tutti_group_begin(comm), TUTTI_OK);
    ASSERT_EQ(tutti_send(comm, a, 4, TUTTI_INT64, 1 - rank, 0, &one, nullptr), TUTTI_OK) << tutti_comm_error(comm);
    EXPECT_EQ(tutti_receive(comm, b, 4, TUTTI_INT64, 1 - rank, 0, &other, nullptr), TUTTI_INVALID_ARGUMENT);
    EXPECT_NE(std::string(tutti_comm_error(comm)).find("one stream"), std::string::npos) << tutti_comm_error(comm);
    ASSERT_EQ(tutti_group_cancel(comm), TUTTI_OK);
    first.free(a);
    second.free(b);
  });
}

}  // namespace
}  // namespace tutti::test
