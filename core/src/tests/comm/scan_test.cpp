// SPDX-License-Identifier: Apache-2.0
//
// Scans as users call them: what rank 0 gets, averages, types and operators, in place, requests, and wrong arguments.
#include <tutti/schedule.h>

#include <cstring>
#include <numeric>
#include <tutti/topology.hpp>

#include "../../../tests/harness/ranks.hpp"

namespace tutti::test {
namespace {

constexpr const char* algorithms[] = {"scan:chain;exclusive_scan:chain",
                                      "scan:hillis_steele;exclusive_scan:exclusive_doubling"};

TEST(Scan, RankZeroLeavesItsExclusiveResultAlone) {
  for (const char* only : algorithms)
    run_ranks(4,
              [](Communicator& comm) {
                const auto rank = static_cast<int32_t>(comm.rank());
                for (const size_t count : {size_t{1}, size_t{40'000}}) {
                  const std::vector<int32_t> in(count, rank + 1);
                  std::vector<int32_t> out(count, -5);
                  comm.exclusive_scan(in, out, Op::sum);
                  for (const int32_t x : out) ASSERT_EQ(x, rank ? rank * (rank + 1) / 2 : -5);
                  out = in;
                  comm.exclusive_scan(out, out, Op::prod);  // in place
                  int32_t factorial = 1;
                  for (int32_t k = 2; k <= rank; ++k) factorial *= k;
                  for (const int32_t x : out) ASSERT_EQ(x, factorial);
                  ASSERT_EQ(tutti_exclusive_scan(comm.handle(), in.data(), rank ? out.data() : nullptr, count,
                                                 TUTTI_INT32, TUTTI_MAX, nullptr, nullptr),
                            TUTTI_OK)
                      << tutti_comm_error(comm.handle());
                  for (const int32_t x : out) ASSERT_EQ(x, rank ? rank : 1);
                }
              },
              {.algorithms = only});
}

TEST(Scan, AlonePutsItsInputThrough) {
  run_ranks(1, [](Communicator& comm) {
    const std::vector<float> in{3.5f};
    std::vector<float> out{-1};
    comm.exclusive_scan(in, out, Op::avg);
    EXPECT_EQ(out[0], -1);
    comm.scan(in, out, Op::avg);
    EXPECT_EQ(out[0], 3.5f);
  });
}

// avg divides by the ranks that contribute, also where the block that is sent on must not be divided.
TEST(Scan, AveragesAreRunning) {
  for (const char* only : algorithms)
    for (const uint32_t n : {2u, 3u, 6u})
      run_ranks(n,
                [](Communicator& comm) {
                  const auto rank = static_cast<double>(comm.rank());
                  for (const size_t count : {size_t{3}, size_t{100'000}})
                    for (const bool in_place : {false, true}) {
                      std::vector<double> in(count, 2 * rank), out(count, -1);
                      std::vector<double>& to = in_place ? in : out;
                      comm.scan(in, to, Op::avg);
                      for (const double x : to) ASSERT_EQ(x, rank);  // (0 + 2 + ... + 2r) / (r + 1)
                      std::fill(in.begin(), in.end(), 2 * rank);
                      comm.exclusive_scan(in, to, Op::avg);
                      for (const double x : to) ASSERT_EQ(x, comm.rank() ? rank - 1 : 0);
                    }
                },
                {.algorithms = only});
}

// Every type and operator: bit for bit what MPI_Scan by a line of ranks gives; data exact in every grouping.
TEST(Scan, EveryTypeAndOperator) {
  for (const char* only : algorithms)
    run_ranks(
        5,
        [](Communicator& comm) {
          constexpr uint64_t count = 61;
          for (const uint32_t dtype : all_dtypes())
            for (const uint32_t op : all_ops()) {
              if (!op_is_defined(op, dtype) || op == TUTTI_AVG) continue;
              const uint64_t bytes = count * dtype_bytes(dtype);
              std::vector<uint64_t> in(count * 2), out(count * 2), before(count * 2), both(count * 4);
              // Small exponents of one bit: sums, products and all else are exact, in most types zero or tiny.
              for (uint64_t i = 0; i < bytes; ++i)
                reinterpret_cast<uint8_t*>(in.data())[i] = (i + comm.rank()) % 3 ? 0 : 1;
              tutti_comm* c = comm.handle();
              ASSERT_EQ(tutti_scan(c, in.data(), out.data(), count, dtype, op, nullptr, nullptr), TUTTI_OK)
                  << tutti_comm_error(c);
              ASSERT_EQ(tutti_exclusive_scan(c, in.data(), before.data(), count, dtype, op, nullptr, nullptr), TUTTI_OK)
                  << tutti_comm_error(c);
              // Rank r's exclusive result is what rank r-1 has: pass it on and compare.
              const uint32_t rank = comm.rank(), n = comm.nranks();
              std::vector<tutti_message> messages;
              if (rank + 1 < n) messages.push_back({out.data(), count, dtype, rank + 1, 0, TUTTI_SEND, {}});
              if (rank > 0) messages.push_back({both.data(), count, dtype, rank - 1, 0, TUTTI_RECEIVE, {}});
              ASSERT_EQ(tutti_exchange(c, messages.data(), messages.size(), nullptr, nullptr), TUTTI_OK);
              if (rank > 0) {
                EXPECT_EQ(std::memcmp(both.data(), before.data(), bytes), 0)
                    << dtype_name(dtype) << " " << op_name(op) << " at rank " << rank;
              }
            }
        },
        {.algorithms = only});
}

TEST(Scan, ManyInFlightInAnyOrderOfWaiting) {
  for (const char* only : algorithms)
    run_ranks(3,
              [](Communicator& comm) {
                const auto rank = static_cast<int64_t>(comm.rank());
                constexpr int calls = 30;
                std::vector<std::vector<int64_t>> data(calls);
                std::vector<Request> requests;
                for (int k = 0; k < calls; ++k) {
                  data[k].assign(static_cast<size_t>(k * 997 + 1), k + rank);
                  if (k % 2)
                    requests.push_back(comm.async().scan<int64_t>(data[k], data[k], Op::sum));
                  else
                    requests.push_back(comm.async().exclusive_scan<int64_t>(data[k], data[k], Op::sum));
                }
                for (int k = calls; k-- > 0;) {
                  requests[k].wait();
                  const int64_t before = rank * k + rank * (rank - 1) / 2;
                  const int64_t right = k % 2 ? before + k + rank : rank ? before : k;
                  for (const int64_t x : data[k]) ASSERT_EQ(x, right) << k;
                }
              },
              {.algorithms = only});
}

// Small calls are not carried from rank to rank where each has a core, and large ones not in logarithmically many whole
// blocks. Ranks that share cores are woken as seldom as possible.
TEST(Scan, ChoosesBySizeAndCores) {
  for (const uint32_t cores : {8, 2}) {
    const TopologyFile ranks(R"({"tutti_topology": 1, "hosts": [{"name": "a", "ranks": [{"count": 8, "cores": )" +
                             std::to_string(cores) +
                             R"(, "transports": [{"name": "shm", "reach": "host", "latency": 80, )"
                             R"("bandwidth": 12000000000}]}]}]})");
    const auto chosen = [&](uint32_t collective, uint64_t count) {
      const std::string text = ranks.explain(collective, count, TUTTI_INT8);
      const size_t chosen_line = text.rfind('\n', text.find("chosen: ")) + 1;
      return text.substr(text.find_first_not_of(' ', chosen_line), text.find(' ', chosen_line + 2) - chosen_line - 2);
    };
    EXPECT_EQ(chosen(TUTTI_SCAN, 1), cores == 8 ? "flat" : "chain");
    EXPECT_EQ(chosen(TUTTI_EXCLUSIVE_SCAN, 1), cores == 8 ? "flat" : "chain");
    EXPECT_EQ(chosen(TUTTI_SCAN, 4 << 20), "chain");
    EXPECT_EQ(chosen(TUTTI_EXCLUSIVE_SCAN, 4 << 20), "chain");
  }
  run_ranks(8, [](Communicator& comm) {
    const auto planned = [&](uint32_t collective) {
      tutti_plan_facts facts{};
      facts.struct_size = sizeof facts;
      EXPECT_EQ(tutti_comm_plan(comm.handle(), collective, &facts), TUTTI_OK);
      return std::string(facts.algorithm);
    };
    std::vector<int8_t> data(size_t{4} << 20, 1);
    comm.scan(data, data, Op::max);
    EXPECT_EQ(planned(TUTTI_SCAN), "chain");
    comm.exclusive_scan(data, data, Op::max);
    EXPECT_EQ(planned(TUTTI_EXCLUSIVE_SCAN), "chain");
  });
}

TEST(Scan, WrongArgumentsAreRefused) {
  run_ranks(2, [](Communicator& comm) {
    static float a[4], b[4];
    const auto refused = [&](tutti_status status, const char* words) {
      EXPECT_EQ(status, TUTTI_INVALID_ARGUMENT) << words;
      const std::string text = tutti_comm_error(comm.handle());
      EXPECT_NE(text.find(words), std::string::npos) << text;
    };
    tutti_comm* c = comm.handle();
    refused(tutti_scan(c, nullptr, b, 4, TUTTI_FLOAT32, TUTTI_SUM, nullptr, nullptr),
            "scan: in is NULL, expected a buffer of 16 bytes");
    refused(tutti_scan(c, a, nullptr, 4, TUTTI_FLOAT32, TUTTI_SUM, nullptr, nullptr), "scan: out is NULL");
    if (comm.rank() == 1)
      refused(tutti_exclusive_scan(c, a, nullptr, 4, TUTTI_FLOAT32, TUTTI_SUM, nullptr, nullptr),
              "exclusive_scan: out is NULL");
    refused(tutti_scan(c, a, a + 1, 2, TUTTI_FLOAT32, TUTTI_SUM, nullptr, nullptr), "in place means in == out");
    refused(tutti_scan(c, a, b, 4, 99, TUTTI_SUM, nullptr, nullptr), "scan: 99 is not a data type");
    refused(tutti_scan(c, a, b, 4, TUTTI_FLOAT32, 99, nullptr, nullptr), "scan: 99 is not an operator");
    refused(tutti_exclusive_scan(c, a, b, 4, TUTTI_FLOAT32, TUTTI_LAND, nullptr, nullptr),
            "exclusive_scan: operator land is not defined for float32");
    refused(tutti_exclusive_scan(c, a, b, UINT64_MAX, TUTTI_FLOAT32, TUTTI_SUM, nullptr, nullptr),
            "is more than can be addressed");
    const Failed failed = failure_of([&] { comm.scan(std::span<const float>(a, 4), std::span(b, 3), Op::sum); });
    EXPECT_EQ(failed.status, TUTTI_INVALID_ARGUMENT);
    EXPECT_NE(failed.text.find("scan: the ranges disagree: expected 4 elements, got 3"), std::string::npos);
    comm.barrier();  // nothing of it broke the communicator
  });
}

TEST(Scan, CheckedModeTellsThemApart) {
  run_ranks(2,
            [](Communicator& comm) {
              int32_t in = 1, out = 0;
              tutti_comm* c = comm.handle();
              const tutti_status status =
                  comm.rank() ? tutti_scan(c, &in, &out, 1, TUTTI_INT32, TUTTI_SUM, nullptr, nullptr)
                              : tutti_exclusive_scan(c, &in, &out, 1, TUTTI_INT32, TUTTI_SUM, nullptr, nullptr);
              EXPECT_EQ(status, TUTTI_MISMATCH);
              const std::string text = tutti_comm_error(c);
              EXPECT_NE(text.find("exclusive_scan(1 x int32, sum)"), std::string::npos) << text;
              EXPECT_EQ(out, 0);
            },
            {.flags = TUTTI_COMM_CHECK_CALLS});
}

}  // namespace
}  // namespace tutti::test
