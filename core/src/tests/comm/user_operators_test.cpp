// SPDX-License-Identifier: Apache-2.0
//
// Operators of the application: in the order of ranks where they do not commute, by every transport; refused, compared
// and freed as tutti.h says.
#include <tutti/registry.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <stdexcept>

#include "../../../tests/harness/algorithms.hpp"
#include "../../../tests/harness/ranks.hpp"
#include "../../../tests/harness/sanitized.hpp"

namespace tutti::test {
namespace {

// Affine maps x -> ax + b modulo 2^32: associative, and hardly ever commuting.
uint64_t then(uint64_t left, uint64_t right) {
  const auto a = static_cast<uint32_t>(left >> 32), b = static_cast<uint32_t>(left);
  const auto c = static_cast<uint32_t>(right >> 32), d = static_cast<uint32_t>(right);
  return uint64_t{a * c} << 32 | (b * c + d);
}
uint64_t element(uint32_t rank, uint64_t i) { return (rank * 1000003 + i * 7919 + 1) * 0x9e3779b97f4a7c15u; }
std::vector<uint64_t> contribution(uint32_t rank, uint64_t count) {
  std::vector<uint64_t> values(count);
  for (uint64_t i = 0; i < count; ++i) values[i] = element(rank, i);
  return values;
}
uint64_t expected(uint32_t nranks, uint64_t i) {
  uint64_t value = element(0, i);
  for (uint32_t rank = 1; rank < nranks; ++rank) value = then(value, element(rank, i));
  return value;
}
uint64_t wrong(const std::vector<uint64_t>& values, uint32_t nranks, uint64_t first = 0) {
  uint64_t n = 0;
  for (uint64_t i = 0; i < values.size(); ++i) n += values[i] != expected(nranks, first + i);
  return n;
}

void combine_all(Communicator& comm, const Operator& op, uint64_t count) {
  const uint32_t n = comm.nranks(), me = comm.rank();
  const std::vector<uint64_t> mine = contribution(me, count);
  std::vector<uint64_t> out(count), in_place = mine;
  comm.all_reduce(mine, out, op);
  EXPECT_EQ(wrong(out, n), 0u) << count;
  comm.async().all_reduce(in_place, in_place, op).wait();
  EXPECT_EQ(wrong(in_place, n), 0u) << count;
  for (uint32_t root = 0; root < n; ++root) {
    out.assign(count, 0);
    comm.reduce(mine, out, op, root);
    if (me == root) {
      EXPECT_EQ(wrong(out, n), 0u) << count << " to " << root;
    }
  }
  comm.scan(mine, out, op);
  EXPECT_EQ(wrong(out, me + 1), 0u) << count;
  in_place = mine;
  comm.exclusive_scan(in_place, in_place, op);
  EXPECT_TRUE(me == 0 ? in_place == mine : wrong(in_place, me) == 0) << count;
  const std::vector<uint64_t> blocks = contribution(me, count * n);
  out.assign(count, 0);
  comm.reduce_scatter(blocks, out, op);
  EXPECT_EQ(wrong(out, n, me * count), 0u) << count;
  std::vector<uint64_t> counts(n);
  for (uint32_t rank = 0; rank < n; ++rank) counts[rank] = rank * count / n;
  const uint64_t first = std::accumulate(counts.begin(), counts.begin() + me, uint64_t{0});
  const std::vector<uint64_t> unequal = contribution(me, std::accumulate(counts.begin(), counts.end(), uint64_t{0}));
  out.assign(counts[me], 0);
  comm.reduce_scatter_v(unequal, Blocks(counts), out, op);
  EXPECT_EQ(wrong(out, n, first), 0u) << count;
}

class UserOperators : public testing::TestWithParam<const char*> {};

TEST_P(UserOperators, ThatDoNotCommuteKeepTheOrderOfRanks) {
  for (const uint32_t n : {1u, 2u, 3u, 5u, 8u})
    run_ranks(n,
              [](Communicator& comm) {
                const auto op = Operator::of<uint64_t>(comm, "then", then, false);
                for (const uint64_t count : {0, 1, 3, 1000, 70000}) combine_all(comm, op, count);
              },
              {.transports = GetParam()});
}

TEST_P(UserOperators, ThatCommuteUseAnyAlgorithm) {
  for (const char* algorithm : {"ring", "halving", "tree", "direct", "doubling", "double_tree"})
    run_ranks(5,
              [&](Communicator& comm) {
                const auto op = Operator::of<int64_t>(comm, "gcd", [](int64_t a, int64_t b) { return std::gcd(a, b); });
                std::vector<int64_t> values(30000);
                for (size_t i = 0; i < values.size(); ++i)
                  values[i] = static_cast<int64_t>((i % 97 + 1) * (comm.rank() % 2 ? 35 : 21));
                comm.all_reduce(values, values, op);
                for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], static_cast<int64_t>((i % 97 + 1) * 7));
              },
              {.transports = GetParam(), .algorithms = (std::string("all_reduce:") + algorithm).c_str()});
}

INSTANTIATE_TEST_SUITE_P(All, UserOperators, testing::Values("shm", "tcp"));

// The function gets whole elements, aligned, on either side.
TEST(UserOperator, GetsAlignedElements) {
  run_ranks(3, [](Communicator& comm) {
    static std::atomic<uint64_t> calls{0};
    tutti_op_config config{sizeof config, 0, "checks", nullptr, nullptr, uint64_t{1} << TUTTI_COMPLEX128};
    int context = 0;
    config.context = &context;
    config.function = [](void* inout, const void* in, uint64_t count, uint32_t dtype, void* c) -> tutti_status {
      ++calls;
      const bool aligned = reinterpret_cast<uintptr_t>(inout) % 16 == 0 && reinterpret_cast<uintptr_t>(in) % 16 == 0;
      if (!c || !count || dtype != TUTTI_COMPLEX128 || !aligned) return TUTTI_INTERNAL;
      for (uint64_t i = 0; i < 2 * count; ++i) static_cast<double*>(inout)[i] += static_cast<const double*>(in)[i];
      return TUTTI_OK;
    };
    const auto make = [&] {
      uint32_t number = 0;
      EXPECT_EQ(tutti_op_create(comm.handle(), &config, &number), TUTTI_OK) << tutti_comm_error(comm.handle());
      return Operator(comm.handle(), number);
    };
    const Operator op = make();
    std::vector<double> room(20001, 1);  // complex numbers lie at a multiple of 8
    std::span<std::complex<double>> values(reinterpret_cast<std::complex<double>*>(room.data() + 1), 10000);
    comm.all_reduce(values, values, op);
    EXPECT_EQ(std::ranges::count(room, 3.0), 20000);
    EXPECT_GT(calls, 0u);
  });
}

TEST(UserOperator, ThatThrowsEndsTheCommunicatorOnAllRanks) {
  run_ranks(3, [](Communicator& comm) {
    const auto op = Operator::of<int32_t>(comm, "divide", [](int32_t a, int32_t b) {
      if (!b) throw std::domain_error("division by zero in element 5");
      return a / b;
    });
    std::vector<int32_t> values(10, 1);
    comm.all_reduce(values, values, op);
    values[5] = 0;
    const Failed failed = failure_of([&] { comm.all_reduce(values, values, op); });
    EXPECT_EQ(failed.status, TUTTI_ABORTED) << failed.text;
    EXPECT_NE(failed.text.find("operator \"divide\" failed on"), std::string::npos) << failed.text;
    EXPECT_NE(failed.text.find("division by zero in element 5"), std::string::npos) << failed.text;
  });
}

tutti_status keep(void*, const void*, uint64_t, uint32_t, void*) { return TUTTI_OK; }

TEST(UserOperator, IsRefusedWithTheReason) {
  struct Wrong {
    tutti_op_config config;
    const char* says;
  };
  constexpr uint32_t size = sizeof(tutti_op_config);
  const Wrong wrongs[] = {
      {{size, 0, "none", nullptr, nullptr, 0}, "operator \"none\" has no function: set config.function"},
      {{size, 0, nullptr, keep, nullptr, 0}, "config.name is NULL: name the operator"},
      {{size, 0, "", keep, nullptr, 0}, "config.name is empty"},
      {{size, 0, "a name of 24 characters.", keep, nullptr, 0}, "has 24 characters, expected at most 23"},
      {{size, 6, "flags", keep, nullptr, 0}, "config.flags is 0x6, but only 0x1 are known"},
      {{size, 0, "types", keep, nullptr, 1}, "config.dtypes of operator \"types\" is 0x1, which names types that do"},
      {{8, 0, "short", keep, nullptr, 0}, "struct_size is 8"},
  };
  run_ranks(1, [&](Communicator& comm) {
    const auto text = [&] { return std::string(tutti_comm_error(comm.handle())); };
    uint32_t op = 0;
    for (const Wrong& wrong : wrongs) {
      EXPECT_LT(tutti_op_create(comm.handle(), &wrong.config, &op), 0) << wrong.says;
      EXPECT_NE(text().find(wrong.says), std::string::npos) << text();
    }
    EXPECT_EQ(tutti_op_create(comm.handle(), nullptr, &op), TUTTI_INVALID_ARGUMENT);
    EXPECT_NE(text().find("config is NULL"), std::string::npos) << text();
    const tutti_op_config good{size, 0, "23 characters, no more.", keep, nullptr, uint64_t{6} << TUTTI_INT32};
    EXPECT_EQ(tutti_op_create(comm.handle(), &good, nullptr), TUTTI_INVALID_ARGUMENT);
    EXPECT_NE(text().find("op is NULL"), std::string::npos) << text();
    ASSERT_EQ(tutti_op_create(comm.handle(), &good, &op), TUTTI_OK) << text();
    double value = 0;
    const auto use = [&](uint32_t number) {
      return tutti_all_reduce(comm.handle(), &value, &value, 1, TUTTI_FLOAT64, number, nullptr, nullptr);
    };
    EXPECT_EQ(use(op), TUTTI_INVALID_ARGUMENT);
    EXPECT_NE(text().find("is not defined for float64: it was made for int64, uint8"), std::string::npos) << text();
    EXPECT_EQ(use(op + 1), TUTTI_INVALID_ARGUMENT);
    EXPECT_NE(text().find("operator 0x10001 is not an operator of this communicator: make one with tutti_op_create"),
              std::string::npos)
        << text();
    EXPECT_EQ(tutti_op_free(comm.handle(), TUTTI_SUM), TUTTI_INVALID_ARGUMENT);
    EXPECT_NE(text().find("operator 1 is Tutti's own"), std::string::npos) << text();
    EXPECT_EQ(tutti_op_free(comm.handle(), op), TUTTI_OK);
    for (const tutti_status status : {tutti_op_free(comm.handle(), op), use(op)}) {
      EXPECT_EQ(status, TUTTI_INVALID_ARGUMENT);
      EXPECT_NE(text().find("operator 0x10000 was freed (tutti_op_free)"), std::string::npos) << text();
    }
  });
}

TEST(UserOperator, StaysWhileItIsUsed) {
  run_ranks(2, [](Communicator& comm) {
    const tutti_op_config config{sizeof config, 0, "kept", keep, nullptr, 0};
    uint32_t op = 0;
    ASSERT_EQ(tutti_op_create(comm.handle(), &config, &op), TUTTI_OK);
    int32_t value = 0;
    if (comm.rank() == 0) {
      Request request = comm.async().all_reduce(std::span(&value, 1), std::span(&value, 1), static_cast<Op>(op));
      EXPECT_EQ(tutti_op_free(comm.handle(), op), TUTTI_INVALID_USAGE);
      const std::string text = tutti_comm_error(comm.handle());
      EXPECT_NE(text.find("operator \"kept\" is used by an operation that has not ended: wait"), std::string::npos)
          << text;
      comm.send(std::span(&value, 1), 1);
      request.wait();
    } else {
      comm.receive(std::span(&value, 1), 0);
      comm.all_reduce(std::span(&value, 1), std::span(&value, 1), static_cast<Op>(op));
    }
    EXPECT_EQ(tutti_op_free(comm.handle(), op), TUTTI_OK) << tutti_comm_error(comm.handle());
  });
}

// Ranks compare the name and whether it commutes, not the number. Without the checked mode nobody waits for the news
// of a call, so calls that move little may end before it is read.
TEST(UserOperator, RealTimeThatDiffersBetweenRanksIsNamed) {
  for (const uint32_t flags : {0u, uint32_t{TUTTI_COMM_CHECK_CALLS}})
    for (const bool by_name : {false, true})
      run_ranks(2,
                [&](Communicator& comm) {
                  const bool odd = comm.rank() == 1;
                  const auto spare = Operator::of<uint64_t>(comm, odd ? "then" : "spare", then, false);
                  const auto op = Operator::of<uint64_t>(comm, odd ? "spare" : "then", then, false);
                  const auto commuting = Operator::of<uint64_t>(comm, "then", then, true);
                  uint64_t value = 1;
                  const std::span<uint64_t> values(&value, 1);
                  comm.all_reduce(values, values, odd ? spare : op);
                  const Failed failed = failure_of([&] {
                    for (int i = 0; i < 100'000; ++i) comm.all_reduce(values, values, odd && !by_name ? commuting : op);
                  });
                  EXPECT_EQ(failed.status, TUTTI_MISMATCH) << failed.text;
                  const char* const theirs = by_name
                                                 ? "all_reduce(1 x uint64, operator \"spare\" that does not commute)"
                                                 : "all_reduce(1 x uint64, operator \"then\")";
                  EXPECT_NE(failed.text.find(theirs), std::string::npos) << failed.text;
                  EXPECT_NE(failed.text.find("all_reduce(1 x uint64, operator \"then\" that does not commute)"),
                            std::string::npos)
                      << failed.text;
                },
                {.flags = flags});
}

TEST(UserOperator, ThatDoesNotCommuteNeedsAnAlgorithmInOrder) {
  run_ranks(
      3,
      [](Communicator& comm) {
        const auto op = Operator::of<uint64_t>(comm, "then", then, false);
        uint64_t value = 1;
        const Failed failed = failure_of([&] { comm.all_reduce(std::span(&value, 1), std::span(&value, 1), op); });
        EXPECT_EQ(failed.status, TUTTI_NOT_SUPPORTED);
        EXPECT_NE(failed.text.find("ring: its operands are not in rank order, and the operator does not commute"),
                  std::string::npos)
            << failed.text;
      },
      {.algorithms = "all_reduce:ring"});
}

// What `op` gives of 1009 elements of each rank, compared with the elements that `right(ranks, i)` says.
template <typename Right>
void reduce_by(Communicator& comm, uint32_t collective, const Operator& op, const Right& right) {
  constexpr uint64_t count = 1009;
  const uint32_t n = comm.nranks(), me = comm.rank(), root = n / 2;
  const bool blocks = collective == TUTTI_REDUCE_SCATTER;
  const std::vector<uint64_t> mine = contribution(me, blocks ? count * n : count);
  std::vector<uint64_t> out(count, 0);
  if (collective == TUTTI_REDUCE)
    comm.reduce(mine, out, op, root);
  else if (collective == TUTTI_ALL_REDUCE)
    comm.all_reduce(mine, out, op);
  else if (blocks)
    comm.reduce_scatter(mine, out, op);
  else if (collective == TUTTI_SCAN)
    comm.scan(mine, out, op);
  else
    comm.exclusive_scan(mine, out, op);
  const uint32_t ranks = collective == TUTTI_REDUCE && me != root ? 0 : contributors(collective, n, me);
  for (uint64_t i = 0; i < count && ranks; ++i)
    ASSERT_EQ(out[i], right(ranks, i + (blocks ? me * count : 0))) << "rank " << me << " of " << n << ", element " << i;
}

// Those that commute are served by every algorithm, the others in rank order or not at all.
TEST(UserOperator, GoesByEveryAlgorithm) {
  constexpr int least = sanitized ? 1 : 5;  // algorithms
  std::atomic<int> in_order{0}, refused{0};
  for (const tutti_algorithm* algorithm : thinned(list_algorithms()))
    for (const uint32_t collective :
         {TUTTI_REDUCE, TUTTI_ALL_REDUCE, TUTTI_REDUCE_SCATTER, TUTTI_SCAN, TUTTI_EXCLUSIVE_SCAN}) {
      if (!(algorithm->collectives >> collective & 1) || !serves_one_host(*algorithm, collective, 5)) continue;
      const std::string only = std::string(collective_name(collective)) + ":" + algorithm->name;
      SCOPED_TRACE(only);
      run_ranks(5,
                [&](Communicator& comm) {
                  const auto product =
                      Operator::of<uint64_t>(comm, "product", [](uint64_t a, uint64_t b) { return a * b; });
                  reduce_by(comm, collective, product, [](uint32_t ranks, uint64_t i) {
                    uint64_t value = 1;
                    for (uint32_t rank = 0; rank < ranks; ++rank) value *= element(rank, i);
                    return value;
                  });
                  const auto ordered = Operator::of<uint64_t>(comm, "then", then, false);
                  const Failed failed = failure_of([&] { reduce_by(comm, collective, ordered, expected); });
                  ++(failed.status == TUTTI_OK ? in_order : refused);
                  if (failed.status == TUTTI_OK) return;
                  EXPECT_EQ(failed.status, TUTTI_NOT_SUPPORTED);
                  EXPECT_NE(failed.text.find("operands are not in rank order"), std::string::npos) << failed.text;
                },
                {.transports = "shm", .algorithms = only.c_str()});
      if (HasFailure()) return;
    }
  EXPECT_EQ(in_order % 5, 0) << "all ranks of an operation are served, or none is";
  EXPECT_EQ(refused % 5, 0);
  EXPECT_TRUE(in_order >= least * 5 && refused >= least) << in_order << " ranks served, " << refused << " refused";
}

TEST(UserOperator, OfCppIsMovedAndFreed) {
  run_ranks(2, [](Communicator& comm) {
    Operator op = Operator::of<int32_t>(comm, "least", [](int32_t a, int32_t b) { return std::min(a, b); });
    Operator other = std::move(op);
    op = Operator::of<int32_t>(comm, "greatest", [](int32_t a, int32_t b) { return std::max(a, b); });
    int32_t low = static_cast<int32_t>(comm.rank()), high = low;
    comm.all_reduce(std::span(&low, 1), std::span(&low, 1), other);
    comm.all_reduce(std::span(&high, 1), std::span(&high, 1), op);
    EXPECT_EQ(low, 0);
    EXPECT_EQ(high, 1);
    const auto number = static_cast<uint32_t>(static_cast<Op>(op));
    op = Operator();
    EXPECT_EQ(tutti_op_free(comm.handle(), number), TUTTI_INVALID_ARGUMENT) << "it was freed with its object";
  });
}

// ---- Sums with a factor per rank.

// Whatever is summed exactly, so that the order of the sum does not matter.
template <typename T>
T input(uint32_t rank, uint64_t i) {
  return static_cast<T>(static_cast<float>(rank + i % 5 + 1));
}
template <typename T>
T factor(uint32_t rank) {
  return static_cast<T>(static_cast<float>(rank % 3 + 2));
}
template <typename T>
T premultiplied(uint32_t nranks, uint64_t i) {
  float sum = 0;
  for (uint32_t rank = 0; rank < nranks; ++rank)
    sum += static_cast<float>(input<T>(rank, i)) * static_cast<float>(factor<T>(rank));
  return static_cast<T>(sum);
}

template <typename T>
void sum_with_factors(Communicator& comm, uint64_t count) {
  const uint32_t n = comm.nranks(), me = comm.rank();
  const auto op = Operator::premul_sum(comm, factor<T>(me));
  const auto values = [&](uint64_t elements) {
    std::vector<T> made(elements);
    for (uint64_t i = 0; i < elements; ++i) made[i] = input<T>(me, i);
    return made;
  };
  const auto same_of = [](uint32_t ranks, const std::vector<T>& found, uint64_t first) {
    for (uint64_t i = 0; i < found.size(); ++i)
      if (static_cast<float>(found[i]) != static_cast<float>(premultiplied<T>(ranks, first + i))) return false;
    return true;
  };
  const auto same = [&](const std::vector<T>& found, uint64_t first = 0) { return same_of(n, found, first); };
  const std::vector<T> in = values(count), blocks = values(count * n);
  std::vector<T> out(count), in_place = in, kept = blocks;
  comm.all_reduce(in, out, op);
  EXPECT_TRUE(same(out));
  comm.async().all_reduce(in_place, in_place, op).wait();
  EXPECT_TRUE(same(in_place));
  for (uint32_t root = 0; root < n; ++root) {
    out.assign(count, T{});
    comm.reduce(in, out, op, root);
    EXPECT_TRUE(me != root || same(out)) << root;
    in_place = in;
    comm.reduce(in_place, in_place, op, root);
    EXPECT_TRUE(me == root ? same(in_place) : in_place == in) << root;
  }
  comm.scan(in, out, op);
  EXPECT_TRUE(same_of(me + 1, out, 0));
  in_place = in;
  comm.exclusive_scan(in_place, in_place, op);
  EXPECT_TRUE(me == 0 ? in_place == in : same_of(me, in_place, 0));
  comm.reduce_scatter(blocks, out, op);
  EXPECT_TRUE(same(out, me * count));
  const std::span<T> own(kept.data() + me * count, count);
  comm.reduce_scatter(kept, own, op);
  EXPECT_TRUE(same({own.begin(), own.end()}, me * count));
  for (uint64_t i = 0; i < kept.size(); ++i)
    if (i / std::max<uint64_t>(count, 1) != me) {
      ASSERT_EQ(kept[i], blocks[i]);
    }
  const std::vector<uint64_t> counts(n, count / 2), begins = [&] {
    std::vector<uint64_t> made(n);
    for (uint32_t r = 0; r < n; ++r) made[r] = r * count;
    return made;
  }();
  out.assign(count / 2, T{});
  comm.reduce_scatter_v(blocks, Blocks(counts, begins), out, op);
  EXPECT_TRUE(same(out, me * count));
}

TEST(PremulSum, MultipliesEachContributionByItsFactor) {
  for (uint32_t n = 1; n <= 5; ++n)
    run_ranks(n, [](Communicator& comm) {
      for (const uint64_t count : {0, 1, 7, 5000}) {
        sum_with_factors<float>(comm, count);
        sum_with_factors<int64_t>(comm, count);
        sum_with_factors<bfloat16>(comm, count);
      }
    });
}

// The product is rounded to the type before the sum: 1.0078125 * 1.0078125 = 1.01568603515625 is 1.015625 in bfloat16.
TEST(PremulSum, RoundsTheProductFirst) {
  for (const uint32_t n : {1u, 2u})
    run_ranks(n, [&](Communicator& comm) {
      const bfloat16 x(1.0078125f);
      const auto op = Operator::premul_sum(comm, x);
      bfloat16 in = x, out;
      comm.all_reduce(std::span<const bfloat16>(&in, 1), std::span(&out, 1), op);
      EXPECT_EQ(static_cast<float>(out), 1.015625f * static_cast<float>(n));
      EXPECT_EQ(in.bits(), x.bits());
    });
}

TEST(PremulSum, IsFreedAtOnceAndRefusedWithTheReason) {
  run_ranks(2, [](Communicator& comm) {
    const auto text = [&] { return std::string(tutti_comm_error(comm.handle())); };
    float value = 3;
    uint32_t op = 0;
    EXPECT_EQ(tutti_op_create_premul_sum(comm.handle(), TUTTI_FLOAT32, nullptr, &op), TUTTI_INVALID_ARGUMENT);
    EXPECT_NE(text().find("op_create_premul_sum: factor is NULL, expected one float32"), std::string::npos) << text();
    EXPECT_EQ(tutti_op_create_premul_sum(comm.handle(), TUTTI_FLOAT32, &value, nullptr), TUTTI_INVALID_ARGUMENT);
    EXPECT_NE(text().find("op is NULL"), std::string::npos) << text();
    EXPECT_EQ(tutti_op_create_premul_sum(comm.handle(), TUTTI_BOOL, &value, &op), TUTTI_INVALID_ARGUMENT);
    EXPECT_NE(text().find("bool has no product: expected one of int8"), std::string::npos) << text();
    EXPECT_EQ(tutti_op_create_premul_sum(comm.handle(), 99, &value, &op), TUTTI_INVALID_ARGUMENT);
    EXPECT_NE(text().find("99 is not a data type"), std::string::npos) << text();
    ASSERT_EQ(tutti_op_create_premul_sum(comm.handle(), TUTTI_FLOAT32, &value, &op), TUTTI_OK) << text();
    EXPECT_EQ(tutti_all_reduce(comm.handle(), &value, &value, 1, TUTTI_INT32, op, nullptr, nullptr),
              TUTTI_INVALID_ARGUMENT);
    EXPECT_NE(text().find("operator \"premul_sum\" is not defined for int32: it was made for float32"),
              std::string::npos)
        << text();
    Request request = comm.async().all_reduce(std::span(&value, 1), std::span(&value, 1), static_cast<Op>(op));
    EXPECT_EQ(tutti_op_free(comm.handle(), op), TUTTI_OK) << text();
    request.wait();
    EXPECT_EQ(value, 18);
  });
}

// A sum on one rank and a premul_sum on the other are different calls.
TEST(PremulSum, IsComparedAsAnOperator) {
  run_ranks(2,
            [](Communicator& comm) {
              float value = 1;
              const auto op = Operator::premul_sum(comm, 2.0f);
              const Failed failed = failure_of([&] {
                comm.all_reduce(std::span(&value, 1), std::span(&value, 1),
                                comm.rank() ? static_cast<Op>(op) : Op::sum);
              });
              EXPECT_EQ(failed.status, TUTTI_MISMATCH);
              EXPECT_NE(failed.text.find("all_reduce(1 x float32, premul_sum)"), std::string::npos) << failed.text;
              EXPECT_NE(failed.text.find("all_reduce(1 x float32, sum)"), std::string::npos) << failed.text;
            },
            {.flags = TUTTI_COMM_CHECK_CALLS});
}

}  // namespace
}  // namespace tutti::test
