// SPDX-License-Identifier: Apache-2.0
//
// From its third step on a set of gradients allocates nothing. Counted is operator new of all threads: the ranks' and
// those that advance buckets.
#include <gtest/gtest.h>

#include <atomic>
#include <tutti/gradients.hpp>
#include <vector>

#include "first_uses.hpp"
#include "ranks.hpp"
#include "replaced_new.hpp"

namespace {

std::atomic<bool> counting = false;
std::atomic<uint64_t> allocations = 0;

}  // namespace

void tutti::test::note_allocation() {
  if (counting) ++allocations;
}

namespace tutti::test {
namespace {

const std::vector<uint64_t> counts{100, 5000, 3, 20'000, 70'000, 0, 900};

struct Set {
  std::vector<std::vector<float>> tensors;
  Gradients gradients;
  Set(const Communicator& world, const GradientSettings& settings) : gradients(world, declared(), settings) {
    for (const uint64_t count : counts) tensors.emplace_back(count, 1.0f);
  }
  static std::vector<tutti_tensor> declared() {
    std::vector<tutti_tensor> made;
    for (const uint64_t count : counts) made.push_back(tensor(count));
    return made;
  }
  void step() {
    for (size_t t = counts.size(); t-- > 1;) gradients.ready(t, tensors[t]);
    gradients.unused(0);
    gradients.wait();
  }
};

// Collective. The steps of `set` come to allocate nothing. Some attempts cost something, since some paths are taken for
// the first time late, by chance.
void expect_free_steps(const Communicator& world, Set& set, const char* name) {
  set.step();
  set.step();
  uint64_t last = 0;
  for (int attempt = 0; attempt < 20; ++attempt) {
    world.barrier();
    hear_first_uses(world.handle());
    if (world.rank() == 0) allocations = 0;
    world.barrier();
    counting = true;
    for (int i = 0; i < 8; ++i) set.step();  // each shape comes by in each window
    world.barrier();                         // all have ended
    counting = false;
    last = allocations;
    uint64_t most = last;
    world.all_reduce<uint64_t>(std::span(&last, 1), std::span(&most, 1), Op::max);
    if (most == 0) return;
  }
  FAIL() << name << ": 8 steps made " << last << " allocations in the last of many attempts";
}

TEST(GradientCost, TheCounterCounts) {
  if (!countable) GTEST_SKIP() << "a sanitizer counts for itself";
  allocations = 0;
  counting = true;
  delete ::new (::operator new(sizeof(int))) int;
  counting = false;
  EXPECT_EQ(allocations, 1u);
}

TEST(GradientCost, NothingIsAllocatedFromTheThirdStepOn) {
  if (!countable) GTEST_SKIP() << "a sanitizer counts for itself";
  const struct {
    const char* name;
    GradientSettings settings;
  } cases[] = {{"plain", {.bucket_bytes = 100'000, .first_bucket_bytes = 4000}},
               {"plain, in the declared order", {.bucket_bytes = 100'000, .declared_order = true}},
               {"plain, with a thread", {.thread = true, .bucket_bytes = 100'000, .first_bucket_bytes = 4000}},
               {"float16", {.wire = Wire::float16, .bucket_bytes = 100'000}},
               {"float8 with feedback and a thread",
                {.wire = Wire::float8, .feedback = true, .thread = true, .bucket_bytes = 100'000}}};
  for (const auto& one : cases)
    run_ranks(2,
              [&](Communicator& world) {
                Set set(world, one.settings);
                expect_free_steps(world, set, one.name);
              },
              {"shm"});
}

}  // namespace
}  // namespace tutti::test
