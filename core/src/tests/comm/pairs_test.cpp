// SPDX-License-Identifier: Apache-2.0
//
// minloc and maxloc of every collective that reduces, by every algorithm: with ties, NaN and zeros of both signs. The
// bits are those of the definition, whatever the order of the reduction.
#include <tutti/registry.h>
#include <tutti/schedule.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "../../../tests/harness/algorithms.hpp"
#include "../../../tests/harness/ranks.hpp"
#include "../../../tests/harness/sanitized.hpp"

namespace tutti::test {
namespace {

// Of ten elements four are ties of all ranks or some, two have NaNs, one has zeros, three are all different.
template <typename Pair>
Pair pair_of(uint32_t rank, uint64_t i) {
  using Value = decltype(Pair::value);
  using Index = decltype(Pair::index);
  const uint64_t own = ((rank + 1) * 0x9e3779b97f4a7c15u ^ (i + 1) * 0xd1342543de82ef95u) >> 11;
  const auto number = static_cast<Value>(static_cast<int64_t>(own % 2001) - 1000);
  const Value values[] = {number,
                          7,
                          own % 2 ? Value{-5} : Value{5},
                          own % 3 ? Value{0} : -Value{0},
                          own % 3 ? number : -std::numeric_limits<Value>::quiet_NaN(),
                          number / 8,
                          std::numeric_limits<Value>::quiet_NaN(),
                          own % 2 ? std::numeric_limits<Value>::infinity() : number,
                          static_cast<Value>(i),
                          -number};
  return {values[i % 10], static_cast<Index>(own - (uint64_t{1} << 52))};
}

// Is a better than b? By value, then by index.
template <typename Pair>
bool better(Op op, const Pair& a, const Pair& b) {
  if (std::isnan(a.value) != std::isnan(b.value)) return std::isnan(a.value);
  if (a.value < b.value || a.value > b.value) return (a.value < b.value) == (op == Op::minloc);
  if (!std::isnan(a.value) && std::signbit(a.value) != std::signbit(b.value))
    return std::signbit(a.value) == (op == Op::minloc);
  return a.index < b.index;
}

template <typename Pair>
Pair best_of(Op op, uint32_t ranks, uint64_t i) {
  Pair best = pair_of<Pair>(0, i);
  for (uint32_t rank = 1; rank < ranks; ++rank)
    if (const Pair next = pair_of<Pair>(rank, i); better(op, next, best)) best = next;
  if (ranks > 1 && std::isnan(best.value)) best.value = std::numeric_limits<decltype(best.value)>::quiet_NaN();
  return best;
}

template <typename Pair>
void check_pairs(Communicator& comm, uint32_t collective, Op op, uint64_t count) {
  const uint32_t n = comm.nranks(), me = comm.rank(), root = n - 1;
  const bool blocks = collective == TUTTI_REDUCE_SCATTER;
  std::vector<Pair> in(count * (blocks ? n : 1)), out(count, Pair{-1, -1});
  for (uint64_t i = 0; i < in.size(); ++i) in[i] = pair_of<Pair>(me, i);
  if (collective == TUTTI_REDUCE)
    comm.reduce(in, out, op, root);
  else if (collective == TUTTI_ALL_REDUCE)
    comm.all_reduce(in, out, op);
  else if (blocks)
    comm.reduce_scatter(in, out, op);
  else if (collective == TUTTI_SCAN)
    comm.scan(in, out, op);
  else
    comm.exclusive_scan(in, out, op);
  if (collective == TUTTI_REDUCE && me != root) return;
  const uint32_t ranks = contributors(collective, n, me);
  for (uint64_t i = 0; i < count && ranks; ++i) {
    const Pair right = best_of<Pair>(op, ranks, i + (blocks ? me * count : 0));
    ASSERT_EQ(std::memcmp(&out[i], &right, sizeof right), 0)
        << collective_name(collective) << " " << op_name(static_cast<uint32_t>(op)) << ", rank " << me << " of " << n
        << ", element " << i << " of " << count << ": " << out[i].value << " at " << out[i].index << ", expected "
        << right.value << " at " << right.index;
  }
}

TEST(Pairs, MinlocAndMaxlocByEveryAlgorithm) {
  uint32_t algorithms = 0, calls = 0;
  for (const tutti_algorithm* algorithm : thinned(list_algorithms()))
    for (const uint32_t collective :
         {TUTTI_REDUCE, TUTTI_ALL_REDUCE, TUTTI_REDUCE_SCATTER, TUTTI_SCAN, TUTTI_EXCLUSIVE_SCAN}) {
      if (!(algorithm->collectives >> collective & 1)) continue;
      ++algorithms;
      const std::string only = std::string(collective_name(collective)) + ":" + algorithm->name;
      SCOPED_TRACE(only);
      for (const uint32_t n : {1u, 2u, 3u, 5u, 8u}) {
        if (!serves_one_host(*algorithm, collective, n)) continue;
        ++calls;
        run_ranks(n,
                  [&](Communicator& comm) {
                    for (const uint64_t count : {uint64_t{1}, uint64_t{10}, uint64_t{2003}})
                      for (const Op op : {Op::minloc, Op::maxloc}) {
                        check_pairs<float32_int32>(comm, collective, op, count);
                        check_pairs<float64_int64>(comm, collective, op, count);
                      }
                  },
                  {.transports = "shm", .algorithms = only.c_str()});
      }
      if (HasFailure()) return;
    }
  const uint32_t least = sanitized ? 5 : 15;
  EXPECT_GT(algorithms, least);
  EXPECT_GT(calls, 5 * least);
}

TEST(Pairs, EveryOtherOperatorIsRefused) {
  run_ranks(1, [](Communicator& comm) {
    double buffer[8] = {};
    const auto status = [&](uint32_t dtype, uint32_t op) {
      return tutti_all_reduce(comm.handle(), buffer, buffer, 2, dtype, op, nullptr, nullptr);
    };
    for (const uint32_t dtype : all_dtypes())
      for (const uint32_t op : all_ops()) {
        const bool pair = dtype == TUTTI_FLOAT32_INT32 || dtype == TUTTI_FLOAT64_INT64;
        const bool finds = op == TUTTI_MINLOC || op == TUTTI_MAXLOC;
        if (!pair && !finds) continue;
        EXPECT_EQ(status(dtype, op), pair && finds ? TUTTI_OK : TUTTI_INVALID_ARGUMENT);
        const std::string text = tutti_comm_error(comm.handle());
        if (pair && finds) continue;
        EXPECT_NE(text.find(std::string("operator ") + op_name(op) + " is not defined for " + dtype_name(dtype) +
                            ": expected one of " + ops_of_dtype(dtype) + ", or a type that has it (" +
                            dtypes_of_op(op) + ")"),
                  std::string::npos)
            << text;
      }
    uint32_t factor = 0;
    EXPECT_EQ(tutti_op_create_premul_sum(comm.handle(), TUTTI_FLOAT32_INT32, buffer, &factor), TUTTI_INVALID_ARGUMENT);
  });
}

}  // namespace
}  // namespace tutti::test
