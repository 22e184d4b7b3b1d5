// SPDX-License-Identifier: Apache-2.0
//
// The options of one call on device memory: its algorithms and its tag.
#include <string>

#include "../../tests/harness/stream_ranks.hpp"

namespace tutti::test {
namespace {

std::string algorithm_of(tutti_comm* comm) {
  tutti_plan_facts facts{sizeof facts};
  EXPECT_EQ(tutti_comm_plan(comm, TUTTI_ALL_REDUCE, &facts), TUTTI_OK) << tutti_comm_error(comm);
  return facts.algorithm;
}

void sum_by_each(tutti_comm* comm, uint32_t rank) {
  constexpr uint64_t count = 1000;
  const auto n = static_cast<int64_t>(tutti_comm_nranks(comm));
  Stream s;
  auto *in = s.make<int64_t>(count), *out = s.make<int64_t>(count);
  for (int round = 0; round < 2; ++round)
    for (const char* one : {"ring", "tree"}) {
      tutti_options options = on(s);
      options.algorithms = one;
      options.tag = 7;
      std::fill_n(in, count, rank + 1);
      ASSERT_EQ(tutti_all_reduce(comm, in, out, count, TUTTI_INT64, TUTTI_SUM, &options, nullptr), TUTTI_OK)
          << tutti_comm_error(comm);
      EXPECT_EQ(algorithm_of(comm), one);
      ASSERT_TRUE(s.finish());
      EXPECT_EQ(std::count(out, out + count, n * (n + 1) / 2), static_cast<std::ptrdiff_t>(count)) << one;
    }
  tutti_options persistent = on(s);
  persistent.algorithms = "ring";
  persistent.flags = TUTTI_PERSISTENT;
  tutti_request* request = nullptr;
  ASSERT_EQ(tutti_all_reduce(comm, in, out, count, TUTTI_INT64, TUTTI_SUM, &persistent, &request), TUTTI_OK)
      << tutti_comm_error(comm);
  for (int start = 0; start < 2; ++start) {
    ASSERT_EQ(tutti_request_start(request), TUTTI_OK) << tutti_comm_error(comm);
    EXPECT_EQ(algorithm_of(comm), "ring");
    ASSERT_EQ(tutti_request_wait(request), TUTTI_OK);
  }
  tutti_request_free(request);
  tutti_options wrong = on(s);
  wrong.algorithms = "bruck";
  EXPECT_EQ(tutti_all_reduce(comm, in, out, count, TUTTI_INT64, TUTTI_SUM, &wrong, nullptr), TUTTI_NOT_SUPPORTED);
  EXPECT_NE(std::string(tutti_comm_error(comm)).find("bruck: it does no all_reduce"), std::string::npos);
  s.free(in);
  s.free(out);
}

TEST(CallOptionsStream, AlgorithmsServeTheirCallAlone) {
  run_processes(2, 1, sum_by_each);
  run_processes(3, 3, sum_by_each);
}

// Rank 1 has other options than rank 0.
struct Differing {
  const char* name;
  const char* algorithms[2];
  uint64_t tag[2];
  std::string words;
};
const Differing differing[] = {
    {"tags", {nullptr, nullptr}, {7, 8}, "all_reduce(100 x int64, sum, tag 8)"},
    {"algorithms", {"ring", "tree"}, {0, 0}, "with other algorithms (tutti_options.algorithms)"}};

void differ(tutti_comm* comm, uint32_t rank, const Differing& one) {
  Stream s;
  auto* data = s.make<int64_t>(100);
  tutti_options options = on(s);
  options.algorithms = one.algorithms[rank];
  options.tag = one.tag[rank];
  tutti_request* request = nullptr;
  tutti_status status = tutti_all_reduce(comm, data, data, 100, TUTTI_INT64, TUTTI_SUM, &options, &request);
  std::string text = tutti_comm_error(comm);
  if (status == TUTTI_OK) {
    status = tutti_request_wait(request);
    text = tutti_request_error(request);
    tutti_request_free(request);
  }
  EXPECT_EQ(status, TUTTI_MISMATCH) << one.name << ": " << text;
  EXPECT_NE(text.find(one.words), std::string::npos) << one.name << ": " << text;
  EXPECT_TRUE(s.finish());
  s.free(data);
}

TEST(CallOptionsStream, ThatDifferAreMismatches) {
  for (const Differing& one : differing)
    for (const uint32_t per_process : {1u, 2u})
      run_processes(2, per_process, [&](tutti_comm* comm, uint32_t rank) { differ(comm, rank, one); });
}

}  // namespace
}  // namespace tutti::test
