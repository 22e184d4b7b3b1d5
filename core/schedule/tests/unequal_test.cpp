// SPDX-License-Identifier: Apache-2.0
//
// Blocks of unequal sizes: each has its own class, and a rank touches only sizes that it knows.
#include <gtest/gtest.h>
#include <tutti/schedule.h>

#include "schedule_builder.hpp"

namespace tutti {
namespace {
using namespace hand;

void expect_fault(const Case& c, Fault fault, const char* words) {
  const Proof proof = verify(c.problem, c.schedules);
  EXPECT_STREQ(fault_name(proof.fault), fault_name(fault)) << proof.error;
  EXPECT_NE(proof.error.find(words), std::string::npos) << proof.error;
}

// Three ranks: 2 gives its block to 1, which gives it to 0 with its own.
Case line_gather(uint32_t collective) {
  Case c = make_case(collective, 3);
  const uint32_t block = has_unequal_blocks(collective) ? 2 : 0;
  c.schedules[1].scratch = {{block, 0}};
  c.schedules[2].lanes = {{send(1, in(0))}};
  c.schedules[1].lanes = {{recv(2, scratch(0)), send(0, scratch(0)), send(0, in(0))}};
  c.schedules[0].lanes = {{recv(1, out(2)), recv(1, out(1)), copy(out(0), in(0))}};
  return c;
}

TEST(Unequal, ARankMustKnowTheSizeOfItsScratch) {
  const Case equal = line_gather(TUTTI_GATHER);
  EXPECT_TRUE(verify(equal.problem, equal.schedules).ok());
  expect_fault(line_gather(TUTTI_GATHER_V), Fault::form,
               "rank 1: scratch chunk 0 has the size of class 2, which this rank does not know in gather_v");
  Case own = line_gather(TUTTI_GATHER_V);
  own.schedules[1].scratch = {{1, 0}};
  expect_fault(own, Fault::size_mismatch, "sends a chunk of the size of piece 0 of class 1, but");
  Case none = line_gather(TUTTI_GATHER_V);
  none.schedules[1].scratch = {{3, 0}};
  expect_fault(none, Fault::form, "scratch chunk 0 has extent {3, 0}, but there are 1 pieces of 3 classes");
}

// The same line where all ranks know all sizes: rank 0 keeps what it gets in scratch first.
TEST(Unequal, EveryRankKnowsAllSizesOfAllGather) {
  Case c = make_case(TUTTI_ALL_GATHER_V, 2);
  c.schedules[0].scratch = {{1, 0}};
  c.schedules[0].lanes = {{send(1, in(0)), recv(1, scratch(0)), copy(out(1), scratch(0)), copy(out(0), in(0))}};
  c.schedules[1].lanes = {{send(0, in(0)), recv(0, out(0)), copy(out(1), in(0))}};
  EXPECT_TRUE(verify(c.problem, c.schedules).ok()) << verify(c.problem, c.schedules).error;
  c.schedules[0].scratch = {{0, 0}};
  expect_fault(c, Fault::size_mismatch, "at the destination and of piece 0 of class 0 at the source");
  c.schedules[0].scratch = {{1, 0}};
  c.schedules[0].lanes[0].pop_back();
  c.schedules[0].lanes[0].push_back(copy(out(0), scratch(0)));
  expect_fault(c, Fault::size_mismatch,
               "has the size of piece 0 of class 0 at the destination and of piece 0 of class 1 at the source");
}

TEST(Unequal, AllToAll) {
  for (uint32_t n = 2; n <= 5; ++n) {
    Case c = all_to_all(n);
    c.problem.collective = TUTTI_ALL_TO_ALL_V;
    EXPECT_TRUE(verify(c.problem, c.schedules).ok()) << verify(c.problem, c.schedules).error;
    c.problem.in_place[0] = true;
    expect_fault(c, Fault::form, "all_to_all_v has no form in place");
    c.problem.in_place[0] = false;
    // Two blocks that rank 0 sends change places: right in size only where all are equal.
    std::vector<Step>& lane = c.schedules[0].lanes[0];
    const auto is_send = [](const Step& s) { return s.op.kind == TUTTI_STEP_SEND; };
    const auto first = std::find_if(lane.begin(), lane.end(), is_send);
    first->op.src.first = 0;
    expect_fault(c, Fault::size_mismatch, "sends a chunk of the size of piece 0 of class 0, but");
  }
}

TEST(Unequal, WhoKnowsWhat) {
  constexpr uint32_t n = 4, root = 2;
  for (uint32_t rank = 0; rank < n; ++rank)
    for (uint32_t b = 0; b < n; ++b) {
      EXPECT_TRUE(knows_block(TUTTI_ALL_GATHER_V, n, root, rank, b));
      EXPECT_TRUE(knows_block(TUTTI_REDUCE_SCATTER_V, n, root, rank, b));
      for (const uint32_t collective : {TUTTI_GATHER_V, TUTTI_SCATTER_V})
        EXPECT_EQ(knows_block(collective, n, root, rank, b), rank == root || rank == b);
      for (uint32_t to = 0; to < n; ++to)
        EXPECT_EQ(knows_block(TUTTI_ALL_TO_ALL_V, n, root, rank, b * n + to), rank == b || rank == to);
      EXPECT_EQ(block_class(TUTTI_ALL_TO_ALL_V, n, rank, TUTTI_BUFFER_IN, b),
                block_class(TUTTI_ALL_TO_ALL_V, n, b, TUTTI_BUFFER_OUT, rank));
    }
  Problem problem{.collective = TUTTI_ALL_TO_ALL_V, .nranks = 65536};
  EXPECT_NE(verify(problem, {}).error.find("more classes of blocks than there are numbers for"), std::string::npos);
}

}  // namespace
}  // namespace tutti
