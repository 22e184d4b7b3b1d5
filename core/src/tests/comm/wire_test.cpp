// SPDX-License-Identifier: Apache-2.0
//
// options.wire: each contribution is rounded once, sums are float32 in the order of ranks, a result that travels is
// rounded once.
// The tests know the bits from that definition, by tutti/elements.hpp alone, so equal bits on all ranks follow.
#include <tutti/registry.h>
#include <tutti/schedule.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>

#include "../../../tests/harness/ranks.hpp"

namespace tutti::test {
namespace {

using Numbers = std::vector<float>;
constexpr Wire wires[] = {Wire::float16, Wire::bfloat16, Wire::float8};
constexpr size_t block_numbers = 32;

const char* name_of(Wire wire) {
  return wire == Wire::float16 ? "float16" : wire == Wire::bfloat16 ? "bfloat16" : "float8";
}

// Numbers between 2^-7 and 4 of both signs, one in eight 0.
float number_at(uint32_t rank, size_t i) {
  uint64_t lot = ((rank + 1) * 1000003ull + i * 7919) * 0x9e3779b97f4a7c15u;
  lot ^= lot >> 29;
  lot *= 0xbf58476d1ce4e5b9u;
  if ((lot >> 60) % 8 == 0) return 0;
  const float size =
      std::ldexp(1.0f + static_cast<float>(lot >> 40 & 0xfffff) * 0x1p-20f, static_cast<int>(lot % 9) - 7);
  return lot >> 39 & 1 ? -size : size;
}
Numbers numbers_of(uint32_t rank, size_t count) {
  Numbers made(count);
  for (size_t i = 0; i < count; ++i) made[i] = number_at(rank, i);
  return made;
}

// 2^e of a block of float8: the least with which no number exceeds 448.
float scale_of(std::span<const float> block) {
  float largest = 0;
  for (const float x : block) largest = std::max(largest, std::abs(x));
  int e = -126;
  while (largest > std::ldexp(448.0f, e)) ++e;
  return std::ldexp(1.0f, e);
}

// The numbers of one block of a call that has travelled.
Numbers travelled(Wire wire, std::span<const float> numbers) {
  Numbers made(numbers.begin(), numbers.end());
  if (wire == Wire::float16)
    for (float& x : made) x = static_cast<float>(float16(x));
  if (wire == Wire::bfloat16)
    for (float& x : made) x = static_cast<float>(bfloat16(x));
  if (wire == Wire::float8)
    for (size_t first = 0; first < made.size(); first += block_numbers) {
      const std::span<float> block = std::span(made).subspan(first, std::min(block_numbers, made.size() - first));
      const float scale = scale_of(block);
      for (float& x : block) x = static_cast<float>(float8_e4m3(x / scale)) * scale;
    }
  return made;
}

// Elements [first, first + count) of all ranks, reduced as one block, before the result travels. One rank alone rounds
// nothing.
Numbers combined(Wire wire, Op op, uint32_t ranks, size_t first, size_t count) {
  if (ranks == 1) wire = Wire::plain;
  Numbers sum;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    Numbers in(count);
    for (size_t i = 0; i < count; ++i) in[i] = number_at(rank, first + i);
    in = travelled(wire, in);
    if (rank == 0) sum = in;
    for (size_t i = 0; i < count && rank > 0; ++i)
      sum[i] = op == Op::min ? std::min(sum[i], in[i]) : op == Op::max ? std::max(sum[i], in[i]) : sum[i] + in[i];
  }
  if (op == Op::avg)
    for (float& x : sum) x /= static_cast<float>(ranks);
  return sum;
}
Numbers reduced(Wire wire, Op op, uint32_t ranks, size_t first, size_t count) {
  return travelled(ranks > 1 ? wire : Wire::plain, combined(wire, op, ranks, first, count));
}

Numbers part(const Numbers& of, size_t first, size_t count) {
  const auto begin = of.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}
void append(Numbers& to, const Numbers& more) { to.insert(to.end(), more.begin(), more.end()); }

bool same_bits(const Numbers& a, const Numbers& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// The results of one wire format, of calls with `count` numbers in each block: made once for all ranks.
struct Expected {
  Expected(Wire format, uint32_t ranks, size_t count_) : wire(format), n(ranks), count(count_) {
    for (const Op op : {Op::sum, Op::avg, Op::min, Op::max}) whole.push_back(reduced(wire, op, n, 0, count));
    for (uint32_t rank = 0; rank < n; ++rank) {
      counts.push_back(rank % 3 == 1 ? 0 : (count + rank * 5) % (2 * count));
      scattered.push_back(combined(wire, Op::sum, n, rank * count, count));
      scattered_v.push_back(combined(wire, Op::avg, n, total, counts.back()));
      total += counts.back();
      append(gathered, sent(rank, count));
      append(gathered_v, sent(rank, counts.back()));
    }
  }
  Numbers sent(uint32_t rank, size_t numbers) const {
    return travelled(n > 1 ? wire : Wire::plain, numbers_of(rank, numbers));
  }

  Wire wire;
  uint32_t n;
  size_t count, total = 0;
  std::vector<uint64_t> counts;
  std::vector<Numbers> whole;  // sum, avg, min, max
  std::vector<Numbers> scattered, scattered_v;
  Numbers gathered, gathered_v;
};

void reduce_everything(const Communicator& comm, const Expected& expected) {
  const uint32_t n = comm.nranks(), me = comm.rank(), root = n / 2;
  const size_t count = expected.count;
  const Options options{.wire = expected.wire};
  const Numbers in = numbers_of(me, count);
  constexpr Op ops[] = {Op::sum, Op::avg, Op::min, Op::max};
  for (size_t op = 0; op < (expected.wire == Wire::float8 ? 2 : 4); ++op) {
    Numbers out(count), both = in;
    comm.all_reduce(in, out, ops[op], options);
    EXPECT_TRUE(same_bits(out, expected.whole[op])) << "all_reduce, operator " << op;
    EXPECT_TRUE(same_bits(in, numbers_of(me, count))) << "in was written";
    comm.all_reduce(both, both, ops[op], options);
    EXPECT_TRUE(same_bits(both, expected.whole[op])) << "all_reduce in place, operator " << op;
    out.assign(count, 5);
    comm.reduce(in, out, ops[op], root, options);
    EXPECT_TRUE(same_bits(out, me == root ? expected.whole[op] : Numbers(count, 5))) << "reduce, operator " << op;
  }
  Numbers both = in;
  comm.reduce(both, both, Op::sum, root, options);
  EXPECT_TRUE(same_bits(both, me == root ? expected.whole[0] : in)) << "reduce in place";

  Numbers blocks = numbers_of(me, count * n), block(count);
  comm.reduce_scatter(blocks, block, Op::sum, options);
  EXPECT_TRUE(same_bits(block, expected.scattered[me])) << "reduce_scatter";
  comm.reduce_scatter(blocks, std::span(blocks).subspan(me * count, count), Op::sum, options);
  EXPECT_TRUE(same_bits(part(blocks, me * count, count), expected.scattered[me])) << "reduce_scatter in place";
  block.assign(expected.counts[me], 0);
  comm.reduce_scatter_v(numbers_of(me, expected.total), expected.counts, block, Op::avg, options);
  EXPECT_TRUE(same_bits(block, expected.scattered_v[me])) << "reduce_scatter_v";
}

void move_everything(const Communicator& comm, const Expected& expected) {
  const uint32_t n = comm.nranks(), me = comm.rank(), root = n / 2;
  const size_t count = expected.count;
  const Options options{.wire = expected.wire};
  const Numbers in = numbers_of(me, count);
  Numbers all(count * n);
  comm.all_gather(in, all, options);
  EXPECT_TRUE(same_bits(all, expected.gathered)) << "all_gather";
  all.assign(count * n, 0);
  std::copy(in.begin(), in.end(), all.begin() + static_cast<std::ptrdiff_t>(me * count));
  comm.all_gather(std::span(all).subspan(me * count, count), all, options);
  EXPECT_TRUE(same_bits(all, expected.gathered)) << "all_gather in place";
  Numbers gathered(expected.total);
  comm.all_gather_v(numbers_of(me, expected.counts[me]), gathered, expected.counts, options);
  EXPECT_TRUE(same_bits(gathered, expected.gathered_v)) << "all_gather_v";

  Numbers out(count), both = in;
  comm.broadcast(in, out, root, options);
  EXPECT_TRUE(same_bits(out, expected.sent(root, count))) << "broadcast";
  comm.broadcast(both, root, options);
  EXPECT_TRUE(same_bits(both, expected.sent(root, count))) << "broadcast in place: the root's own numbers, too";
}

void check_all(uint32_t n, const std::vector<size_t>& counts, const char* transport) {
  std::vector<Expected> expected;
  for (const Wire wire : wires)
    for (const size_t count : counts) expected.emplace_back(wire, n, count);
  run_ranks(n,
            [&](Communicator& comm) {
              for (const Expected& each : expected) {
                SCOPED_TRACE(std::string(name_of(each.wire)) + ", " + std::to_string(each.count) + " numbers, " +
                             std::to_string(n) + " ranks");
                reduce_everything(comm, each);
                move_everything(comm, each);
              }
            },
            {.transports = transport});
}

TEST(Wire, EveryCollectiveGivesTheBitsOfTheDefinition) {
  for (uint32_t n = 1; n <= 8; ++n) check_all(n, {1, 33, 1000}, nullptr);
}

// Blocks that run in slices; messages of several fragments.
TEST(Wire, AlsoInSlicesAndOverTcp) {
  for (const char* transport : {"shm", "tcp"})
    for (const uint32_t n : {2u, 3u}) check_all(n, {100'000}, transport);
}

TEST(Wire, NothingTravelsWhereThereIsNothing) {
  run_ranks(3, [](Communicator& comm) {
    Numbers none;
    for (const Wire wire : wires) comm.all_reduce(none, none, Op::sum, {.wire = wire});
  });
}

// Those that only move numbers serve any wire; codes are forwarded as they are.
TEST(Wire, MovesByEveryAlgorithm) {
  std::vector<Expected> expected;
  for (const Wire wire : wires) expected.emplace_back(wire, 5, 2000);
  uint32_t served = 0;
  for (const tutti_algorithm* algorithm : list_algorithms()) {
    std::string names;
    for (const uint32_t collective : {TUTTI_BROADCAST, TUTTI_ALL_GATHER, TUTTI_ALL_GATHER_V})
      if (verify_algorithm(*algorithm, {.collective = collective, .nranks = 5, .root = 0}).ok())
        names += (names.empty() ? "" : ";") + std::string(collective_name(collective)) + ":" + algorithm->name;
    if (names.empty()) continue;
    ++served;
    SCOPED_TRACE(names);
    run_ranks(5,
              [&](Communicator& comm) {
                for (const Expected& each : expected) move_everything(comm, each);
              },
              {.algorithms = names.c_str()});
  }
  EXPECT_GT(served, 3u);
}

// core/gradients/README.md: the error of one rounding of x, in a block of which 2^e is the scale.
double error_of(Wire wire, double x, double scale) {
  x = std::abs(x);
  if (wire == Wire::float16) return std::max(0x1p-11 * x, 0x1p-25);
  if (wire == Wire::bfloat16) return std::max(0x1p-8 * x, 0x1p-134);
  return std::max(0x1p-4 * x, 0x1p-10 * scale);
}

TEST(Wire, KeepsTheBoundOfTheReadme) {
  constexpr uint32_t n = 4;
  constexpr size_t count = 4096;
  run_ranks(n, [](Communicator& comm) {
    for (const Wire wire : wires) {
      Numbers out(count);
      comm.all_reduce(numbers_of(comm.rank(), count), out, Op::avg, {.wire = wire});
      const float result_scale = 4.0f / 256;  // no mean exceeds 4, and 448 * 4 / 256 is 7
      for (size_t i = 0; i < count; ++i) {
        double exact = 0, error = 0;
        for (uint32_t rank = 0; rank < n; ++rank) {
          const size_t block = i / block_numbers * block_numbers;
          Numbers of_block(block_numbers);
          for (size_t k = 0; k < block_numbers; ++k) of_block[k] = number_at(rank, block + k);
          const double x = static_cast<double>(number_at(rank, i));
          exact += x / n;
          error += error_of(wire, x, static_cast<double>(scale_of(of_block))) / n;
        }
        const double bound = error + error_of(wire, std::abs(exact) + error, static_cast<double>(result_scale)) + 1e-6;
        ASSERT_LE(std::abs(static_cast<double>(out[i]) - exact), bound) << name_of(wire) << ", number " << i;
      }
    }
  });
}

TEST(Wire, LessTravels) {
  run_ranks(2, [](Communicator& comm) {
    const auto sent = [&](Wire wire) {
      const auto bytes = [&] {
        uint64_t sum = 0;
        for (const tutti_link_traffic& link : comm.traffic()) sum += link.sent_bytes;
        return sum;
      };
      Numbers data(64'000, 1);
      comm.barrier();
      const uint64_t before = bytes();
      comm.all_reduce(data, data, Op::sum, {.wire = wire});
      return static_cast<double>(bytes() - before);
    };
    const double plain = sent(Wire::plain);
    EXPECT_NEAR(sent(Wire::float16) / plain, 0.5, 0.01);
    EXPECT_NEAR(sent(Wire::float8) / plain, 33.0 / 128, 0.01);
  });
}

TEST(Wire, InGroupsAndPersistent) {
  constexpr size_t small = 100, large = 50'000;
  for (const Wire wire : wires) {
    const Numbers few = reduced(wire, Op::sum, 3, 0, small), many = reduced(wire, Op::sum, 3, 0, large);
    run_ranks(3, [&](Communicator& comm) {
      const Options options{.wire = wire};
      const Numbers in = numbers_of(comm.rank(), large);
      // Small calls of a group travel together where they are alike.
      Numbers a(small), b(small), c(large), plain(small);
      comm.group([&] {
        comm.all_reduce(std::span(in).first(small), std::span(a), Op::sum, options);
        comm.all_reduce(std::span(in).first(small), std::span(plain), Op::sum);
        comm.all_reduce(std::span(in).first(small), std::span(b), Op::sum, options);
        comm.all_reduce(in, c, Op::sum, options);
      });
      EXPECT_TRUE(same_bits(a, few) && same_bits(b, few)) << name_of(wire);
      EXPECT_TRUE(same_bits(c, many)) << name_of(wire);
      EXPECT_FALSE(same_bits(plain, few)) << "a plain call of the group was rounded";
      Request request = comm.async().all_reduce(in, c, Op::sum, {.persistent = true, .wire = wire});
      for (int round = 0; round < 3; ++round) {
        c.assign(large, 0);
        request.start();
        request.wait();
        EXPECT_TRUE(same_bits(c, many)) << name_of(wire) << ", start " << round;
      }
      // Two at a time, and a plain one of the same shape.
      Numbers d(large), e(large);
      Request first = comm.async().all_reduce(in, c, Op::sum, options),
              second = comm.async().all_reduce(in, d, Op::sum),
              third = comm.async().all_reduce(in, e, Op::sum, options);
      first.wait(), second.wait(), third.wait();
      EXPECT_TRUE(same_bits(c, many) && same_bits(e, many)) << name_of(wire);
      EXPECT_FALSE(same_bits(d, many)) << name_of(wire);
    });
  }
}

// ---- Refusals.

using CallOfRank = tutti_status (*)(tutti_comm*, const tutti_options*);
struct Refusal {
  const char* what;
  Wire wire;
  CallOfRank call;
  std::vector<const char*> parts;
};

float data[64], more[64];
int32_t integers[64];
double doubles[64];

const Refusal refusals[] = {
    {"integers",
     Wire::float16,
     [](tutti_comm* c, const tutti_options* o) {
       return tutti_all_reduce(c, integers, integers, 8, TUTTI_INT32, TUTTI_SUM, o, nullptr);
     },
     {"all_reduce: options.wire is float16", "for float32", "int32 travels as it is"}},
    {"float64",
     Wire::float8,
     [](tutti_comm* c, const tutti_options* o) {
       return tutti_all_reduce(c, doubles, doubles, 8, TUTTI_FLOAT64, TUTTI_SUM, o, nullptr);
     },
     {"options.wire is float8", "float64 travels as it is"}},
    {"a product",
     Wire::bfloat16,
     [](tutti_comm* c, const tutti_options* o) {
       return tutti_reduce(c, data, more, 8, TUTTI_FLOAT32, TUTTI_PROD, 0, o, nullptr);
     },
     {"reduce: options.wire is bfloat16", "prod has no bound", "sum, avg, min or max"}},
    {"float8's maximum",
     Wire::float8,
     [](tutti_comm* c, const tutti_options* o) {
       return tutti_all_reduce(c, data, data, 8, TUTTI_FLOAT32, TUTTI_MAX, o, nullptr);
     },
     {"max of float8", "scales", "float16 or bfloat16"}},
    {"an operator of the application",
     Wire::float16,
     [](tutti_comm* c, const tutti_options* o) {
       tutti_op_config config{sizeof config};
       config.name = "mine";
       config.function = [](void*, const void*, uint64_t, uint32_t, void*) -> tutti_status { return TUTTI_OK; };
       config.dtypes = uint64_t{1} << TUTTI_FLOAT32;
       uint32_t op = 0;
       EXPECT_EQ(tutti_op_create(c, &config, &op), TUTTI_OK) << tutti_comm_error(c);
       const tutti_status status = tutti_all_reduce(c, data, data, 8, TUTTI_FLOAT32, op, o, nullptr);
       return status;
     },
     {"operator of the application"}},
    {"a scan",
     Wire::float16,
     [](tutti_comm* c, const tutti_options* o) {
       return tutti_scan(c, data, data, 8, TUTTI_FLOAT32, TUTTI_SUM, o, nullptr);
     },
     {"scan: options.wire is float16", "serve broadcast"}},
    {"an all_to_all",
     Wire::float16,
     [](tutti_comm* c, const tutti_options* o) {
       return tutti_all_to_all(c, data, more, 8, TUTTI_FLOAT32, o, nullptr);
     },
     {"all_to_all: options.wire is float16", "only"}},
    {"a barrier",
     Wire::float16,
     [](tutti_comm* c, const tutti_options* o) { return tutti_barrier(c, o, nullptr); },
     {"barrier: options.wire is 1", "expected 0"}},
    {"a send",
     Wire::float16,
     [](tutti_comm* c, const tutti_options* o) {
       return tutti_send(c, data, 8, TUTTI_FLOAT32, (tutti_comm_rank(c) + 1) % 2, 0, o, nullptr);
     },
     {"send: options.wire is 1", "expected 0"}},
    {"the canonical order",
     Wire::float16,
     [](tutti_comm* c, const tutti_options* o) {
       tutti_options options = *o;
       options.order = TUTTI_ORDER_CANONICAL;
       return tutti_all_reduce(c, data, data, 8, TUTTI_FLOAT32, TUTTI_SUM, &options, nullptr);
     },
     {"options.wire is float16", "the order of the sum is canonical"}},
    {"the exact order",
     Wire::float16,
     [](tutti_comm* c, const tutti_options* o) {
       tutti_options options = *o;
       options.order = TUTTI_ORDER_EXACT;
       return tutti_all_reduce(c, data, data, 8, TUTTI_FLOAT32, TUTTI_SUM, &options, nullptr);
     },
     {"options.wire is float16", "the order of the sum is exact"}},
    {"an unknown format",
     static_cast<Wire>(4),
     [](tutti_comm* c, const tutti_options* o) {
       return tutti_all_reduce(c, data, data, 8, TUTTI_FLOAT32, TUTTI_SUM, o, nullptr);
     },
     {"options.wire is 4", "TUTTI_WIRE_FLOAT16"}}};

// Each is only that rank's error, and the communicator goes on. One rank alone is told the same.
TEST(Wire, RefusesWhereItCannotBeRight) {
  for (const uint32_t n : {1u, 2u})
    for (const Refusal& refusal : refusals) {
      SCOPED_TRACE(refusal.what);
      run_ranks(n, [&](Communicator& comm) {
        tutti_options options{sizeof options};
        options.wire = static_cast<uint32_t>(refusal.wire);
        EXPECT_EQ(refusal.call(comm.handle(), &options), TUTTI_INVALID_ARGUMENT);
        const std::string text = tutti_comm_error(comm.handle());
        for (const char* part : refusal.parts) EXPECT_NE(text.find(part), std::string::npos) << part << ": " << text;
        Numbers one{1};
        comm.all_reduce(one, one, Op::sum, {.wire = Wire::float16});
        EXPECT_EQ(one[0], static_cast<float>(n));
      });
    }
}

TEST(Wire, MinimaAreServedInEveryOrder) {
  run_ranks(3,
            [](Communicator& comm) {
              Numbers values{static_cast<float>(comm.rank()) + 0.25f};
              comm.all_reduce(values, values, Op::min, {.wire = Wire::bfloat16});
              EXPECT_EQ(values[0], 0.25f);
            },
            {.flags = TUTTI_COMM_CANONICAL_ORDER});
}

// Ring rounds at every hop.
TEST(Wire, OtherAlgorithmsAreRefused) {
  run_ranks(4,
            [](Communicator& comm) {
              Numbers values(1000, 1);
              comm.all_reduce(values, values, Op::sum);
              const Failed failed =
                  failure_of([&] { comm.all_reduce(values, values, Op::sum, {.wire = Wire::float16}); });
              EXPECT_EQ(failed.status, TUTTI_NOT_SUPPORTED);
              for (const char* part : {"all_reduce", "ring", "rounded once", "options.wire"})
                EXPECT_NE(failed.text.find(part), std::string::npos) << part << ": " << failed.text;
            },
            {.algorithms = "all_reduce:ring"});
}

// Two ranks of direct reduce the message as it comes, whose fragments know no blocks; three reduce whole messages.
TEST(Wire, BlocksAreNotCutByFragments) {
  for (const uint32_t n : {2u, 3u})
    run_ranks(n,
              [&](Communicator& comm) {
                const Numbers in = numbers_of(comm.rank(), 300'000);
                Numbers out(in.size());
                comm.all_reduce(in, out, Op::sum, {.wire = Wire::float16});
                EXPECT_TRUE(same_bits(out, reduced(Wire::float16, Op::sum, n, 0, in.size())));
                const Failed failed = failure_of([&] { comm.all_reduce(in, out, Op::sum, {.wire = Wire::float8}); });
                if (n == 3) {
                  EXPECT_TRUE(same_bits(out, reduced(Wire::float8, Op::sum, n, 0, in.size()))) << failed.text;
                } else {
                  EXPECT_EQ(failed.status, TUTTI_NOT_SUPPORTED);
                  for (const char* part : {"direct", "cut the blocks of float8", "options.wire"})
                    EXPECT_NE(failed.text.find(part), std::string::npos) << part << ": " << failed.text;
                }
              },
              {.algorithms = "all_reduce:direct"});
}

// ---- Ranks that differ.

TEST(Wire, RanksThatDifferAreToldSo) {
  for (const uint32_t flags : {0u, uint32_t{TUTTI_COMM_CHECK_CALLS}})
    for (const Wire other : {Wire::plain, Wire::bfloat16}) {
      run_ranks(2,
                [&](Communicator& comm) {
                  Numbers values(1000, 1);
                  const Wire wire = comm.rank() ? other : Wire::float16;
                  const Failed failed = failure_of([&] { comm.all_reduce(values, values, Op::sum, {.wire = wire}); });
                  EXPECT_EQ(failed.status, TUTTI_MISMATCH);
                  for (const char* part : {"all_reduce(1000 x float32, sum, wire float16)",
                                           other == Wire::plain ? "all_reduce(1000 x float32, sum)" : "wire bfloat16"})
                    EXPECT_NE(failed.text.find(part), std::string::npos) << part << ": " << failed.text;
                },
                {.flags = flags});
    }
}

}  // namespace
}  // namespace tutti::test
