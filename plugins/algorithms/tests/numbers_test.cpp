// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "interpreter.hpp"
#include "plugin_under_test.hpp"

namespace tutti::test {
namespace {

bool rooted(uint32_t collective) {
  return collective == TUTTI_BROADCAST || collective == TUTTI_REDUCE || collective == TUTTI_GATHER ||
         collective == TUTTI_SCATTER || collective == TUTTI_GATHER_V || collective == TUTTI_SCATTER_V;
}

// Some algorithms are for even numbers of ranks, or for several hosts. proof_test.cpp says which may refuse what.
bool refused(const Offer& offer, const Case& c) {
  tutti_query query{};
  query.struct_size = sizeof query;
  query.collective = c.collective;
  query.nranks = c.n;
  query.lanes = c.lanes;
  query.host_of_rank = c.hosts.empty() ? nullptr : c.hosts.data();
  return offer.algorithm->supports(offer.algorithm->self, &query) == TUTTI_NOT_SUPPORTED;
}

class Numbers : public testing::TestWithParam<Offer> {};

TEST_P(Numbers, AreRight) {
  const Offer offer = GetParam();
  Case c;
  c.collective = offer.collective;
  c.lanes = 4;
  for (const uint32_t n : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 12u, 13u, 16u, 17u}) {
    c.n = n;
    if (refused(offer, c) || (sanitized && n > 5 && n != 8)) continue;
    for (const uint64_t count : std::set<uint64_t>{0, 1, n - 1, n, n + 1, 1000}) {
      c.count = count;
      if (count == 1000 && n > 9 && n != 13) continue;
      for (c.root = 0; c.root < (rooted(c.collective) ? n : 1); ++c.root)
        for (const uint64_t in_place : {uint64_t{0}, ~uint64_t{0}, uint64_t{0xaaaaaaaaaaaaaaaa}})
          for (const uint32_t slices : {1u, 3u}) {
            if (in_place && c.collective == TUTTI_ALL_TO_ALL_V) continue;
            c.in_place = in_place;
            c.slices = slices;
            ++c.seed;
            const std::string wrong = run(*offer.algorithm, c);
            ASSERT_EQ(wrong, "") << "n " << n << ", root " << c.root << ", count " << count << ", slices " << slices
                                 << ", in place " << std::hex << in_place << ", seed " << c.seed;
          }
    }
  }
}

// The same on hosts: uneven ones, in turn, one rank each.
TEST_P(Numbers, AreRightOnHosts) {
  const Offer offer = GetParam();
  for (const std::vector<uint32_t>& hosts : {std::vector<uint32_t>{0, 1, 1, 1},
                                             {0, 0, 1, 1, 1, 2, 2, 2, 2, 2},
                                             {0, 1, 2, 0, 1, 2, 1, 2, 2, 2},
                                             {0, 1, 2, 3, 4, 5, 6},
                                             {0, 0, 0, 0, 1, 1, 1, 1},
                                             {0, 1, 0, 1, 0, 1},
                                             {0, 1, 0, 2, 2, 0, 3}}) {
    Case c{.collective = offer.collective, .n = static_cast<uint32_t>(hosts.size()), .hosts = hosts, .lanes = 4};
    if (refused(offer, c)) continue;
    for (const uint64_t count : {0u, 1u, 7u, 300u})
      for (c.root = 0; c.root < (rooted(c.collective) ? c.n : 1); ++c.root)
        for (const uint64_t in_place : {uint64_t{0}, ~uint64_t{0}, uint64_t{0xaaaaaaaaaaaaaaaa}})
          for (const uint32_t slices : {1u, 3u}) {
            if (in_place && c.collective == TUTTI_ALL_TO_ALL_V) continue;
            c.count = count;
            c.in_place = in_place;
            c.slices = slices;
            ++c.seed;
            ASSERT_EQ(run(*offer.algorithm, c), "")
                << "n " << c.n << ", last host " << hosts.back() << ", root " << c.root << ", count " << count
                << ", slices " << slices << ", in place " << std::hex << in_place << ", seed " << c.seed;
          }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Numbers, testing::ValuesIn(offers()),
                         [](const testing::TestParamInfo<Offer>& offer) { return offer_name(offer.param); });

// Rounded cuts: blocks so long that cuts fall on multiples of 64 elements.
TEST(Numbers, LongBlocks) {
  for (const Offer& offer : offers()) {
    const Case c{.collective = offer.collective, .n = 4, .count = 3 * 4096 + 100, .slices = 5, .lanes = 4};
    if (refused(offer, c)) continue;
    EXPECT_EQ(run(*offer.algorithm, c), "") << offer_name(offer);
  }
}

TEST(Plugin, OffersTwoAlgorithmsForEachCollective) {
  for (uint32_t collective = TUTTI_BROADCAST; collective <= last_collective; ++collective) {
    if (has_unequal_blocks(collective)) continue;
    int count = 0;
    for (const Offer& offer : offers()) count += offer.collective == collective;
    EXPECT_GE(count, 2) << "collective " << collective;
  }
}

TEST(Plugin, NamesAreUnique) {
  std::set<std::string> names;
  for (const tutti_algorithm* algorithm : algorithms()) {
    EXPECT_TRUE(names.insert(algorithm->name).second) << algorithm->name;
    EXPECT_EQ(algorithm->reserved, 0u);
    EXPECT_EQ(algorithm->struct_size, sizeof(tutti_algorithm));
  }
}

// The answer of supports() to a query of 4 ranks, changed by `change`.
template <typename Change>
tutti_status ask(const char* name, uint32_t collective, Change change) {
  tutti_query query{};
  query.struct_size = sizeof query;
  query.collective = collective;
  query.nranks = 4;
  query.lanes = 1;
  change(query);
  const tutti_algorithm* algorithm = find_algorithm(name);
  return algorithm->supports(algorithm->self, &query);
}
constexpr auto unchanged = [](tutti_query&) {};

TEST(Plugin, RefusesWithAReason) {
  EXPECT_EQ(ask("ring", TUTTI_ALL_REDUCE, unchanged), TUTTI_OK);
  EXPECT_EQ(ask("ring", TUTTI_BARRIER, unchanged), TUTTI_NOT_SUPPORTED);
  EXPECT_EQ(last_error(), "ring: has no barrier");
  EXPECT_EQ(ask("ring", 63, unchanged), TUTTI_NOT_SUPPORTED);
  EXPECT_EQ(last_error(), "ring: has no collective 63");
  EXPECT_EQ(ask("ring", 70, unchanged), TUTTI_NOT_SUPPORTED);
  EXPECT_EQ(ask("tree", TUTTI_BARRIER, unchanged), TUTTI_NOT_SUPPORTED);
  EXPECT_EQ(last_error(), "tree: barrier: needs 2 lanes, there is 1");
  EXPECT_EQ(ask("tree", TUTTI_BARRIER, [](tutti_query& q) { q.lanes = 2; }), TUTTI_OK);
  EXPECT_EQ(ask("ring", TUTTI_ALL_REDUCE, [](tutti_query& q) { q.rank = 4; }), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "ring: no such query: rank 4, root 0 of 4 ranks, 1 lanes");
  EXPECT_EQ(ask("ring", TUTTI_ALL_REDUCE, [](tutti_query& q) { q.root = 4; }), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(ask("ring", TUTTI_ALL_REDUCE, [](tutti_query& q) { q.nranks = 0; }), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(ask("ring", TUTTI_ALL_REDUCE, [](tutti_query& q) { q.lanes = 0; }), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(ask("ring", TUTTI_ALL_REDUCE, [](tutti_query& q) { q.struct_size = 8; }), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(ask("ring", TUTTI_ALL_REDUCE, [](tutti_query& q) { q.flags = 1u << 5; }), TUTTI_NOT_SUPPORTED);
  EXPECT_EQ(ask("ring", TUTTI_ALL_REDUCE, [](tutti_query& q) { q.flags = uint64_t{1} << 40; }), TUTTI_OK);
}

TEST(Plugin, TakesALongerQueryWhoseTailIsZero) {
  struct Longer {
    tutti_query query;
    uint64_t more;
  } longer{};
  longer.query.struct_size = sizeof longer;
  longer.query.collective = TUTTI_ALL_REDUCE;
  longer.query.nranks = 4;
  longer.query.lanes = 1;
  const tutti_algorithm* ring = find_algorithm("ring");
  EXPECT_EQ(ring->supports(ring->self, &longer.query), TUTTI_OK);
  longer.more = 1;
  EXPECT_EQ(ring->supports(ring->self, &longer.query), TUTTI_NOT_SUPPORTED);
}

// A sink that refuses its k-th step: the algorithm must stop and give back that very status.
TEST(Plugin, StopsWhenTheSinkRefuses) {
  struct Counter {
    int steps = 0;
  } counter;
  tutti_schedule_sink sink{};
  sink.struct_size = sizeof sink;
  sink.self = &counter;
  sink.set_cuts = [](void*, const tutti_cut*, uint32_t) { return tutti_status{TUTTI_OK}; };
  sink.set_scratch = [](void*, const tutti_extent*, uint32_t, uint32_t) { return tutti_status{TUTTI_OK}; };
  sink.set_flags = [](void*, uint64_t) { return tutti_status{TUTTI_OK}; };
  sink.add_step = [](void* self, uint32_t, const tutti_step*, const tutti_span*) {
    return ++static_cast<Counter*>(self)->steps == 3 ? tutti_status{TUTTI_NO_RESOURCES} : tutti_status{TUTTI_OK};
  };
  tutti_query query{};
  query.struct_size = sizeof query;
  query.collective = TUTTI_ALL_REDUCE;
  query.nranks = 4;
  query.lanes = 1;
  const tutti_algorithm* ring = find_algorithm("ring");
  EXPECT_EQ(ring->schedule(ring->self, &query, &sink), TUTTI_NO_RESOURCES);
  EXPECT_EQ(counter.steps, 3);
}

}  // namespace
}  // namespace tutti::test
