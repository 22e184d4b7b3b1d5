// SPDX-License-Identifier: Apache-2.0
//
// Blocks, cut points, names and descriptions.
#include <gtest/gtest.h>
#include <tutti/schedule.h>

#include <algorithm>

#include "schedule_builder.hpp"

namespace tutti {
namespace {
using namespace hand;

TEST(Shape, BlockCounts) {
  struct Row {
    uint32_t collective, in_root, in_other, out_root, out_other;
  };
  constexpr uint32_t n = 5;
  for (const Row& row :
       {Row{TUTTI_BROADCAST, 1, 0, 1, 1}, Row{TUTTI_REDUCE, 1, 1, 1, 0}, Row{TUTTI_ALL_REDUCE, 1, 1, 1, 1},
        Row{TUTTI_GATHER, 1, 1, n, 0}, Row{TUTTI_ALL_GATHER, 1, 1, n, n}, Row{TUTTI_SCATTER, n, 0, 1, 1},
        Row{TUTTI_REDUCE_SCATTER, n, n, 1, 1}, Row{TUTTI_ALL_TO_ALL, n, n, n, n}, Row{TUTTI_BARRIER, 0, 0, 0, 0},
        Row{TUTTI_SCAN, 1, 1, 1, 1}, Row{TUTTI_EXCLUSIVE_SCAN, 1, 1, 1, 0}}) {
    SCOPED_TRACE(collective_name(row.collective));
    EXPECT_EQ(block_count(row.collective, n, 2, 2, TUTTI_BUFFER_IN), row.in_root);
    EXPECT_EQ(block_count(row.collective, n, 2, 0, TUTTI_BUFFER_IN), row.in_other);
    EXPECT_EQ(block_count(row.collective, n, 2, 2, TUTTI_BUFFER_OUT), row.out_root);
    EXPECT_EQ(block_count(row.collective, n, 2, 0, TUTTI_BUFFER_OUT), row.out_other);
  }
  EXPECT_EQ(block_count(99, n, 0, 0, TUTTI_BUFFER_IN), 0u);
  EXPECT_EQ(block_count(TUTTI_ALL_REDUCE, n, 0, 0, TUTTI_BUFFER_SCRATCH), 0u);
}

TEST(Shape, WhereBuffersBeginInPlace) {
  constexpr uint32_t rank = 3;
  for (uint32_t collective = 1; collective <= last_collective; ++collective) {
    SCOPED_TRACE(collective_name(collective));
    const uint32_t form = equal_form(collective);
    const bool in_is_block = form == TUTTI_GATHER || form == TUTTI_ALL_GATHER;
    const bool out_is_block = form == TUTTI_SCATTER || form == TUTTI_REDUCE_SCATTER;
    EXPECT_EQ(block_in_place(collective, rank, TUTTI_BUFFER_IN), in_is_block ? rank : 0);
    EXPECT_EQ(block_in_place(collective, rank, TUTTI_BUFFER_OUT), out_is_block ? rank : 0);
    EXPECT_EQ(block_in_place(collective, rank, TUTTI_BUFFER_SCRATCH), 0u);
    EXPECT_EQ(has_form_in_place(collective), collective != TUTTI_ALL_TO_ALL_V);
    EXPECT_EQ(collective_from_name(collective_name(collective)), collective);
  }
  EXPECT_STREQ(collective_name(last_collective + 1), "unknown");
  EXPECT_EQ(collective_from_name("unknown"), 0u);
}

TEST(Shape, Contributors) {
  for (const uint32_t rank : {0u, 1u, 4u}) {
    EXPECT_EQ(contributors(TUTTI_SCAN, 5, rank), rank + 1);
    EXPECT_EQ(contributors(TUTTI_EXCLUSIVE_SCAN, 5, rank), rank);
    EXPECT_EQ(contributors(TUTTI_REDUCE_SCATTER, 5, rank), 5u);
  }
  EXPECT_EQ(collective_from_name("exscan"), uint32_t{TUTTI_EXCLUSIVE_SCAN});
  EXPECT_EQ(collective_from_name("exclusivescan"), uint32_t{TUTTI_EXCLUSIVE_SCAN});
}

TEST(Shape, RanksOnHosts) {
  const std::vector<uint32_t> sizes{2, 1, 3};
  EXPECT_EQ(place_on_hosts(sizes, false), (std::vector<uint32_t>{0, 0, 1, 2, 2, 2}));
  EXPECT_EQ(place_on_hosts(sizes, true), (std::vector<uint32_t>{0, 1, 2, 0, 2, 2}));
  EXPECT_TRUE(place_on_hosts({}, true).empty());
}

TEST(Shape, RandomHosts) {
  EXPECT_EQ(random_hosts(9, 1), random_hosts(9, 1));
  EXPECT_NE(random_hosts(9, 1), random_hosts(9, 2));
  EXPECT_TRUE(random_hosts(0, 1).empty());
  for (uint64_t seed = 0; seed < 100; ++seed) {
    uint32_t seen = 0;  // hosts are numbered in order of first rank
    for (const uint32_t host : random_hosts(17, seed)) {
      ASSERT_LE(host, seen);
      seen = std::max(seen, host + 1);
    }
  }
}

TEST(Shape, PieceBounds) {
  Schedule s;
  EXPECT_EQ(piece_bounds(s, 7), (std::vector<uint64_t>{0, 7}));
  s.cuts = equal_cuts(4);
  EXPECT_EQ(piece_bounds(s, 10), (std::vector<uint64_t>{0, 2, 5, 7, 10}));
  EXPECT_EQ(piece_bounds(s, 0), (std::vector<uint64_t>{0, 0, 0, 0, 0}));
  // From 4096 elements per cut on, cuts fall at multiples of 64.
  EXPECT_EQ(piece_bounds(s, 3 * 4096 - 1)[1], 3071u);
  EXPECT_EQ(piece_bounds(s, 3 * 4096 + 17)[1], 3072u);
  EXPECT_EQ(piece_bounds(s, 3 * 4096 + 17)[3], 9216u);
  const uint64_t huge = ~uint64_t{0};
  EXPECT_EQ(piece_bounds(s, huge).back(), huge);
  EXPECT_EQ(piece_bounds(s, huge)[2], huge / 2 - huge / 2 % 64);
}

TEST(Shape, Queries) {
  Problem problem;
  problem.collective = TUTTI_GATHER;
  problem.nranks = 3;
  problem.root = 1;
  problem.in_place = {false, true, false};
  EXPECT_EQ(make_query(problem, 1).flags, uint64_t{TUTTI_QUERY_IN_PLACE});
  EXPECT_EQ(make_query(problem, 2).flags, 0u);
  EXPECT_EQ(make_query(problem, 2).root, 1u);
  for (uint32_t n : {3u, 64u, 65u, 100000u}) {
    problem.nranks = n;
    const tutti_query query = make_query(problem, 0);
    EXPECT_EQ(query.host_of_rank[0], 0u);
    EXPECT_EQ(query.host_of_rank[n - 1], 0u);
  }
  problem.nranks = 3;
  problem.hosts = {0, 0, 1};
  EXPECT_EQ(make_query(problem, 0).host_of_rank, problem.hosts.data());
}

TEST(Names, RoundTrip) {
  for (uint32_t c = TUTTI_BROADCAST; c <= TUTTI_BARRIER; ++c) EXPECT_EQ(collective_from_name(collective_name(c)), c);
  for (const uint32_t d : all_dtypes()) {
    EXPECT_EQ(dtype_from_name(dtype_name(d)), d);
    EXPECT_GT(dtype_bytes(d), 0u);
    EXPECT_EQ(dtype_bytes(d) % dtype_alignment(d), 0u);
    EXPECT_NE(ops_of_dtype(d), "");
  }
  for (const uint32_t op : all_ops()) {
    EXPECT_EQ(op_from_name(op_name(op)), op);
    EXPECT_NE(dtypes_of_op(op), "");
  }
  EXPECT_EQ(collective_from_name("alltoall"), uint32_t{TUTTI_ALL_TO_ALL});
  EXPECT_EQ(collective_from_name("reducescatter"), uint32_t{TUTTI_REDUCE_SCATTER});
  EXPECT_EQ(collective_from_name("bcast"), uint32_t{TUTTI_BROADCAST});
  for (const char* wrong : {"", "_", "all-reduce", "allreduce_", "allreduces"})
    EXPECT_EQ(collective_from_name(wrong), 0u) << wrong;
  EXPECT_EQ(dtype_bytes(0), 0u);
  EXPECT_EQ(dtype_alignment(0), 0u);
  EXPECT_EQ(ops_of_dtype(TUTTI_BOOL), "band, bor, bxor, land, lor, lxor");
  EXPECT_EQ(ops_of_dtype(TUTTI_FLOAT64_INT64), "minloc, maxloc");
  EXPECT_EQ(dtypes_of_op(TUTTI_MAXLOC), "float32_int32, float64_int64");
  EXPECT_EQ(ops_of_dtype(99), "");
  for (const uint32_t op : {0u, uint32_t{TUTTI_SUM}, 31u, 32u, UINT32_MAX}) EXPECT_FALSE(op_is_defined(op, TUTTI_BOOL));
  EXPECT_FALSE(op_is_defined(TUTTI_BAND, TUTTI_FLOAT32));
  EXPECT_STREQ(step_name(TUTTI_STEP_RECV_REDUCE), "recv_reduce");
  EXPECT_STREQ(op_name(99), "unknown");
}

TEST(Names, Describe) {
  EXPECT_EQ(describe(recv_reduce(3, out(2), in(2))), "recv_reduce from 3: out[2] = in[2] + incoming");
  EXPECT_EQ(describe(recv_reduce(3, out(2), in(2), TUTTI_STEP_INCOMING_LEFT | TUTTI_STEP_LOAD | TUTTI_STEP_FINAL)),
            "recv_reduce from 3: out[2] = incoming + in[2], load, final");
  EXPECT_EQ(describe(after(send(1, scratch(0, 3)), 2, 7)), "send to 1: scratch[0..2], after lane 2 step 7");
  EXPECT_EQ(describe(recv(1, out(0))), "recv from 1: out[0]");
  EXPECT_EQ(describe(copy(out(1), in(0))), "copy: out[1] = in[0]");
  EXPECT_EQ(describe(reduce(out(0), {in(0), scratch(0)})), "reduce: out[0] = in[0] + scratch[0]");
  EXPECT_EQ(describe(signal(4)), "signal to 4");
  EXPECT_EQ(describe(wait(4)), "wait for signal from 4");
  EXPECT_EQ(describe(nop()), "nop");
}

}  // namespace
}  // namespace tutti
