// SPDX-License-Identifier: Apache-2.0
//
// line: the smallest useful algorithm. Copy this folder, rename, and write your own prose here: what the algorithm
// does, in which units, at what cost, and where it is from.
//
// broadcast: the ranks stand in a line that begins at the root and ends at the rank before it. Each takes the data from
// the one before and hands it to the next. In S slices: (S + n - 2)(a + N/(S B)) for N bytes, latency a and bandwidth
// B.
#include <tutti/sdk/algorithm.hpp>

namespace {
using namespace tutti::sdk;

struct Line {
  static constexpr const char* name = "line";
  static constexpr const char* summary = "each rank hands the data to the next";
  static constexpr uint64_t collectives = mask({TUTTI_BROADCAST});

  // Called for one rank at a time; q says which. Only the rank's own steps go into s. The same query must always give
  // the same schedule.
  static void schedule(const Query& q, Schedule& s) {
    s.sliced();               // long messages may be pipelined, slice by slice
    if (alone(q, s)) return;  // one rank: nothing to send
    Lane lane = s.lane();
    const uint32_t place = q.relative();  // 0 at the root
    if (place > 0) lane.recv(q.prev(), out());
    if (place + 1 < q.n) lane.send(q.next(), place == 0 ? in() : out());  // only the root has IN
    if (place == 0 && !q.in_place) lane.copy(out(), in());
  }
};

const tutti_algorithm line = make_algorithm<Line>();
}  // namespace

TUTTI_PLUGIN(template_algorithm, "template-algorithm", "0.1.0", "you", "Apache-2.0", "the algorithm to copy",
             {TUTTI_ALGORITHM_ID, &line});
