// SPDX-License-Identifier: Apache-2.0
//
// Every rule of form, broken once.
#include <gtest/gtest.h>
#include <tutti/schedule.h>

#include "schedule_builder.hpp"

namespace tutti {
namespace {
using namespace hand;

struct Broken {
  const char* name;
  void (*break_it)(Case&);
  const char* words;  // of the message
};

Step& first(Case& c, uint32_t rank = 1) { return c.schedules[rank].lanes[0][0]; }

// Each starts from ring all_reduce on 4 ranks: rank 1's first step is a send, its second a recv_reduce.
const Broken broken[] = {
    {"unknown_kind", [](Case& c) { first(c).op.kind = 8; }, "unknown kind 8"},
    {"kind_zero", [](Case& c) { first(c).op.kind = 0; }, "unknown kind 0"},
    {"unknown_flag", [](Case& c) { first(c).op.flags |= 1u << 9; }, "flags"},
    {"final_on_send", [](Case& c) { first(c).op.flags |= TUTTI_STEP_FINAL; }, "flags"},
    {"reserved", [](Case& c) { first(c).op.reserved1[1] = 1; }, "reserved"},
    {"reserved0", [](Case& c) { first(c).op.reserved0 = 1; }, "reserved"},
    {"span_reserved", [](Case& c) { first(c).op.src.reserved = 1; }, "reserved"},
    {"peer_out_of_range", [](Case& c) { first(c).op.peer = 4; }, "names peer 4, but there are 4 ranks"},
    {"peer_is_self", [](Case& c) { first(c).op.peer = 1; }, "its own rank"},
    {"peer_of_copy", [](Case& c) { first(c) = copy(out(0), in(0)), first(c).op.peer = 2; }, "has none"},
    {"unknown_buffer", [](Case& c) { first(c).op.src.buffer = 4; }, "unknown buffer 4"},
    {"no_scratch", [](Case& c) { first(c).op.src.buffer = TUTTI_BUFFER_SCRATCH; },
     "SCRATCH, which this rank does not have"},
    {"chunk_out_of_range", [](Case& c) { first(c).op.src.first = 4; }, "reaches chunk 4, but IN has 4 chunks"},
    {"chunk_overflow", [](Case& c) { first(c).op.src.first = 0xffffffffu; }, "reaches chunk 4294967295"},
    {"no_chunks", [](Case& c) { first(c).op.src.chunks = 0; }, "no chunks"},
    {"some_levels", [](Case& c) { c.schedules[1].lanes[0][2].op.level = 1; }, "all steps of a schedule have a level"},
    {"slice_levels_alone", [](Case& c) { c.schedules[1].flags |= TUTTI_SCHEDULE_SLICE_LEVELS(1); },
     "has no slices or no levels"},
    {"no_slice_levels",
     [](Case& c) {
       for (Step& step : c.schedules[1].lanes[0]) step.op.level = 1;
     },
     "does not say how many levels"},
    {"send_with_dst", [](Case& c) { first(c).op.dst = out(0); }, "writes nothing"},
    {"recv_with_src", [](Case& c) { c.schedules[1].lanes[0].back().op.src = out(0); }, "does not use"},
    {"sources_of_send", [](Case& c) { first(c).op.sources = 1; }, "sources"},
    {"one_source", [](Case& c) { first(c) = reduce(out(0), {in(0)}); }, "at least 2"},
    {"source_count",
     [](Case& c) {
       first(c) = reduce(out(0), {in(0), out(0)}), first(c).op.sources = 3;
     },
     "says 3"},
    {"partial_overlap",
     [](Case& c) {
       for (Schedule& s : c.schedules) s.flags = 0;
       first(c) = copy(out(0, 2), out(1, 2));
     },
     "overlaps"},
    {"span_lengths",
     [](Case& c) {
       for (Schedule& s : c.schedules) s.flags = 0;
       first(c) = copy(out(0, 2), in(0, 1));
     },
     "writes 2 chunks from 1"},
    {"dependency_lane", [](Case& c) { first(c) = after(first(c), 1, 0); }, "depends on lane 1, but there are 1 lanes"},
    {"dependency_own_lane", [](Case& c) { first(c) = after(first(c), 0, 1); }, "its own lane"},
    {"dependency_step",
     [](Case& c) {
       c.schedules[1].lanes.emplace_back().push_back(nop());
       first(c) = after(first(c), 1, 1);
     },
     "but that lane has 1 steps"},
    {"dependency_cycle",
     [](Case& c) {
       c.schedules[1].lanes.emplace_back().push_back(after(nop(), 0, 1));
       first(c) = after(first(c), 1, 0);
     },
     "waits for itself"},
    {"too_many_lanes", [](Case& c) { c.schedules[1].lanes.resize(9); }, "uses 9 lanes, but the query allows 8"},
    {"cut_at_zero", [](Case& c) { c.schedules[1].cuts[0].p = 0; }, "not strictly between"},
    {"cut_at_one", [](Case& c) { c.schedules[1].cuts[2].p = 4; }, "not strictly between"},
    {"cuts_not_increasing",
     [](Case& c) {
       c.schedules[1].cuts[1] = {2, 8};
     },
     "not above its predecessor"},
    {"schedule_flags", [](Case& c) { c.schedules[1].flags |= 2; }, "schedule flags"},
    {"scratch_extent",
     [](Case& c) {
       c.schedules[1].scratch = {{0, 4}};
     },
     "scratch chunk 0"},
    {"scratch_class",
     [](Case& c) {
       c.schedules[1].scratch = {{1, 0}};
     },
     "scratch chunk 0"},
    {"scratch_copies", [](Case& c) { c.schedules[1].scratch_copies = 17; }, "limit of 16"},
    {"collective", [](Case& c) { c.problem.collective = 77; }, "collective 77 is unknown"},
    {"no_ranks", [](Case& c) { c.problem.nranks = 0; }, "no ranks"},
    {"in_place_length", [](Case& c) { c.problem.in_place.pop_back(); }, "3 entries for 4 ranks"},
    {"root", [](Case& c) { c.problem.collective = TUTTI_REDUCE, c.problem.root = 4; }, "root 4"},
};

class Form : public testing::TestWithParam<Broken> {};

TEST_P(Form, IsRefused) {
  Case c = ring_all_reduce(4);
  GetParam().break_it(c);
  const Proof proof = verify(c.problem, c.schedules);
  EXPECT_TRUE(proof.fault == Fault::form || proof.fault == Fault::size_mismatch)
      << fault_name(proof.fault) << proof.error;
  EXPECT_NE(proof.error.find(GetParam().words), std::string::npos) << proof.error;
}
INSTANTIATE_TEST_SUITE_P(Rules, Form, testing::ValuesIn(broken),
                         [](const auto& rule) { return std::string(rule.param.name); });

TEST(ScheduleHash, TellsEveryEditApart) {
  const auto hashes = [](const Case& c) {
    std::vector<uint64_t> all;
    for (const Schedule& s : c.schedules) all.push_back(schedule_hash(s));
    return all;
  };
  const Case untouched = ring_all_reduce(4);
  EXPECT_EQ(hashes(untouched), hashes(ring_all_reduce(4)));
  for (const Broken& rule : broken) {
    Case c = ring_all_reduce(4);
    rule.break_it(c);
    const std::string name = rule.name;
    if (name == "collective" || name == "no_ranks" || name == "in_place_length" || name == "root") continue;
    EXPECT_NE(hashes(c), hashes(untouched)) << name;
  }
}

TEST(FormLimits, HighFlagsMayBeIgnored) {
  Case c = ring_all_reduce(4);
  for (Schedule& s : c.schedules) s.flags |= uint64_t{1} << 40;
  EXPECT_TRUE(verify(c.problem, c.schedules).ok());
}

TEST(FormLimits, BuffersThatARoleLacks) {
  Case c = line_reduce(3, 0);
  c.schedules[2].lanes[0].insert(c.schedules[2].lanes[0].begin(), copy(out(0), in(0)));
  EXPECT_NE(verify(c.problem, c.schedules).error.find("OUT, which this rank does not have in reduce"),
            std::string::npos);
  c = line_broadcast(3, 0);
  c.schedules[2].lanes[0].push_back(copy(out(0), in(0)));
  EXPECT_NE(verify(c.problem, c.schedules).error.find("IN, which this rank does not have in broadcast"),
            std::string::npos);
}

}  // namespace
}  // namespace tutti
