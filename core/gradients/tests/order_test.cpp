// SPDX-License-Identifier: Apache-2.0
//
// Buckets in the order of readiness, tensors of several types, and tensors that a rank does not use.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <tutti/gradients.hpp>
#include <vector>

#include "ranks.hpp"

namespace tutti::test {
namespace {

std::vector<tutti_tensor> floats(const std::vector<uint64_t>& counts) {
  std::vector<tutti_tensor> made;
  for (const uint64_t count : counts) made.push_back(tensor(count, "weights"));
  return made;
}

std::vector<uint64_t> buckets_of(const Gradients& gradients, size_t tensors) {
  std::vector<uint64_t> made;
  for (size_t t = 0; t < tensors; ++t) made.push_back(gradients.bucket(t));
  return made;
}

// The tensors of a step: whole numbers, so that sums are exact in every order.
struct Step {
  std::vector<std::vector<float>> tensors;
  Step(const std::vector<uint64_t>& counts, int step, uint32_t rank) {
    for (size_t t = 0; t < counts.size(); ++t) {
      tensors.emplace_back(counts[t]);
      for (size_t i = 0; i < counts[t]; ++i) tensors[t][i] = number(step, rank, t, i);
    }
  }
  static float number(int step, uint32_t rank, size_t tensor, size_t i) {
    return static_cast<float>((static_cast<size_t>(step) * 7 + rank * 3 + tensor * 11 + i) % 17);
  }
  // All tensors are sums over the ranks.
  void expect_sums(int step, uint32_t nranks) const {
    for (size_t t = 0; t < tensors.size(); ++t)
      for (size_t i = 0; i < tensors[t].size(); ++i) {
        float sum = 0;
        for (uint32_t rank = 0; rank < nranks; ++rank) sum += number(step, rank, t, i);
        ASSERT_EQ(tensors[t][i], sum) << "step " << step << ", tensor " << t << ", number " << i;
      }
  }
};

const std::vector<uint64_t> six{20, 5, 30, 0, 25, 10};

TEST(ReadyOrder, TheFirstStepOfRank0OrdersTheBucketsOfAllRanks) {
  for (const uint32_t n : {1u, 2u, 4u})
    for (const bool thread : {false, true})
      run_ranks(n, [&](Communicator& world) {
        Gradients gradients(world, floats(six),
                            {.op = Op::sum, .thread = thread, .bucket_bytes = 140, .first_bucket_bytes = 100});
        const std::vector<uint64_t> declared{0, 0, 1, 1, 2, 2}, ready{3, 2, 2, 1, 1, 0};
        EXPECT_EQ(buckets_of(gradients, six.size()), declared);
        std::mt19937 random(world.rank());
        std::vector<uint64_t> order(six.size());
        for (int step = 0; step < 6; ++step) {
          std::iota(order.begin(), order.end(), 0);
          if (world.rank() > 0 || step > 0) std::ranges::shuffle(order, random);
          if (step == 0 && world.rank() == 0) order = {5, 4, 3, 2, 1, 0};
          Step data(six, step, world.rank());
          for (const uint64_t t : order) gradients.ready(t, data.tensors[t]);
          EXPECT_EQ(buckets_of(gradients, six.size()), step == 0 ? declared : ready) << "step " << step;
          gradients.wait();
          data.expect_sums(step, n);
        }
        EXPECT_EQ(gradients.facts().started, 3u + 5u * 4u);
        EXPECT_EQ(gradients.facts().steps, 6u);
      });
}

TEST(ReadyOrder, TheNumberOfBucketsMayChange) {
  run_ranks(2, [](Communicator& world) {
    const std::vector<uint64_t> counts{10, 90, 10, 90};
    Gradients gradients(world, floats(counts), {.op = Op::sum, .bucket_bytes = 400, .first_bucket_bytes = 400});
    EXPECT_EQ(gradients.facts().buckets, 2u);
    for (int step = 0; step < 2; ++step) {
      Step data(counts, step, world.rank());
      for (const uint64_t t : {0, 2, 1, 3}) gradients.ready(t, data.tensors[t]);
      gradients.wait();
      data.expect_sums(step, 2);
      EXPECT_EQ(gradients.facts().buckets, 3u);
      EXPECT_EQ(gradients.facts().started, step == 0 ? 2u : 5u);
    }
  });
}

TEST(ReadyOrder, TheDeclaredOrderIsKeptWhereThatIsAskedFor) {
  run_ranks(2, [](Communicator& world) {
    Gradients gradients(world, floats(six),
                        {.op = Op::sum, .bucket_bytes = 140, .first_bucket_bytes = 100, .declared_order = true});
    const std::vector<uint64_t> declared{0, 0, 1, 1, 2, 2};
    for (int step = 0; step < 3; ++step) {
      Step data(six, step, world.rank());
      for (size_t t = six.size(); t-- > 0;) gradients.ready(t, data.tensors[t]);
      gradients.wait();
      data.expect_sums(step, 2);
      EXPECT_EQ(buckets_of(gradients, six.size()), declared);
    }
  });
}

// A first step that fails in wait, for want of a tensor, is still the first one.
TEST(ReadyOrder, AMistakeInTheFirstStepDoesNotCount) {
  run_ranks(2, [](Communicator& world) {
    const std::vector<uint64_t> counts{4, 8};
    Gradients gradients(world, floats(counts), {.op = Op::sum, .bucket_bytes = 1, .first_bucket_bytes = 1});
    Step data(counts, 0, world.rank());
    gradients.ready(1, data.tensors[1]);
    EXPECT_EQ(failure_of([&] { gradients.ready(1, data.tensors[1]); }).status, TUTTI_INVALID_USAGE);
    EXPECT_EQ(failure_of([&] { gradients.wait(); }).status, TUTTI_INVALID_USAGE);
    EXPECT_EQ(gradients.bucket(1), 1u);
    gradients.ready(0, data.tensors[0]);
    gradients.wait();
    data.expect_sums(0, 2);
    EXPECT_EQ(gradients.bucket(1), 0u);
  });
}

// The losses of the first step belong to other buckets in the second one. bfloat16 has 1 and 1 + 2^-7, and nothing
// between them. Lost in step 1 and made up for in step 2 are: 0.75 * 2^-8 of each contribution in the first case, 2^-8
// of the mean in the second one.
TEST(ReadyOrder, WhatRoundingHasLostSurvivesTheOtherOrder) {
  const std::vector<uint64_t> counts{40, 70, 33, 100};
  for (const bool of_the_mean : {false, true})
    run_ranks(2, [&](Communicator& world) {
      Gradients gradients(world, floats(counts),
                          {.wire = Wire::bfloat16, .feedback = true, .bucket_bytes = 450, .first_bucket_bytes = 450});
      const float value = of_the_mean ? 1 + static_cast<float>(world.rank()) * 0x1p-7f : 1 + 0.75f * 0x1p-8f;
      for (int step = 0; step < 2; ++step) {
        std::vector<std::vector<float>> tensors;
        for (const uint64_t count : counts) tensors.emplace_back(count, value);
        for (const uint64_t t : {3, 1, 2, 0}) gradients.ready(t, tensors[t]);
        gradients.wait();
        for (const auto& one : tensors)
          for (const float x : one) ASSERT_EQ(x, step == 0 ? 1.0f : 1 + 0x1p-7f) << "step " << step;
      }
    });
}

// Numbers whose sum depends on the order: the set's own order gives the bits of a communicator of that order.
TEST(OrderOfSums, ASetHasAnOrderOfItsOwn) {
  const std::vector<uint64_t> counts{3000, 50};
  std::vector<std::vector<std::vector<float>>> expected(4);
  const auto data = [&](uint32_t rank) {
    std::vector<std::vector<float>> made;
    std::mt19937 random(rank);
    for (const uint64_t count : counts)
      std::ranges::generate(made.emplace_back(count),
                            [&] { return std::ldexp(static_cast<float>(random()), -static_cast<int>(random() % 40)); });
    return made;
  };
  run_ranks(4,
            [&](Communicator& world) {
              std::vector<std::vector<float>>& mine = expected[world.rank()] = data(world.rank());
              for (auto& one : mine) world.all_reduce(one, one, Op::sum);
            },
            {.flags = TUTTI_COMM_CANONICAL_ORDER});
  run_ranks(4, [&](Communicator& world) {
    Gradients gradients(world, floats(counts),
                        {.op = Op::sum, .bucket_bytes = 1, .first_bucket_bytes = 1, .order = Order::canonical});
    for (int step = 0; step < 2; ++step) {
      std::vector<std::vector<float>> mine = data(world.rank());
      for (size_t t = 0; t < counts.size(); ++t) gradients.ready(t, mine[t]);
      gradients.wait();
      EXPECT_EQ(mine, expected[world.rank()]);
    }
  });
}

TEST(SeveralTypes, EachHasBucketsOfItsOwn) {
  for (const bool thread : {false, true})
    run_ranks(3, [&](Communicator& world) {
      const std::vector<tutti_tensor> declared{tensor<float>(30), tensor<double>(7),  tensor<int32_t>(5),
                                               tensor<float>(9),  tensor<double>(11), tensor<float>(1)};
      Gradients gradients(world, declared, {.op = Op::sum, .thread = thread});
      EXPECT_EQ(gradients.facts().buckets, 3u);
      EXPECT_EQ(buckets_of(gradients, 6), (std::vector<uint64_t>{2, 1, 0, 2, 1, 2}));
      for (int step = 0; step < 3; ++step) {
        const auto mine = static_cast<float>(world.rank() + 1);
        std::vector<float> a(30, mine), d(9, 2 * mine), f(1, 3 * mine);
        std::vector<double> b(7, 4.0 * mine), e(11, 5.0 * mine);
        std::vector<int32_t> c(5, static_cast<int32_t>(mine));
        gradients.ready(5, f);
        gradients.ready(0, a);
        gradients.ready(3, d);
        gradients.ready(1, b);
        gradients.ready(2, c);
        gradients.ready(4, e);
        gradients.wait();
        EXPECT_EQ(a, std::vector<float>(30, 6));
        EXPECT_EQ(d, std::vector<float>(9, 12));
        EXPECT_EQ(f, std::vector<float>(1, 18));
        EXPECT_EQ(b, std::vector<double>(7, 24));
        EXPECT_EQ(e, std::vector<double>(11, 30));
        EXPECT_EQ(c, std::vector<int32_t>(5, 6));
        EXPECT_EQ(buckets_of(gradients, 6), (std::vector<uint64_t>{0, 2, 1, 0, 2, 0}));
      }
    });
}

// Rank r uses all tensors but r in step 0, all in step 1, and so on; in step 4 no rank uses any.
TEST(Unused, ATensorContributesZerosAndGetsNothing) {
  for (const Wire wire : {Wire::plain, Wire::float16, Wire::float8})
    for (const bool thread : {false, true})
      run_ranks(3, [&](Communicator& world) {
        const std::vector<uint64_t> counts{40, 0, 7, 64};
        Gradients gradients(world, floats(counts),
                            {.op = Op::sum, .wire = wire, .thread = thread, .bucket_bytes = 200});
        for (int step = 0; step < 5; ++step) {
          const auto uses = [&](uint32_t rank, size_t t) { return step < 4 && (step % 2 == 1 || t != rank); };
          std::vector<std::vector<float>> tensors;
          for (const uint64_t count : counts) tensors.emplace_back(count, static_cast<float>(1 << world.rank()));
          for (size_t t = 0; t < counts.size(); ++t)
            uses(world.rank(), t) ? gradients.ready(t, tensors[t]) : gradients.unused(t);
          gradients.wait();
          for (size_t t = 0; t < counts.size(); ++t) {
            float expected = static_cast<float>(1 << world.rank());
            if (uses(world.rank(), t)) {
              expected = 0;
              for (uint32_t rank = 0; rank < 3; ++rank) expected += uses(rank, t) ? static_cast<float>(1 << rank) : 0;
            }
            EXPECT_EQ(tensors[t], std::vector<float>(counts[t], expected)) << "step " << step << ", tensor " << t;
          }
        }
      });
}

TEST(Unused, ItIsAMarkLikeReady) {
  run_ranks(1, [](Communicator& world) {
    std::vector<float> a(8, 1.0f);
    Gradients gradients(world, floats({8, 4}));
    gradients.unused(1);
    const Failed twice = failure_of([&] { gradients.unused(1); });
    EXPECT_EQ(twice.status, TUTTI_INVALID_USAGE);
    EXPECT_NE(twice.text.find("gradients_unused: tensor 1 (\"weights\") was marked unused already"), std::string::npos)
        << twice.text;
    EXPECT_EQ(failure_of([&] { gradients.ready(1, std::span(a).first(4)); }).status, TUTTI_INVALID_USAGE);
    EXPECT_EQ(failure_of([&] { gradients.unused(2); }).status, TUTTI_INVALID_ARGUMENT);
    EXPECT_NE(failure_of([&] { gradients.wait(); }).text.find("mark them ready or unused"), std::string::npos);
    gradients.ready(0, a);
    gradients.wait();
    EXPECT_EQ(a[7], 1.0f);
  });
}

}  // namespace
}  // namespace tutti::test
