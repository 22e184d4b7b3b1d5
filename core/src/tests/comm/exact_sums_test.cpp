// SPDX-License-Identifier: Apache-2.0
//
// Exact sums (TUTTI_ORDER=exact): the bits of rational arithmetic, rounded once, by every algorithm that the verifier
// has shown to be flat, whichever rank makes which contribution. The long form, for every number of ranks to 17:
// exact_sums_test --gtest_also_run_disabled_tests.
#include <tutti/registry.h>
#include <tutti/schedule.h>

#include <cstdlib>
#include <cstring>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "../../../tests/harness/algorithms.hpp"
#include "../../../tests/harness/ranks.hpp"
#include "../../../tests/harness/rational.hpp"

namespace tutti::test {
namespace {

template <typename T>
const Format& format_of() {
  return formats[dtype_of<T>() - TUTTI_FLOAT16];
}

// ---- Contributions: `who` of `n` makes one to element i. Elements repeat, so that a reference is cheap.

constexpr uint64_t period = 240;

uint64_t lot(uint32_t who, uint64_t i) {
  uint64_t h = (who * 1000003 + i * 7919 + 1) * 0x9e3779b97f4a7c15u;
  h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9u;
  return h ^ h >> 32;
}
Bits number(const Format& f, uint64_t lot, Bits exponent) {
  return (lot >> 63 ? f.sign() : 0) | exponent << f.fraction_bits | (lot & (f.unit() - 1));
}

// Of all magnitudes; of similar ones; cancelling but for one unit; halfway between two numbers, or nearly; denormal;
// zeros and numbers that are none.
Bits contribution(const Format& f, uint32_t who, uint32_t n, uint64_t i) {
  i %= period;
  const uint64_t mine = lot(who, i);
  const Bits any = (mine >> 20) % f.most_exponent(), middle = f.most_exponent() / 2;
  switch (i % 6) {
    case 0:
      return number(f, mine, any);
    case 1:
      return number(f, mine, middle + (mine >> 20) % 4);
    case 2:
      if (who % 2) return contribution(f, who - 1, n, i) ^ f.sign() ^ (who == 1);
      return who + 1 < n ? number(f, mine, any) : 1;
    case 3:
      if (who == 0) return number(f, mine, middle);
      return who == 1 ? (middle - f.fraction_bits - 1) << f.fraction_bits : who == 2 ? mine % 2 : 0;
    case 4:
      return number(f, mine, mine >> 20 & 1);
    default:
      if (i % 4) return f.sign();
      return who != i / 8 % n ? number(f, mine, middle) : mine & 1 << 20 ? f.infinity() : f.nan() | 1 | f.sign();
  }
}

// Which contributions the ranks make.
std::vector<uint32_t> permuted(uint32_t n, uint32_t which) {
  std::vector<uint32_t> who(n);
  for (uint32_t r = 0; r < n; ++r) who[r] = which % 2 ? n - 1 - (r + which) % n : (r + which) % n;
  return who;
}

template <typename T>
std::vector<T> values_of(uint32_t who, uint32_t n, uint64_t count) {
  std::vector<T> values(count);
  for (uint64_t i = 0; i < count; ++i) {
    const Bits bits = contribution(format_of<T>(), who, n, i);
    std::memcpy(static_cast<void*>(&values[i]), &bits, sizeof(T));
  }
  return values;
}

// The results of the first k ranks, for k to n.
template <typename T>
class Definition {
 public:
  Definition(const std::vector<uint32_t>& who, bool average) : of_ranks_(who.size() + 1) {
    for (size_t k = 1; k <= who.size(); ++k)
      for (uint64_t i = 0; i < period; ++i) {
        std::vector<Bits> all;
        for (size_t r = 0; r < k; ++r)
          all.push_back(contribution(format_of<T>(), who[r], static_cast<uint32_t>(who.size()), i));
        const Bits bits = k == 1 ? all[0] : reference(format_of<T>(), all, average ? k : 0);
        std::memcpy(static_cast<void*>(&of_ranks_[k].emplace_back()), &bits, sizeof(T));
      }
  }
  // The first of the elements `first` and on that is not that of the first `ranks` ranks, in words.
  std::string wrong(std::span<const T> values, size_t ranks, uint64_t first = 0) const {
    for (uint64_t i = 0; i < values.size(); ++i) {
      const T& wanted = of_ranks_[ranks][(first + i) % period];
      if (std::memcmp(&values[i], &wanted, sizeof(T)) != 0)
        return "element " + std::to_string(first + i) + " of " + dtype_name(dtype_of<T>()) + ": expected " +
               hex(wanted) + ", got " + hex(values[i]);
    }
    return "";
  }

 private:
  static std::string hex(const T& value) {
    Bits bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    char text[24];
    std::snprintf(text, sizeof text, "%lx", static_cast<unsigned long>(bits));
    return text;
  }
  std::vector<std::vector<T>> of_ranks_;
};

constexpr uint32_t reductions[] = {TUTTI_REDUCE, TUTTI_ALL_REDUCE, TUTTI_REDUCE_SCATTER, TUTTI_SCAN,
                                   TUTTI_EXCLUSIVE_SCAN};

// All that `collectives` asks for, as this rank among those of `who`.
template <typename T>
void reduce_everything(const Communicator& comm, uint64_t collectives, const std::vector<uint32_t>& who, uint64_t count,
                       const Definition<T>& definition, Op op, const Options& options = {}) {
  const uint32_t n = comm.nranks(), me = comm.rank(), root = n / 2;
  const auto asked = [&](uint32_t collective) { return (collectives >> collective & 1) != 0; };
  const std::vector<T> in = values_of<T>(who[me], n, count);
  std::vector<T> out(count), in_place = in;
  if (asked(TUTTI_ALL_REDUCE)) {
    comm.all_reduce(in, out, op, options);
    EXPECT_EQ(definition.wrong(out, n), "") << "all_reduce";
    comm.all_reduce(in_place, in_place, op, options);
    EXPECT_EQ(definition.wrong(in_place, n), "") << "all_reduce in place";
  }
  if (asked(TUTTI_REDUCE)) {
    comm.reduce(in, out, op, root, options);
    EXPECT_EQ(me == root ? definition.wrong(out, n) : "", "") << "reduce";
  }
  if (asked(TUTTI_REDUCE_SCATTER)) {
    comm.reduce_scatter(values_of<T>(who[me], n, count * n), out, op, options);
    EXPECT_EQ(definition.wrong(out, n, me * count), "") << "reduce_scatter";
  }
  if (asked(TUTTI_SCAN)) {
    comm.scan(in, out, op, options);
    EXPECT_EQ(definition.wrong(out, me + 1), "") << "scan";
  }
  if (asked(TUTTI_EXCLUSIVE_SCAN)) {
    in_place = in;
    comm.exclusive_scan(in_place, in_place, op, options);
    EXPECT_EQ(me ? definition.wrong(in_place, me) : "", "") << "exclusive_scan in place";
  }
}

struct Definitions {
  Definitions(const std::vector<uint32_t>& ranks, Op op_)
      : who(ranks),
        op(op_),
        half(who, op == Op::avg),
        brain(who, op == Op::avg),
        single(who, op == Op::avg),
        full(who, op == Op::avg) {}
  std::vector<uint32_t> who;
  Op op;
  Definition<float16> half;
  Definition<bfloat16> brain;
  Definition<float> single;
  Definition<double> full;
};
void reduce_all_types(const Communicator& comm, uint64_t collectives, uint64_t count, const Definitions& of) {
  reduce_everything(comm, collectives, of.who, count, of.half, of.op);
  reduce_everything(comm, collectives, of.who, count, of.brain, of.op);
  reduce_everything(comm, collectives, of.who, count, of.single, of.op);
  reduce_everything(comm, collectives, of.who, count, of.full, of.op);
}

// Each algorithm gets the contributions in another order.
void reduce_by_all(uint32_t n, const char* transport, const std::vector<uint64_t>& counts) {
  uint64_t served = 0;
  uint32_t turn = 0;
  for (const tutti_algorithm* algorithm : list_algorithms()) {
    const uint64_t mask = shown_for(*algorithm, reductions, n, n / 2, &Proof::flat);
    served |= mask;
    if (!mask) continue;
    const std::string names = only(*algorithm, mask);
    SCOPED_TRACE(std::to_string(n) + " ranks, " + names);
    const Definitions of(permuted(n, turn), turn % 2 ? Op::avg : Op::sum);
    ++turn;
    run_ranks(n,
              [&](Communicator& comm) {
                for (const uint64_t count : counts) reduce_all_types(comm, mask, count, of);
              },
              {.transports = transport, .algorithms = names.c_str(), .flags = TUTTI_COMM_EXACT_SUMS});
  }
  for (const uint32_t collective : reductions)
    EXPECT_TRUE(served >> collective & 1) << collective_name(collective) << " of " << n << " ranks";
}

TEST(ExactSums, AreThoseOfRationalArithmetic) {
  for (const uint32_t n : {1u, 2u, 3u, 5u, 8u}) reduce_by_all(n, nullptr, {1, period});
}

TEST(ExactSums, DISABLED_AreThoseForEveryNumberOfRanks) {
  for (uint32_t n = 1; n <= 17; ++n) reduce_by_all(n, nullptr, {1, period});
}

// Blocks that run in slices. More than 16 contributions.
TEST(ExactSums, AlsoInSlicesAndOverTcp) {
  for (const char* transport : {"shm", "tcp"}) reduce_by_all(3, transport, {100'000});
  reduce_by_all(17, "shm", {period});
}

// The order of the ranks is nothing to it: every permutation gives the bits of the first.
TEST(ExactSums, AreChosenByTheEnvironment) {
  ASSERT_EQ(setenv("TUTTI_ORDER", "exact", 1), 0);
  uint64_t all = 0;
  for (const uint32_t collective : reductions) all |= uint64_t{1} << collective;
  for (const uint32_t n : {2u, 7u}) {
    const Definitions of(permuted(n, n), Op::sum);
    std::vector<std::vector<float>> first(n);
    run_ranks(n, [&](Communicator& comm) {
      for (const uint64_t count : {1u, 240u, 30'000u}) reduce_all_types(comm, all, count, of);
      std::vector<float> out(period);
      for (uint32_t which = 0; which < 2 * n; ++which) {
        comm.all_reduce(values_of<float>(permuted(n, which)[comm.rank()], n, period), out, Op::sum);
        if (which == 0) first[comm.rank()] = out;
        EXPECT_EQ(std::memcmp(out.data(), first[comm.rank()].data(), period * sizeof(float)), 0) << which;
      }
      comm.broadcast(out, out, 0);  // what does not reduce takes any algorithm
      comm.barrier();
    });
  }
  unsetenv("TUTTI_ORDER");
}

TEST(ExactSums, OfUnequalBlocks) {
  constexpr uint32_t n = 5;
  const Definitions of(permuted(n, 3), Op::avg);
  run_ranks(n,
            [&](Communicator& comm) {
              const std::vector<uint64_t> counts{7, 0, 100, 3, 40};
              uint64_t before = 0;
              for (uint32_t r = 0; r < comm.rank(); ++r) before += counts[r];
              const std::vector<bfloat16> in = values_of<bfloat16>(of.who[comm.rank()], n, 150);
              std::vector<bfloat16> out(counts[comm.rank()]);
              comm.reduce_scatter_v(in, counts, out, of.op);
              EXPECT_EQ(of.brain.wrong(out, n, before), "");
            },
            {.flags = TUTTI_COMM_EXACT_SUMS});
}

TEST(ExactSums, OfOneCall) {
  constexpr uint32_t n = 3;
  const Definitions of(permuted(n, 1), Op::sum);
  uint64_t all = 0;
  for (const uint32_t collective : reductions) all |= uint64_t{1} << collective;
  run_ranks(n, [&](Communicator& comm) {
    reduce_everything(comm, all, of.who, period, of.single, of.op, {.order = Order::exact});
    reduce_everything(comm, all, of.who, 1, of.half, of.op, {.order = Order::exact});
  });
  // And all but one.
  run_ranks(n,
            [&](Communicator& comm) {
              std::vector<float> ones(100, 1);
              comm.all_reduce(ones, ones, Op::prod, {.order = Order::free});
              EXPECT_EQ(ones[99], 1);
              comm.all_reduce(ones, ones, Op::prod, {.order = Order::canonical});
              reduce_everything(comm, all, of.who, period, of.full, of.op);
            },
            {.flags = TUTTI_COMM_EXACT_SUMS});
}

// Small calls of a group travel as one only with others of their order.
TEST(ExactSums, InGroups) {
  constexpr uint32_t n = 3;
  const Definitions of(permuted(n, 2), Op::sum);
  run_ranks(n, [&](Communicator& comm) {
    const std::vector<float> in = values_of<float>(of.who[comm.rank()], n, period);
    std::vector<float> exact(period), other(period), free(period);
    tutti_options options{sizeof options};
    options.order = TUTTI_ORDER_EXACT;
    ASSERT_EQ(tutti_group_begin(comm.handle()), TUTTI_OK);
    const auto add = [&](std::vector<float>& out, const tutti_options* how) {
      return tutti_all_reduce(comm.handle(), in.data(), out.data(), period, TUTTI_FLOAT32, TUTTI_SUM, how, nullptr);
    };
    ASSERT_EQ(add(free, nullptr), TUTTI_OK);
    ASSERT_EQ(add(exact, &options), TUTTI_OK);
    ASSERT_EQ(add(other, &options), TUTTI_OK);
    ASSERT_EQ(tutti_group_end(comm.handle(), nullptr, nullptr), TUTTI_OK);
    EXPECT_EQ(of.single.wrong(exact, n), "");
    EXPECT_EQ(of.single.wrong(other, n), "");
  });
}

#if defined(__x86_64__)
// The application flushes denormal numbers to zero and rounds toward zero.
TEST(ExactSums, WhateverTheFloatingPointModeIs) {
  constexpr uint32_t n = 3;
  const Definitions of(permuted(n, 0), Op::avg);
  run_ranks(n,
            [&](Communicator& comm) {
              const std::vector<float> in = values_of<float>(of.who[comm.rank()], n, period);
              const std::vector<double> wide = values_of<double>(of.who[comm.rank()], n, period);
              std::vector<float> out(period);
              std::vector<double> wide_out(period);
              const unsigned before = _mm_getcsr(), flushing = before | 0xe040;
              _mm_setcsr(flushing);
              comm.all_reduce(in, out, of.op);
              comm.all_reduce(wide, wide_out, of.op);
              const unsigned after = _mm_getcsr();
              _mm_setcsr(before);
              EXPECT_EQ(after & 0xffc0, flushing & 0xffc0);
              EXPECT_EQ(of.single.wrong(out, n), "");
              EXPECT_EQ(of.full.wrong(wide_out, n), "");
            },
            {.flags = TUTTI_COMM_EXACT_SUMS});
}
#endif

void expect_refused(const Failed& failed, std::initializer_list<const char*> words) {
  EXPECT_EQ(failed.status, TUTTI_NOT_SUPPORTED) << failed.text;
  for (const char* word : words)
    EXPECT_NE(failed.text.find(word), std::string::npos) << '"' << word << "\" in: " << failed.text;
}

TEST(ExactSums, AreRefusedWhereTheyAreNotDefined) {
  run_ranks(
      2,
      [](Communicator& comm) {
        std::vector<float> values(4, 1);
        const auto all_reduce = [&](uint32_t dtype, uint32_t op) {
          std::vector<double> room(4);
          const tutti_status status =
              tutti_all_reduce(comm.handle(), room.data(), room.data(), 1, dtype, op, nullptr, nullptr);
          return Failed{status, status < 0 ? tutti_comm_error(comm.handle()) : ""};
        };
        expect_refused(all_reduce(TUTTI_FLOAT32, TUTTI_PROD),
                       {"all_reduce", "exact sums", "sum and avg of float16, bfloat16, float32 and float64",
                        "prod of float32", "TUTTI_ORDER_FREE"});
        expect_refused(all_reduce(TUTTI_FLOAT8_E4M3, TUTTI_SUM), {"sum of float8_e4m3"});
        expect_refused(all_reduce(TUTTI_COMPLEX64, TUTTI_AVG), {"avg of complex64"});
        const auto plus = Operator::of<float>(comm, "plus", [](float a, float b) { return a + b; });
        expect_refused(all_reduce(TUTTI_FLOAT32, static_cast<uint32_t>(Op(plus))), {"operator \"plus\" of float32"});
        const auto twice = Operator::premul_sum(comm, 2.0f);
        expect_refused(all_reduce(TUTTI_FLOAT32, static_cast<uint32_t>(Op(twice))), {"of float32"});
        // Operators that round nothing are served as ever.
        for (const uint32_t op : {TUTTI_MIN, TUTTI_MAX}) EXPECT_EQ(all_reduce(TUTTI_FLOAT8_E4M3, op).status, TUTTI_OK);
        for (const uint32_t op : std::initializer_list<uint32_t>{TUTTI_SUM, TUTTI_PROD, TUTTI_AVG, TUTTI_BXOR})
          EXPECT_EQ(all_reduce(TUTTI_INT32, op).status, TUTTI_OK);
        EXPECT_EQ(all_reduce(TUTTI_FLOAT64_INT64, TUTTI_MAXLOC).status, TUTTI_OK);
        const auto greater = Operator::of<int64_t>(comm, "greater", [](int64_t a, int64_t b) { return a > b ? a : b; });
        EXPECT_EQ(all_reduce(TUTTI_INT64, static_cast<uint32_t>(Op(greater))).status, TUTTI_OK);
      },
      {.flags = TUTTI_COMM_EXACT_SUMS});
}

TEST(ExactSums, NeedAFlatAlgorithm) {
  run_ranks(5,
            [](Communicator& comm) {
              std::vector<float> values(100, 1);
              expect_refused(failure_of([&] { comm.all_reduce(values, values, Op::sum); }),
                             {"all_reduce", "ring", "tree", "all contributions in one step", "TUTTI_ORDER"});
              std::vector<int32_t> integers(100, 1);
              comm.all_reduce(integers, integers, Op::sum);
              EXPECT_EQ(integers[99], 5);
              comm.all_reduce(values, values, Op::max);
              comm.all_reduce(values, values, Op::sum, {.order = Order::free});
              EXPECT_EQ(values[99], 5);
            },
            {.algorithms = "all_reduce:ring,tree", .flags = TUTTI_COMM_EXACT_SUMS});
}

TEST(ExactSums, AreAgreedUpon) {
  const std::string place = fresh_place();
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      tutti_comm_config config = config_of(place, r, 2);
      config.flags = r ? TUTTI_COMM_EXACT_SUMS : TUTTI_COMM_CANONICAL_ORDER;
      const Failed failed = failure_of([&] { Communicator comm(config); });
      EXPECT_EQ(failed.status, TUTTI_MISMATCH);
      for (const char* word : {"TUTTI_ORDER", "canonical", "exact"})
        EXPECT_NE(failed.text.find(word), std::string::npos) << failed.text;
    });
  for (std::thread& t : threads) t.join();
}

TEST(ExactSums, AreAgreedUponInEachCall) {
  run_ranks(2,
            [](Communicator& comm) {
              std::vector<float> values(10, 1);
              const Order order = comm.rank() ? Order::exact : Order::free;
              const Failed failed = failure_of([&] { comm.all_reduce(values, values, Op::sum, {.order = order}); });
              EXPECT_EQ(failed.status, TUTTI_MISMATCH);
              EXPECT_NE(failed.text.find("exact"), std::string::npos) << failed.text;
            },
            {.flags = TUTTI_COMM_CHECK_CALLS});
}

TEST(ExactSums, AreNotCanonicalAtOnce) {
  tutti_comm_config config = config_of("", 0, 1);
  config.flags = TUTTI_COMM_EXACT_SUMS | TUTTI_COMM_CANONICAL_ORDER;
  const Failed failed = failure_of([&] { Communicator comm(config); });
  EXPECT_EQ(failed.status, TUTTI_INVALID_ARGUMENT);
  EXPECT_NE(failed.text.find("TUTTI_COMM_EXACT_SUMS"), std::string::npos) << failed.text;
}

}  // namespace
}  // namespace tutti::test
