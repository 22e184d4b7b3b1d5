// SPDX-License-Identifier: Apache-2.0
//
// Every collective by every algorithm that offers it, against a naive reference, over each transport at hand: odd rank
// counts, counts that do not divide, zero, in place on no rank, all ranks, or odd ranks only.
#include <tutti/registry.h>
#include <tutti/schedule.h>

#include <cstring>

#include "../../../tests/harness/algorithms.hpp"
#include "../../../tests/harness/call_collective.hpp"
#include "../../../tests/harness/ranks.hpp"
#include "../../../tests/harness/sanitized.hpp"

namespace tutti::test {
namespace {

struct Case {
  uint32_t collective;
  std::string algorithm;
  std::string transport;
  const tutti_algorithm* way = nullptr;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const tutti_transport* transport : list_transports()) {
    const std::string name = transport->name;
    if (name != "shm" && name != "tcp" && name != "template") continue;
    for (const tutti_algorithm* algorithm : name == "shm" ? list_algorithms() : thinned(list_algorithms()))
      for (uint32_t c = TUTTI_BROADCAST; c <= last_collective; ++c)
        if (!has_unequal_blocks(c) && algorithm->collectives >> c & 1)
          cases.push_back({c, algorithm->name, name, algorithm});
  }
  return cases;
}

// Distinguishable by rank and index, and exact in any order of summation.
int64_t value(uint32_t rank, uint64_t index) {
  return static_cast<int64_t>((rank + 1) * 1'000'003 + index * 7 + index % 13);
}

template <typename T>
struct Data {
  std::vector<T> in, out, expected;
};

template <typename T>
Data<T> make(uint32_t collective, uint32_t n, uint32_t root, uint32_t rank, uint64_t count) {
  Data<T> d;
  const auto in = [&](uint32_t r, uint64_t i) { return static_cast<T>(value(r, i)); };
  const auto sum = [&](uint64_t i) {
    T s = 0;
    for (uint32_t r = 0; r < contributors(collective, n, rank); ++r) s = static_cast<T>(s + in(r, i));
    return s;
  };
  d.in.resize(count * block_count(collective, n, root, rank, TUTTI_BUFFER_IN));
  for (uint64_t i = 0; i < d.in.size(); ++i) d.in[i] = in(rank, i);
  d.expected.resize(count * block_count(collective, n, root, rank, TUTTI_BUFFER_OUT));
  for (uint64_t i = 0; i < d.expected.size(); ++i) {
    const auto block = static_cast<uint32_t>(i / std::max<uint64_t>(count, 1));
    const uint64_t at = i - block * count;
    switch (collective) {
      case TUTTI_BROADCAST:
        d.expected[i] = in(root, i);
        break;
      case TUTTI_REDUCE:
      case TUTTI_ALL_REDUCE:
      case TUTTI_SCAN:
      case TUTTI_EXCLUSIVE_SCAN:
        d.expected[i] = sum(i);
        break;
      case TUTTI_GATHER:
      case TUTTI_ALL_GATHER:
        d.expected[i] = in(block, at);
        break;
      case TUTTI_SCATTER:
        d.expected[i] = in(root, rank * count + at);
        break;
      case TUTTI_REDUCE_SCATTER:
        d.expected[i] = sum(rank * count + at);
        break;
      case TUTTI_ALL_TO_ALL:
        d.expected[i] = in(block, rank * count + at);
        break;
      default:
        break;
    }
  }
  d.out.assign(d.expected.size(), static_cast<T>(-77));
  return d;
}

template <typename T>
void check(Communicator& comm, uint32_t collective, uint64_t count, uint32_t root, bool in_place) {
  const uint32_t n = comm.nranks(), rank = comm.rank();
  Data<T> d = make<T>(collective, n, root, rank, count);
  const std::vector<T> before = d.in;
  const void* in = d.in.data();
  void* out = d.out.data();
  std::vector<T> both;
  if (in_place && !d.in.empty() && !d.out.empty()) {
    both.assign(std::max(d.in.size(), d.out.size()), static_cast<T>(-77));
    const bool in_is_block = d.in.size() < d.out.size();
    T* first = both.data() + (in_is_block ? rank * count : 0);
    std::copy(d.in.begin(), d.in.end(), first);
    in = first;
    out = both.data() + (d.in.size() > d.out.size() ? rank * count : 0);
  }
  const tutti_status status = call_collective<T>(comm.handle(), collective, in, out, count, root);
  ASSERT_EQ(status, TUTTI_OK) << tutti_comm_error(comm.handle());
  const T* result = static_cast<const T*>(out);
  for (uint64_t i = 0; i < d.expected.size(); ++i)
    ASSERT_EQ(result[i], d.expected[i]) << collective_name(collective) << " rank " << rank << " of " << n << ", count "
                                        << count << ", root " << root << ", in place " << in_place << ", element " << i;
  if (both.empty()) {
    ASSERT_EQ(d.in, before) << "the input was written";
  }
}

class Collectives : public testing::TestWithParam<Case> {};

TEST_P(Collectives, MatchTheReference) {
  const Case& c = GetParam();
  const std::string only = std::string(collective_name(c.collective)) + ":" + c.algorithm;
  const bool rooted = has_root(c.collective);
  const std::vector<uint32_t> sizes = sanitized ? std::vector<uint32_t>{3, 4} : std::vector<uint32_t>{1, 2, 3, 4, 7};
  for (const uint32_t n : sizes) {
    if (!serves_one_host(*c.way, c.collective, n)) {
      run_ranks(n,
                [&](Communicator& comm) {
                  std::vector<int32_t> in(n), out(n);
                  EXPECT_EQ(call_collective<int32_t>(comm.handle(), c.collective, in.data(), out.data(), 1, 0),
                            TUTTI_NOT_SUPPORTED);
                },
                {c.transport.c_str(), only.c_str()});
      continue;
    }
    run_ranks(n,
              [&](Communicator& comm) {
                const bool odd = comm.rank() % 2;
                for (const uint32_t root : {0u, n - 1}) {
                  if (root && !rooted) continue;
                  const uint64_t counts[] = {0, 1, n - 1, n, n + 1, 1000};
                  for (const uint64_t count : counts)
                    for (const bool in_place : {false, true, odd})
                      check<int32_t>(comm, c.collective, count, root, in_place);
                  // Several fragments: in place on some ranks, and on the others where n is of the other kind.
                  check<int32_t>(comm, c.collective, 70'001, root, odd == n % 2);
                }
              },
              {c.transport.c_str(), only.c_str()});
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Collectives, testing::ValuesIn(all_cases()), [](const auto& each) {
  return each.param.transport + "_" + collective_name(each.param.collective) + "_" + each.param.algorithm;
});

TEST(CollectivesParameters, ReachTheAlgorithm) {
  run_ranks(7,
            [](Communicator& comm) {
              for (const uint64_t count : {1u, 1000u, 70'001u})
                check<int32_t>(comm, TUTTI_ALL_TO_ALL, count, 0, comm.rank() % 2);
            },
            {nullptr, "all_to_all:bruck:3"});
  run_ranks(
      2,
      [](Communicator& comm) {
        int32_t in[2] = {}, out[2] = {};
        EXPECT_EQ(tutti_all_to_all(comm.handle(), in, out, 1, TUTTI_INT32, nullptr, nullptr), TUTTI_NOT_SUPPORTED);
        const std::string error = tutti_comm_error(comm.handle());
        EXPECT_NE(error.find("expected a base from 2 to 64 behind the colon, got \"x\""), std::string::npos) << error;
      },
      {nullptr, "all_to_all:bruck:x"});
}

TEST(CollectivesTypes, EveryTypeAndOperatorAgreesOnAllRanks) {
  run_ranks(3, [](Communicator& comm) {
    for (const uint32_t dtype : all_dtypes())
      for (const uint32_t op : all_ops()) {
        if (!op_is_defined(op, dtype)) continue;
        constexpr uint64_t count = 999;
        const uint64_t bytes = count * dtype_bytes(dtype);
        std::vector<uint64_t> in(count * 2), out(count * 2), others(count * 6);
        for (uint64_t i = 0; i < bytes; ++i)
          reinterpret_cast<uint8_t*>(in.data())[i] = static_cast<uint8_t>(i * 31 + comm.rank() * 17) & 0x3b;
        ASSERT_EQ(tutti_all_reduce(comm.handle(), in.data(), out.data(), count, dtype, op, nullptr, nullptr), TUTTI_OK)
            << tutti_comm_error(comm.handle());
        ASSERT_EQ(tutti_all_gather(comm.handle(), out.data(), others.data(), count, dtype, nullptr, nullptr), TUTTI_OK);
        const auto* all = reinterpret_cast<const char*>(others.data());
        EXPECT_EQ(std::memcmp(all, all + bytes, bytes), 0) << dtype_name(dtype) << " " << op_name(op);
        EXPECT_EQ(std::memcmp(all, all + 2 * bytes, bytes), 0) << dtype_name(dtype) << " " << op_name(op);
      }
  });
}

TEST(CollectivesTypes, ComplexNumbers) {
  run_ranks(3, [](Communicator& comm) {
    using Number = std::complex<float>;
    const auto r = static_cast<float>(comm.rank());
    const std::vector<Number> in{{r, 1}, {1, r}};
    std::vector<Number> out(2);
    comm.all_reduce(in, out, Op::sum);
    EXPECT_EQ(out, (std::vector<Number>{{3, 3}, {3, 3}}));
    comm.all_reduce(in, out, Op::avg);
    EXPECT_EQ(out, (std::vector<Number>{{1, 1}, {1, 1}}));
    comm.all_reduce(in, out, Op::prod);
    EXPECT_EQ(out[0], Number(0, 1) * Number(1, 1) * Number(2, 1));
    try {
      comm.all_reduce(in, out, Op::max);
      ADD_FAILURE() << "complex numbers have no order";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("max is not defined for complex64: expected one of sum, prod, avg"),
                std::string::npos)
          << error.what();
    }
  });
}

// Which rank has the least value, and which the greatest: ties, zeros of both signs and NaN, by every way to reduce.
TEST(CollectivesTypes, ValuesAndTheirPlaces) {
  run_ranks(5, [](Communicator& comm) {
    const auto r = static_cast<int32_t>(comm.rank());
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const std::vector<float64_int64> in{{std::abs(r - 2.0), 100 - r},  // least at rank 2, greatest at 0 and 4
                                        {r == 3 ? -0.0 : 0.0, r},
                                        {r == 1 || r == 4 ? nan : -r, 10 - r},
                                        {7, r * int64_t{-1'000'000'000'000}}};
    std::vector<float64_int64> least(4), greatest(4);
    comm.all_reduce(in, least, Op::minloc);
    comm.all_reduce(in, greatest, Op::maxloc);
    const int64_t least_index[] = {98, 3, 6, -4'000'000'000'000}, greatest_index[] = {96, 0, 6, -4'000'000'000'000};
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(least[i].index, least_index[i]) << i;
      EXPECT_EQ(greatest[i].index, greatest_index[i]) << i;
    }
    EXPECT_TRUE(least[0].value == 0 && std::signbit(least[1].value) && std::isnan(least[2].value));
    EXPECT_TRUE(greatest[0].value == 2 && !std::signbit(greatest[1].value) && std::isnan(greatest[2].value));

    const float32_int32 own[1] = {{r % 2 ? 1.0f : 2.0f, r}};
    float32_int32 all[5], first[1];
    comm.all_gather(own, all);
    for (int32_t k = 0; k < 5; ++k) EXPECT_TRUE(all[k].index == k && all[k].value == (k % 2 ? 1.0f : 2.0f)) << k;
    comm.scan(own, first, Op::minloc);
    EXPECT_EQ(first[0].index, r ? 1 : 0);
    try {
      comm.all_reduce(in, least, Op::min);
      ADD_FAILURE() << "pairs have minloc";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("min is not defined for float64_int64: expected one of minloc, maxloc"),
                std::string::npos)
          << error.what();
    }
  });
}

TEST(CollectivesTypes, TruthValuesAndBits) {
  run_ranks(3, [](Communicator& comm) {
    const uint32_t rank = comm.rank();
    const bool in[4] = {true, rank == 1, false, rank != 1};
    bool out[4];
    comm.all_reduce(in, out, Op::land);
    EXPECT_TRUE(out[0] && !out[1] && !out[2] && !out[3]);
    comm.all_reduce(in, out, Op::bor);
    EXPECT_TRUE(out[0] && out[1] && !out[2] && out[3]);
    comm.all_reduce(in, out, Op::lxor);
    EXPECT_TRUE(out[0] && out[1] && !out[2] && !out[3]);
    uint16_t bits[2] = {static_cast<uint16_t>(1u << rank), 0xff00};
    comm.all_reduce(bits, bits, Op::bor);
    EXPECT_EQ(bits[0], 7);
    EXPECT_EQ(bits[1], 0xff00);
    comm.all_reduce(bits, bits, Op::land);
    EXPECT_EQ(bits[1], 1);
  });
}

TEST(CollectivesTypes, AverageIsTheWrappedSumDividedTowardZero) {
  run_ranks(2, [](Communicator& comm) {
    std::vector<int8_t> in{static_cast<int8_t>(comm.rank() ? -4 : 1), 100}, out(2);
    comm.all_reduce<int8_t>(in, out, Op::avg);
    EXPECT_EQ(out[0], -1);   // -3 / 2
    EXPECT_EQ(out[1], -28);  // 200 wraps to -56
  });
  run_ranks(1, [](Communicator& comm) {
    std::vector<float> in{3.5f}, out(1);
    comm.all_reduce<float>(in, out, Op::avg);
    EXPECT_EQ(out[0], 3.5f);
  });
}

TEST(CollectivesMemory, RegisteredAndOrdinaryMemoryMix) {
  run_ranks(3, [](Communicator& comm) {
    constexpr size_t count = 300'001;
    Buffer<int32_t> registered(count);
    std::vector<int32_t> ordinary(count);
    for (int round = 0; round < 4; ++round) {
      // Which rank uses which memory changes with the round; the wire does not care.
      const bool use = (comm.rank() + static_cast<uint32_t>(round)) % 2;
      const std::span<int32_t> data = use ? registered.span() : std::span<int32_t>(ordinary);
      for (size_t i = 0; i < count; ++i) data[i] = static_cast<int32_t>(i + comm.rank());
      comm.all_reduce<int32_t>(data, data, Op::sum);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(data[i], static_cast<int32_t>(3 * i + 3)) << i;
    }
  });
}

}  // namespace
}  // namespace tutti::test
