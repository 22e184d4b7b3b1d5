// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <tutti/gradients.hpp>
#include <vector>

#include "ranks.hpp"

namespace tutti::test {
namespace {

constexpr Wire all_wires[] = {Wire::plain, Wire::float16, Wire::bfloat16, Wire::float8};
using Tensors = std::vector<std::vector<float>>;

std::vector<tutti_tensor> declared(const std::vector<uint64_t>& counts) {
  std::vector<tutti_tensor> made;
  for (const uint64_t count : counts) made.push_back(tensor<float>(count, "weights"));
  return made;
}

// A number between -1 and 1 that every (step, rank, tensor, index) has for itself.
float number(uint32_t step, uint32_t rank, size_t tensor, size_t index) {
  uint64_t h = (((step * 31ull + rank) * 1009 + tensor) * 1000003 + index) * 0x9e3779b97f4a7c15u;
  h ^= h >> 29;
  h *= 0xbf58476d1ce4e5b9u;
  return static_cast<float>(static_cast<int64_t>(h) >> 40) * 0x1p-23f;
}

Tensors numbers(const std::vector<uint64_t>& counts, uint32_t step, uint32_t rank) {
  Tensors made;
  for (size_t t = 0; t < counts.size(); ++t) {
    made.emplace_back(counts[t]);
    for (size_t i = 0; i < counts[t]; ++i) made[t][i] = number(step, rank, t, i);
  }
  return made;
}

// FNV-1a over all bits.
uint64_t checksum(const Tensors& tensors) {
  uint64_t sum = 0xcbf29ce484222325u;
  for (const auto& tensor : tensors)
    for (const float x : tensor) sum = (sum ^ std::bit_cast<uint32_t>(x)) * 0x100000001b3u;
  return sum;
}

void expect_equal_bits(const Communicator& world, const Tensors& tensors) {
  const std::vector<uint64_t> mine{checksum(tensors)};
  std::vector<uint64_t> all(world.nranks());
  world.all_gather(mine, all);
  for (const uint64_t sum : all) EXPECT_EQ(sum, mine[0]) << "bits differ between ranks";
}

// What a wire makes of a number, where all numbers of a block are below 1 in size: half a unit of the last place.
double bound_of(Wire wire, double x) {
  return wire == Wire::float16    ? 0x1p-11 * x + 0x1p-25
         : wire == Wire::bfloat16 ? 0x1p-8 * x
         : wire == Wire::float8   ? 0x1p-4 * x + 0x1p-17
                                  : 0;
}

void expect_mean(Wire wire, const Tensors& result, uint32_t step, uint32_t nranks) {
  for (size_t t = 0; t < result.size(); ++t)
    for (size_t i = 0; i < result[t].size(); ++i) {
      double exact = 0, error = 0;
      for (uint32_t rank = 0; rank < nranks; ++rank) {
        exact += static_cast<double>(number(step, rank, t, i)) / nranks;
        error += bound_of(wire, std::abs(static_cast<double>(number(step, rank, t, i)))) / nranks;
      }
      if (nranks == 1) error = 0;
      const double bound = error + (nranks > 1 ? bound_of(wire, std::abs(exact) + error) : 0) + 1e-6;
      ASSERT_LE(std::abs(static_cast<double>(result[t][i]) - exact), bound) << "tensor " << t << ", number " << i;
    }
}

const std::vector<uint64_t> mixed{10, 0, 3000, 1, 77, 5000, 33, 0, 4096};

TEST(Gradients, TheMeanOnAllRanksInEveryFormat) {
  for (const uint32_t n : {1u, 2u, 3u, 4u})
    for (const bool thread : {false, true})
      run_ranks(n, [&](Communicator& world) {
        for (const Wire wire : all_wires) {
          Gradients gradients(world, declared(mixed),
                              {.wire = wire, .thread = thread, .bucket_bytes = 16000, .first_bucket_bytes = 64});
          const uint32_t first_buckets = gradients.facts().buckets;
          for (uint32_t step = 0; step < 3; ++step) {
            Tensors tensors = numbers(mixed, step, world.rank());
            for (size_t k = 0; k < mixed.size(); ++k) {
              // Another order on each rank and in each step.
              const size_t t = (k * 4 + world.rank() + step) % mixed.size();
              gradients.ready(t, tensors[t]);
            }
            gradients.wait();
            expect_mean(wire, tensors, step, n);
            expect_equal_bits(world, tensors);
          }
          EXPECT_EQ(gradients.facts().steps, 3u);
          EXPECT_EQ(gradients.facts().started, first_buckets + 2u * gradients.facts().buckets);
        }
      });
}

// Each contribution is rounded once, the sum is made in float32 in the order of ranks, the result is rounded once.
TEST(Gradients, TheBitsAreThoseOfTheDefinition) {
  run_ranks(3, [](Communicator& world) {
    const std::vector<uint64_t> counts{1000};
    Tensors tensors = numbers(counts, 0, world.rank());
    Gradients gradients(world, declared(counts), {.op = Op::sum, .wire = Wire::float16});
    gradients.ready(0, tensors[0]);
    gradients.wait();
    for (size_t i = 0; i < counts[0]; ++i) {
      float sum = float16(number(0, 0, 0, i));
      for (uint32_t rank = 1; rank < 3; ++rank) sum += static_cast<float>(float16(number(0, rank, 0, i)));
      ASSERT_EQ(tensors[0][i], static_cast<float>(float16(sum))) << i;
    }
  });
}

TEST(Gradients, TensorsThatLieOneAfterAnotherStayWhereTheyAre) {
  run_ranks(2, [](Communicator& world) {
    std::vector<double> values(300, 1.0 + world.rank());
    const std::vector<tutti_tensor> parts{tensor<double>(100), tensor<double>(200)};
    Gradients gradients(world, parts, {.op = Op::sum});
    EXPECT_EQ(gradients.bucket(1), 0u);
    gradients.ready(1, std::span(values).subspan(100));
    EXPECT_TRUE(gradients.test());  // nothing has started
    gradients.ready(0, std::span(values).first(100));
    gradients.wait();
    for (const double x : values) ASSERT_EQ(x, 3.0);
  });
}

TEST(Gradients, BucketsTakeTensorsUpToTheirLimits) {
  run_ranks(1, [](Communicator& world) {
    // 4 bytes each: the first bucket holds 100 bytes, the others 1000.
    Gradients gradients(world, declared({20, 5, 1, 249, 1, 2000, 10}),
                        {.bucket_bytes = 1000, .first_bucket_bytes = 100});
    const std::vector<uint64_t> expected{0, 0, 1, 1, 2, 3, 4};
    for (size_t t = 0; t < expected.size(); ++t) EXPECT_EQ(gradients.bucket(t), expected[t]) << "tensor " << t;
    EXPECT_EQ(gradients.facts().buckets, 5u);
    const std::vector<tutti_tensor> types{tensor<float>(4), tensor<double>(4), tensor<double>(4)};
    EXPECT_EQ(Gradients(world, types).facts().buckets, 2u);
    // The defaults: 1 MiB, then 25 MiB.
    Gradients large(world, declared({1 << 18, 6 << 18, 6 << 20, 1}));
    for (size_t t = 0; t < 4; ++t) EXPECT_EQ(large.bucket(t), std::min<size_t>(t, 2)) << t;
  });
}

// The format halves or quarters what a rank sends.
TEST(Gradients, EncodedBucketsSendFewerBytes) {
  run_ranks(2, [](Communicator& world) {
    const std::vector<uint64_t> counts{1 << 16};
    const auto sent = [&](Wire wire) {
      Tensors tensors = numbers(counts, 0, world.rank());
      Gradients gradients(world, declared(counts), {.wire = wire});
      gradients.ready(0, tensors[0]);
      gradients.wait();
      return static_cast<double>(gradients.facts().sent_bytes);
    };
    const double bytes = 4.0 * (1 << 16);
    EXPECT_GE(sent(Wire::plain), bytes);
    EXPECT_LE(sent(Wire::float16), bytes / 2 + 4096);
    EXPECT_LE(sent(Wire::bfloat16), bytes / 2 + 4096);
    EXPECT_LE(sent(Wire::float8), bytes / 4 * 1.04 + 4096);
  });
}

// The same gradient 1,000 times: what is lost in one step comes in a later one, so the sum of the results stays near
// the sum of the gradients. Without feedback the loss of one step adds up.
double drift(const Communicator& world, Wire wire, bool feedback) {
  const std::vector<uint64_t> counts{97};
  const Tensors gradient = numbers(counts, 7, world.rank());
  Gradients gradients(world, declared(counts), {.wire = wire, .feedback = feedback});
  std::vector<double> sum(counts[0]);
  for (int step = 0; step < 1000; ++step) {
    Tensors tensors = gradient;
    gradients.ready(0, tensors[0]);
    gradients.wait();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(tensors[0][i]);
  }
  double worst = 0;
  for (size_t i = 0; i < sum.size(); ++i) {
    double exact = 0;
    for (uint32_t rank = 0; rank < world.nranks(); ++rank)
      exact += 1000.0 * static_cast<double>(number(7, rank, 0, i)) / world.nranks();
    worst = std::max(worst, std::abs(sum[i] - exact));
  }
  return worst;
}

TEST(Gradients, FeedbackKeepsTheAccumulatedErrorBounded) {
  run_ranks(2, [](Communicator& world) {
    for (const Wire wire : {Wire::float16, Wire::bfloat16, Wire::float8}) {
      // What is outstanding is at most one rounding of a contribution and one of the result, both of numbers below 2.
      const double bound = 2 * bound_of(wire, 2.0) + 1e-3;
      EXPECT_LE(drift(world, wire, true), bound);
      if (wire == Wire::float16) continue;  // it loses too little in 1,000 steps to tell
      EXPECT_GT(drift(world, wire, false), bound) << "the test would pass without feedback";
    }
  });
}

TEST(Gradients, FeedbackForgetsWhatIsNotFinite) {
  run_ranks(2, [](Communicator& world) {
    std::vector<float> values(40, 1.0f);
    Gradients gradients(world, declared({40}), {.wire = Wire::float8, .feedback = true});
    values[3] = std::numeric_limits<float>::infinity();
    values[4] = std::numeric_limits<float>::quiet_NaN();
    gradients.ready(0, values);
    gradients.wait();
    EXPECT_TRUE(std::isnan(values[3]) && std::isnan(values[4]));
    std::ranges::fill(values, 1.0f);
    gradients.ready(0, values);
    gradients.wait();
    for (const float x : values) EXPECT_EQ(x, 1.0f);
  });
}

void expect_failure(const Failed& failed, tutti_status status, const std::string& part) {
  EXPECT_EQ(failed.status, status) << failed.text;
  EXPECT_NE(failed.text.find(part), std::string::npos) << failed.text;
}

TEST(Gradients, MistakesOfAStepAreRefusedAndTheStepGoesOn) {
  run_ranks(2, [](Communicator& world) {
    for (const bool thread : {false, true}) {
      std::vector<float> a(8, 1.0f), b(4, 2.0f);
      Gradients gradients(world, declared({8, 4}), {.thread = thread});
      expect_failure(failure_of([&] { gradients.wait(); }), TUTTI_INVALID_USAGE, "no tensor was marked ready");
      gradients.ready(1, b);
      expect_failure(failure_of([&] { gradients.ready(1, b); }), TUTTI_INVALID_USAGE,
                     "tensor 1 (\"weights\") was marked ready already");
      expect_failure(failure_of([&] { gradients.ready(0, b); }), TUTTI_INVALID_ARGUMENT,
                     "has 4 elements, but was declared with 8");
      expect_failure(failure_of([&] { gradients.ready(2, a); }), TUTTI_INVALID_ARGUMENT,
                     "tensor 2 does not exist: 2 were declared");
      expect_failure(failure_of([&] { gradients.bucket(2); }), TUTTI_INVALID_ARGUMENT, "tensor 2 does not exist");
      expect_failure(failure_of([&] { gradients.wait(); }), TUTTI_INVALID_USAGE,
                     "tensor 0 (\"weights\") was not marked ready in this step; 1 of 2");
      EXPECT_EQ(tutti_gradients_ready(gradients.handle(), 0, nullptr, 8), TUTTI_INVALID_ARGUMENT);
      gradients.ready(0, a);
      gradients.wait();
      EXPECT_EQ(a[7], 1.0f);
      EXPECT_EQ(b[3], 2.0f);
    }
  });
}

// The sums of a wire format are made by algorithms that reduce all contributions at once. Feedback has an all_gather.
TEST(Gradients, ChosenAlgorithmsCarryOutTheCallsOfEveryFormat) {
  for (const Wire wire : {Wire::plain, Wire::float16, Wire::float8})
    for (const bool feedback : {false, true})
      run_ranks(3, [&](Communicator& world) {
        if (wire == Wire::plain && feedback) return;
        Tensors tensors(1, std::vector<float>(1000, static_cast<float>(world.rank() + 1)));
        const GradientSettings settings{
            .op = Op::sum, .wire = wire, .feedback = feedback, .algorithms = feedback ? "flat,ring" : "flat"};
        Gradients gradients(world, declared({1000}), settings);
        gradients.ready(0, tensors[0]);
        gradients.wait();
        for (const float one : tensors[0]) ASSERT_EQ(one, 6.0f);
        if (wire == Wire::plain) return;
        Gradients rounding_often(world, declared({1000}), {.wire = wire, .feedback = feedback, .algorithms = "ring"});
        expect_failure(failure_of([&] {
                         rounding_often.ready(0, tensors[0]);
                         rounding_often.wait();
                       }),
                       TUTTI_NOT_SUPPORTED, "options.wire");
        world.barrier();  // a rank that destroys them aborts those of the others
      });
}

TEST(Gradients, WrongDeclarationsAreRefusedOnAllRanks) {
  run_ranks(2, [](Communicator& world) {
    const auto refused = [&](std::vector<tutti_tensor> tensors, GradientSettings settings) {
      return failure_of([&] { Gradients(world, tensors, settings); });
    };
    expect_failure(refused({}, {}), TUTTI_INVALID_ARGUMENT, "no tensor is declared");
    expect_failure(refused({tensor<double>(3)}, {.wire = Wire::float16}), TUTTI_INVALID_ARGUMENT,
                   "tensor 0 is float64, but wire formats are for float32");
    expect_failure(refused({tensor<float>(3)}, {.feedback = true}), TUTTI_INVALID_ARGUMENT, "needs a wire format");
    expect_failure(refused({tensor<float>(3)}, {.op = Op::max}), TUTTI_INVALID_ARGUMENT,
                   "expected TUTTI_SUM or TUTTI_AVG");
    expect_failure(refused({tensor<bool>(3)}, {}), TUTTI_INVALID_ARGUMENT, "bool, which has no avg");
    expect_failure(refused({tensor<float>(3)}, {.wire = static_cast<Wire>(9)}), TUTTI_NOT_SUPPORTED,
                   "config.wire is 9");
    expect_failure(refused({tensor<float>(3)}, {.thread = true, .device = true}), TUTTI_NOT_SUPPORTED,
                   "TUTTI_GRADIENTS_DEVICE goes with");
    expect_failure(refused({tensor<float>(3)}, {.order = static_cast<Order>(4)}), TUTTI_INVALID_ARGUMENT,
                   "config.order is 4");
    expect_failure(refused({tensor<float>(3)}, {.wire = Wire::float16, .order = Order::exact}), TUTTI_INVALID_ARGUMENT,
                   "config.order goes with TUTTI_WIRE_PLAIN");
    // One rank alone is wrong, or different.
    const uint32_t rank = world.rank();
    expect_failure(refused({tensor<float>(rank == 0 ? 3 : uint64_t{1} << 60)}, {}), TUTTI_INVALID_ARGUMENT,
                   rank == 0 ? "rank 1 passed a wrong argument" : "expected at most 2^48");
    expect_failure(refused({tensor<float>(3 + rank)}, {}), TUTTI_MISMATCH,
                   "number of bytes is 12 on rank 0 and 16 on rank 1; tensor 0 has 3 of float32 on rank 0 and 4 of "
                   "float32 on rank 1");
    expect_failure(refused({tensor<float>(3 + rank), tensor<float>(4 - rank)}, {}), TUTTI_MISMATCH,
                   "checksum of the tensors' sizes");
    expect_failure(refused({tensor<float>(3), rank ? tensor<int32_t>(4) : tensor<float>(4)}, {.op = Op::sum}),
                   TUTTI_MISMATCH, "; tensor 1 has 4 of float32 on rank 0 and 4 of int32 on rank 1");
    expect_failure(refused({tensor<float>(3)}, {.declared_order = rank == 1}), TUTTI_MISMATCH,
                   "flag TUTTI_GRADIENTS_DECLARED_ORDER is 0 on rank 0 and 1 on rank 1");
    expect_failure(refused({tensor<float>(3)}, {.wire = rank ? Wire::float8 : Wire::bfloat16}), TUTTI_MISMATCH,
                   "wire is 2 on rank 0 and 3 on rank 1");
    expect_failure(refused({tensor<float>(3)}, {.order = rank ? Order::canonical : Order::free}), TUTTI_MISMATCH,
                   "order is 1 on rank 0 and 2 on rank 1");
    expect_failure(refused({tensor<float>(3)}, {.algorithms = rank ? "ring" : nullptr}), TUTTI_MISMATCH,
                   "checksum of algorithms is 0 on rank 0");
    tutti_gradients_config unset{};
    tutti_gradients* made = nullptr;
    const tutti_tensor one = tensor<float>(1);
    EXPECT_EQ(tutti_gradients_create(world.handle(), &unset, &one, 1, &made), TUTTI_INVALID_ARGUMENT);
    EXPECT_EQ(made, nullptr);
    // The communicator is as usable as before.
    std::vector<int> sum{1};
    world.all_reduce(sum, sum, Op::sum);
    EXPECT_EQ(sum[0], 2);
  });
}

TEST(Gradients, AnAbortEndsTheStepOfAllRanksWithItsReason) {
  for (const bool thread : {false, true})
    for (const Wire wire : {Wire::plain, Wire::float8})
      run_ranks(3, [&](Communicator& world) {
        std::vector<float> a(100), b(100);  // in use until the gradients are destroyed
        Gradients gradients(world, declared({100, 100}), {.wire = wire, .thread = thread, .first_bucket_bytes = 400});
        if (world.rank() == 1) {
          gradients.ready(0, a);
          tutti_gradients_abort(gradients.handle(), "the loss is NaN");
        } else {
          expect_failure(failure_of([&] {
                           gradients.ready(0, a);  // or already here
                           gradients.ready(1, b);
                           gradients.wait();
                         }),
                         TUTTI_ABORTED, "the loss is NaN");
          expect_failure(failure_of([&] { gradients.wait(); }), TUTTI_ABORTED, "the loss is NaN");  // and stays so
        }
        world.barrier();  // the communicator it was made of lives
      });
}

TEST(Gradients, AProgressThreadOfTheCommunicatorCarriesBuckets) {
  run_ranks(2,
            [](Communicator& world) {
              for (const Wire wire : all_wires) {
                Gradients gradients(world, declared(mixed),
                                    {.wire = wire, .bucket_bytes = 16000, .first_bucket_bytes = 64});
                Tensors tensors = numbers(mixed, 1, world.rank());
                for (size_t t = 0; t < mixed.size(); ++t) gradients.ready(t, tensors[t]);
                while (!gradients.test()) std::this_thread::yield();
                gradients.wait();
                EXPECT_EQ(gradients.facts().early, gradients.facts().buckets);
                expect_mean(wire, tensors, 1, 2);
              }
            },
            {.flags = TUTTI_COMM_PROGRESS_THREAD});
}

}  // namespace
}  // namespace tutti::test
