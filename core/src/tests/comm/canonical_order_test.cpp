// SPDX-License-Identifier: Apache-2.0
//
// TUTTI_ORDER=canonical: data whose sums round, and the bits that the definition gives, by every algorithm that the
// verifier has shown to have the order; everything else is refused. The long form, for every number of ranks to 17:
// canonical_order_test --gtest_also_run_disabled_tests.
#include <tutti/registry.h>
#include <tutti/schedule.h>

#include <bit>
#include <cstdlib>
#include <cstring>

#include "../../../tests/harness/algorithms.hpp"
#include "../../../tests/harness/ranks.hpp"

namespace tutti::test {
namespace {

// Elements of many magnitudes and both signs: another bracket rounds to another sum nearly always.
template <typename T>
T element(uint32_t rank, uint64_t i) {
  const uint64_t lot = (rank * 1000003 + i * 7919 + 1) * 0x9e3779b97f4a7c15u;
  const float magnitude = static_cast<float>(1u << (lot >> 32 & 7)) / 16;
  return T((lot >> 40 & 1 ? magnitude : -magnitude) * (1 + static_cast<float>(lot >> 41 & 0xfff) / 4096));
}
template <typename T>
std::vector<T> contribution(uint32_t rank, uint64_t count) {
  std::vector<T> values(count);
  for (uint64_t i = 0; i < count; ++i) values[i] = element<T>(rank, i);
  return values;
}

// The definition: ranks first ... first+count-1, split at the largest power of two below their number, the lower half
// the left operand, rounded to the type.
template <typename T>
T reference(uint64_t i, uint32_t first, uint32_t count) {
  if (count == 1) return element<T>(first, i);
  const uint32_t lower = std::bit_ceil(count) / 2;
  return T(float(reference<T>(i, first, lower)) + float(reference<T>(i, first + lower, count - lower)));
}
// Its bits for each number of ranks to n, made once for all ranks and algorithms.
template <typename T>
class Definition {
 public:
  Definition(uint32_t n, uint64_t count) : of_ranks_(n + 1) {
    for (uint32_t ranks = 1; ranks <= n; ++ranks)
      for (uint64_t i = 0; i < (ranks == n ? count * n : count); ++i)  // a reduce_scatter has n blocks
        of_ranks_[ranks].push_back(reference<T>(i, 0, ranks));
  }
  // How many of the elements `first` and on are not those of a reduction over `ranks`.
  uint64_t wrong(std::span<const T> values, uint32_t ranks, uint64_t first = 0) const {
    const T* wanted = of_ranks_[ranks].data() + first;
    if (std::memcmp(values.data(), wanted, values.size_bytes()) == 0) return 0;
    uint64_t n = 0;
    for (uint64_t i = 0; i < values.size(); ++i) n += std::memcmp(&values[i], &wanted[i], sizeof(T)) != 0;
    return n;
  }

 private:
  std::vector<std::vector<T>> of_ranks_;
};
struct Definitions {
  Definitions(uint32_t n, uint64_t elements) : count(elements), single(n, count), half(n, count), brain(n, count) {}
  uint64_t count;
  Definition<float> single;
  Definition<float16> half;
  Definition<bfloat16> brain;
};

std::vector<Definitions> definitions_of(uint32_t n, const std::vector<uint64_t>& counts) {
  std::vector<Definitions> all;
  for (const uint64_t count : counts) all.emplace_back(n, count);
  return all;
}

constexpr uint32_t reductions[] = {TUTTI_REDUCE, TUTTI_ALL_REDUCE, TUTTI_REDUCE_SCATTER, TUTTI_SCAN,
                                   TUTTI_EXCLUSIVE_SCAN};

template <typename T>
void reduce_everything(const Communicator& comm, uint64_t collectives, uint32_t root, uint64_t count,
                       const Definition<T>& definition) {
  const uint32_t n = comm.nranks(), me = comm.rank();
  const auto asked = [&](uint32_t collective) { return (collectives >> collective & 1) != 0; };
  const std::vector<T> in = contribution<T>(me, count);
  std::vector<T> out(count), in_place = in;
  if (asked(TUTTI_ALL_REDUCE)) {
    comm.all_reduce(in, out, Op::sum);
    EXPECT_EQ(definition.wrong(out, n), 0u) << "all_reduce";
    comm.all_reduce(in_place, in_place, Op::sum);
    EXPECT_EQ(definition.wrong(in_place, n), 0u) << "all_reduce in place";
  }
  if (asked(TUTTI_REDUCE)) {
    comm.reduce(in, out, Op::sum, root);
    EXPECT_EQ(me == root ? definition.wrong(out, n) : 0, 0u) << "reduce";
  }
  if (asked(TUTTI_REDUCE_SCATTER)) {
    comm.reduce_scatter(contribution<T>(me, count * n), out, Op::sum);
    EXPECT_EQ(definition.wrong(out, n, me * count), 0u) << "reduce_scatter";
  }
  if (asked(TUTTI_SCAN)) {
    comm.scan(in, out, Op::sum);
    EXPECT_EQ(definition.wrong(out, me + 1), 0u) << "scan";
  }
  if (asked(TUTTI_EXCLUSIVE_SCAN)) {
    in_place = in;
    comm.exclusive_scan(in_place, in_place, Op::sum);
    EXPECT_EQ(me ? definition.wrong(in_place, me) : 0, 0u) << "exclusive_scan in place";
  }
}

void reduce_by_all(uint32_t n, const char* transport, const std::vector<uint64_t>& counts) {
  const uint32_t root = n / 2;
  const std::vector<Definitions> definitions = definitions_of(n, counts);
  uint64_t served = 0;
  for (const tutti_algorithm* algorithm : list_algorithms()) {
    const uint64_t mask = shown_for(*algorithm, reductions, n, root, &Proof::canonical);
    served |= mask;
    if (!mask) continue;
    const std::string names = only(*algorithm, mask);
    SCOPED_TRACE(std::to_string(n) + " ranks, " + names);
    run_ranks(n,
              [&](Communicator& comm) {
                for (const Definitions& of : definitions) {
                  reduce_everything(comm, mask, root, of.count, of.single);
                  reduce_everything(comm, mask, root, of.count, of.half);
                  reduce_everything(comm, mask, root, of.count, of.brain);
                }
              },
              {.transports = transport, .algorithms = names.c_str(), .flags = TUTTI_COMM_CANONICAL_ORDER});
  }
  for (const uint32_t collective : reductions)
    EXPECT_TRUE(served >> collective & 1) << collective_name(collective) << " of " << n << " ranks";
}

// Each kind of tree: a power of two, one rank more and one less, a lower half of several levels beside an upper one of
// several. Up to 9 ranks they are all.
TEST(CanonicalOrder, GivesTheBitsOfTheDefinition) {
  for (const uint32_t n : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 13u}) reduce_by_all(n, nullptr, {1, 333});
}

TEST(CanonicalOrder, DISABLED_GivesTheBitsForEveryNumberOfRanks) {
  for (uint32_t n = 10; n <= 17; ++n) reduce_by_all(n, nullptr, {1, 333});
}

// Blocks that run in slices.
TEST(CanonicalOrder, AlsoInSlicesAndOverTcp) {
  for (const char* transport : {"shm", "tcp"})
    for (const uint32_t n : {3u, 6u}) reduce_by_all(n, transport, {100'000});
}

// The choice is free among them, and follows the size.
TEST(CanonicalOrder, IsChosenByDefault) {
  ASSERT_EQ(setenv("TUTTI_ORDER", "canonical", 1), 0);
  for (const uint32_t n : {2u, 5u, 7u}) {
    const std::vector<Definitions> definitions = definitions_of(n, {1, 1000, 50'000});
    run_ranks(n, [&](Communicator& comm) {
      uint64_t all = 0;
      for (const uint32_t collective : reductions) all |= uint64_t{1} << collective;
      for (const Definitions& of : definitions) reduce_everything(comm, all, comm.nranks() - 1, of.count, of.single);
      // An average is the sum, divided before it is rounded.
      const std::vector<bfloat16> in = contribution<bfloat16>(comm.rank(), 999);
      std::vector<bfloat16> small(1), large(999);
      comm.all_reduce(in, large, Op::avg);
      for (uint64_t i = 0; i < 9; ++i) {
        comm.all_reduce(std::span(in).subspan(i, 1), small, Op::avg);
        EXPECT_EQ(small[0].bits(), large[i].bits());
      }
      comm.broadcast(small, small, 0);  // what does not reduce takes any algorithm
      comm.barrier();
    });
  }
  unsetenv("TUTTI_ORDER");
}

TEST(CanonicalOrder, RefusesWhatHasItNot) {
  run_ranks(5,
            [](Communicator& comm) {
              std::vector<float> values(100, 1);
              const Failed failed = failure_of([&] { comm.all_reduce(values, values, Op::sum); });
              EXPECT_EQ(failed.status, TUTTI_NOT_SUPPORTED);
              for (const char* part : {"all_reduce", "ring", "canonical order", "TUTTI_ORDER"})
                EXPECT_NE(failed.text.find(part), std::string::npos) << part << ": " << failed.text;
            },
            {.algorithms = "all_reduce:ring,direct", .flags = TUTTI_COMM_CANONICAL_ORDER});
}

TEST(CanonicalOrder, IsAgreedUpon) {
  const std::string place = fresh_place();
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      tutti_comm_config config = config_of(place, r, 2);
      config.flags = r ? TUTTI_COMM_CANONICAL_ORDER : 0;
      const Failed failed = failure_of([&] { Communicator comm(config); });
      EXPECT_EQ(failed.status, TUTTI_MISMATCH);
      EXPECT_NE(failed.text.find("TUTTI_ORDER"), std::string::npos) << failed.text;
    });
  for (std::thread& t : threads) t.join();
}

TEST(CanonicalOrder, OtherWordsAreRefused) {
  ASSERT_EQ(setenv("TUTTI_ORDER", "strict", 1), 0);
  const Failed failed = failure_of([] { Communicator comm(fresh_place(), 0, 1); });
  unsetenv("TUTTI_ORDER");
  EXPECT_EQ(failed.status, TUTTI_INVALID_ARGUMENT);
  EXPECT_NE(failed.text.find("TUTTI_ORDER=\"strict\": expected canonical"), std::string::npos) << failed.text;
}

}  // namespace
}  // namespace tutti::test
