// SPDX-License-Identifier: Apache-2.0
//
// Schedules written by hand, for tests: steps as short expressions, and a few well-known correct schedules.
#pragma once

#include <tutti/schedule.h>

#include <utility>

namespace tutti::hand {

inline tutti_span in(uint32_t first, uint32_t chunks = 1) { return {TUTTI_BUFFER_IN, first, chunks, 0}; }
inline tutti_span out(uint32_t first, uint32_t chunks = 1) { return {TUTTI_BUFFER_OUT, first, chunks, 0}; }
inline tutti_span scratch(uint32_t first, uint32_t chunks = 1) { return {TUTTI_BUFFER_SCRATCH, first, chunks, 0}; }

inline Step step(uint32_t kind, uint32_t peer, tutti_span dst, tutti_span src, uint32_t flags = 0) {
  Step made;
  made.op.kind = kind;
  made.op.flags = flags;
  made.op.peer = peer;
  made.op.dependency_lane = TUTTI_NO_DEPENDENCY;
  made.op.dst = dst;
  made.op.src = src;
  return made;
}
inline Step send(uint32_t peer, tutti_span src, uint32_t flags = 0) {
  return step(TUTTI_STEP_SEND, peer, {}, src, flags);
}
inline Step recv(uint32_t peer, tutti_span dst) { return step(TUTTI_STEP_RECV, peer, dst, {}); }
inline Step recv_reduce(uint32_t peer, tutti_span dst, tutti_span src, uint32_t flags = 0) {
  return step(TUTTI_STEP_RECV_REDUCE, peer, dst, src, flags);
}
inline Step copy(tutti_span dst, tutti_span src, uint32_t flags = 0) {
  return step(TUTTI_STEP_COPY, 0, dst, src, flags);
}
inline Step reduce(tutti_span dst, std::vector<tutti_span> sources, uint32_t flags = 0) {
  Step made = step(TUTTI_STEP_REDUCE, 0, dst, {}, flags);
  made.op.sources = uint32_t(sources.size());
  made.sources = std::move(sources);
  return made;
}
inline Step signal(uint32_t peer) { return step(TUTTI_STEP_SIGNAL, peer, {}, {}); }
inline Step wait(uint32_t peer) { return step(TUTTI_STEP_SIGNAL, peer, {}, {}, TUTTI_STEP_WAIT); }
inline Step nop() { return step(TUTTI_STEP_NOP, 0, {}, {}); }
inline Step after(Step made, uint32_t lane, uint32_t index) {
  made.op.dependency_lane = lane;
  made.op.dependency_step = index;
  return made;
}

struct Case {
  Problem problem;
  std::vector<Schedule> schedules;
};

inline Case make_case(uint32_t collective, uint32_t nranks, bool in_place = false, uint32_t root = 0) {
  Case made;
  made.problem.collective = collective;
  made.problem.nranks = nranks;
  made.problem.root = root;
  made.problem.in_place.assign(nranks, in_place);
  made.schedules.resize(nranks);
  return made;
}

inline std::vector<tutti_cut> equal_cuts(uint32_t pieces) {
  std::vector<tutti_cut> cuts;
  for (uint32_t p = 1; p < pieces; ++p) cuts.push_back({p, pieces});
  return cuts;
}

// Ring all_reduce in one lane: reduce-scatter, then all-gather. Right in place and out of place, and sliced.
inline Case ring_all_reduce(uint32_t n, bool in_place = false) {
  Case made = make_case(TUTTI_ALL_REDUCE, n, in_place);
  for (uint32_t r = 0; r < n; ++r) {
    Schedule& s = made.schedules[r];
    s.cuts = equal_cuts(n);
    s.flags = TUTTI_SCHEDULE_SLICED;
    auto& lane = s.lanes.emplace_back();
    lane.reserve(4 * n);
    if (n == 1) lane.push_back(copy(out(0), in(0), TUTTI_STEP_LOAD | TUTTI_STEP_FINAL));
    const uint32_t next = (r + 1) % n, prev = (r + n - 1) % n;
    for (uint32_t k = 0; k + 1 < n; ++k) {
      const uint32_t sent = (r + n - k) % n, got = (sent + n - 1) % n;
      lane.push_back(k == 0 ? send(next, in(sent), TUTTI_STEP_LOAD) : send(next, out(sent)));
      lane.push_back(recv_reduce(prev, out(got), in(got), TUTTI_STEP_LOAD | (k + 2 == n ? TUTTI_STEP_FINAL : 0)));
    }
    for (uint32_t k = 0; k + 1 < n; ++k) {
      const uint32_t sent = (r + 1 + n - k) % n, got = (sent + n - 1) % n;
      lane.push_back(send(next, out(sent)));
      lane.push_back(recv(prev, out(got)));
    }
  }
  return made;
}

// all_reduce on a torus of `rows` x `columns` ranks: a ring in the row reduces and scatters runs of chunks, a ring in
// the column reduces those over the rows, chunk by chunk, and the row gathers its runs again.
inline Case torus_all_reduce(uint32_t rows, uint32_t columns, bool in_place = false) {
  Case made = make_case(TUTTI_ALL_REDUCE, rows * columns, in_place);
  for (uint32_t r = 0; r < rows * columns; ++r) {
    Schedule& s = made.schedules[r];
    s.cuts = equal_cuts(rows * columns);
    s.flags = TUTTI_SCHEDULE_SLICED;
    auto& lane = s.lanes.emplace_back();
    const uint32_t row = r / columns, column = r % columns;
    const uint32_t right = row * columns + (column + 1) % columns;
    const uint32_t left = row * columns + (column + columns - 1) % columns;
    const uint32_t below = (row + 1) % rows * columns + column, above = (row + rows - 1) % rows * columns + column;
    const auto run = [&](tutti_span (*buffer)(uint32_t, uint32_t), uint32_t part) {
      return buffer(part % columns * rows, rows);
    };
    for (uint32_t k = 0; k + 1 < columns; ++k) {
      const uint32_t sent = column + columns - k, got = sent - 1;
      lane.push_back(k == 0 ? send(right, run(in, sent), TUTTI_STEP_LOAD) : send(right, run(out, sent)));
      lane.push_back(recv_reduce(left, run(out, got), run(in, got), TUTTI_STEP_LOAD));
    }
    const uint32_t mine = (column + 1) % columns * rows;
    for (uint32_t k = 0; k + 1 < rows; ++k) {
      const uint32_t sent = mine + (row + rows - k) % rows, got = mine + (row + 2 * rows - k - 1) % rows;
      lane.push_back(send(below, out(sent)));
      lane.push_back(recv_reduce(above, out(got), out(got), k + 2 == rows ? TUTTI_STEP_FINAL : 0));
    }
    for (uint32_t k = 0; k + 1 < rows; ++k) {
      lane.push_back(send(below, out(mine + (row + 1 + rows - k) % rows)));
      lane.push_back(recv(above, out(mine + (row + rows - k) % rows)));
    }
    for (uint32_t k = 0; k + 1 < columns; ++k) {
      const uint32_t sent = column + 1 + columns - k, got = sent - 1;
      lane.push_back(send(right, run(out, sent)));
      lane.push_back(recv(left, run(out, got)));
    }
  }
  return made;
}

// all_gather on 2 ranks of blocks in two pieces: what came waits in scratch, all of it in one step.
inline Case staged_run_all_gather(uint32_t copies, bool in_place = false) {
  Case made = make_case(TUTTI_ALL_GATHER, 2, in_place);
  for (uint32_t r = 0; r < 2; ++r) {
    Schedule& s = made.schedules[r];
    s.flags = TUTTI_SCHEDULE_SLICED;
    s.cuts = equal_cuts(2);
    s.scratch = {{0, 0}, {0, 1}};
    s.scratch_copies = copies;
    auto& lane = s.lanes.emplace_back();
    lane = {send(1 - r, in(0, 2)), recv(1 - r, scratch(0, 2)), copy(out(2 * (1 - r), 2), scratch(0, 2))};
    if (!in_place) lane.push_back(copy(out(2 * r, 2), in(0, 2)));
  }
  return made;
}

// Everybody sends everything to everybody; each adds up in rank order. Receives in lane 1, the sum in lane 0 after
// them. `copies`: of the scratch; with reuse, the sum must be over before the next receives, which lane 1's own
// dependency ensures.
inline Case direct_all_reduce(uint32_t n, bool in_place = false, uint32_t copies = 0) {
  Case made = make_case(TUTTI_ALL_REDUCE, n, in_place);
  for (uint32_t r = 0; r < n; ++r) {
    Schedule& s = made.schedules[r];
    s.flags = TUTTI_SCHEDULE_SLICED;
    s.scratch.assign(n - 1, tutti_extent{0, 0});
    s.scratch_copies = copies;
    s.lanes.resize(1);
    std::vector<tutti_span> sources(n, in(0));
    for (uint32_t k = 1; k < n; ++k) {
      const uint32_t to = (r + k) % n, from = (r + n - k) % n;
      s.lanes[0].push_back(send(to, in(0), TUTTI_STEP_LOAD));
      s.lanes[0].push_back(recv(from, scratch(k - 1)));
      sources[from] = scratch(k - 1);
    }
    s.lanes[0].push_back(reduce(out(0), sources, TUTTI_STEP_LOAD | TUTTI_STEP_FINAL));
  }
  return made;
}

// Two lanes: lane 1 receives into scratch and lane 0 copies to OUT after it. all_gather on 2 ranks.
inline Case staged_all_gather(bool in_place = false) {
  Case made = make_case(TUTTI_ALL_GATHER, 2, in_place);
  for (uint32_t r = 0; r < 2; ++r) {
    Schedule& s = made.schedules[r];
    s.flags = TUTTI_SCHEDULE_SLICED;
    s.scratch = {{0, 0}};
    s.lanes.resize(2);
    s.lanes[1] = {send(1 - r, in(0)), recv(1 - r, scratch(0))};
    if (!in_place) s.lanes[0].push_back(copy(out(r), in(0)));
    s.lanes[0].push_back(after(copy(out(1 - r), scratch(0)), 1, 1));
  }
  return made;
}

// Every block straight to its rank; in place by way of scratch.
inline Case all_to_all(uint32_t n, bool in_place = false) {
  Case made = make_case(TUTTI_ALL_TO_ALL, n, in_place);
  for (uint32_t r = 0; r < n; ++r) {
    Schedule& s = made.schedules[r];
    s.lanes.resize(1);
    if (in_place) s.scratch.assign(n, tutti_extent{0, 0});
    for (uint32_t k = 1; k < n; ++k) {
      const uint32_t to = (r + k) % n, from = (r + n - k) % n;
      s.lanes[0].push_back(send(to, in(to)));
      s.lanes[0].push_back(recv(from, in_place ? scratch(from) : out(from)));
    }
    if (!in_place) s.lanes[0].push_back(copy(out(r), in(r)));
    for (uint32_t from = 0; in_place && from < n; ++from)
      if (from != r) s.lanes[0].push_back(copy(out(from), scratch(from)));
  }
  return made;
}

// Down a line from the root.
inline Case line_broadcast(uint32_t n, uint32_t root, bool in_place = false) {
  Case made = make_case(TUTTI_BROADCAST, n, in_place, root);
  for (uint32_t r = 0; r < n; ++r) {
    Schedule& s = made.schedules[r];
    s.flags = TUTTI_SCHEDULE_SLICED;
    auto& lane = s.lanes.emplace_back();
    const uint32_t place = (r + n - root) % n;
    if (place > 0) lane.push_back(recv((r + n - 1) % n, out(0)));
    if (place + 1 < n) lane.push_back(send((r + 1) % n, place == 0 ? in(0) : out(0)));
    if (place == 0 && !in_place) lane.push_back(copy(out(0), in(0)));
  }
  return made;
}

// To the root along a line; partial sums wait in scratch where a rank has no OUT.
inline Case line_reduce(uint32_t n, uint32_t root, bool in_place = false) {
  Case made = make_case(TUTTI_REDUCE, n, in_place, root);
  for (uint32_t r = 0; r < n; ++r) {
    Schedule& s = made.schedules[r];
    s.flags = TUTTI_SCHEDULE_SLICED;
    auto& lane = s.lanes.emplace_back();
    const uint32_t place = (r + n - root) % n;
    const uint32_t next = (r + 1) % n, prev = (r + n - 1) % n;
    if (place == 0) {
      lane.push_back(recv_reduce(next, out(0), in(0), TUTTI_STEP_LOAD | TUTTI_STEP_FINAL));
    } else if (place + 1 == n) {
      lane.push_back(send(prev, in(0), TUTTI_STEP_LOAD));
    } else {
      s.scratch = {{0, 0}};
      s.scratch_copies = 1;
      lane.push_back(recv_reduce(next, scratch(0), in(0), TUTTI_STEP_LOAD));
      lane.push_back(send(prev, scratch(0)));
    }
  }
  return made;
}

// reduce_scatter straight: every rank adds up its own block.
inline Case direct_reduce_scatter(uint32_t n, bool in_place = false) {
  Case made = make_case(TUTTI_REDUCE_SCATTER, n, in_place);
  for (uint32_t r = 0; r < n; ++r) {
    auto& lane = made.schedules[r].lanes.emplace_back();
    for (uint32_t k = 1; k < n; ++k) {
      const uint32_t to = (r + k) % n, from = (r + n - k) % n;
      lane.push_back(send(to, in(to), TUTTI_STEP_LOAD));
      lane.push_back(recv_reduce(from, out(0), k == 1 ? in(r) : out(0),
                                 (k == 1 ? TUTTI_STEP_LOAD : 0) | (k + 1 == n ? TUTTI_STEP_FINAL : 0)));
    }
  }
  return made;
}

// A scan along a line, of ranks 0 ... r, or of ranks 0 ... r-1.
inline Case line_scan(uint32_t n, bool in_place = false, bool exclusive = false) {
  Case made = make_case(exclusive ? TUTTI_EXCLUSIVE_SCAN : TUTTI_SCAN, n, in_place);
  for (uint32_t r = 0; r < n; ++r) {
    auto& lane = made.schedules[r].lanes.emplace_back();
    const bool last = r + 1 == n;
    if (!exclusive) {
      if (r > 0) lane.push_back(recv_reduce(r - 1, out(0), in(0), TUTTI_STEP_LOAD | TUTTI_STEP_INCOMING_LEFT));
      if (!last) lane.push_back(send(r + 1, r ? out(0) : in(0), r ? 0 : TUTTI_STEP_LOAD));
      lane.push_back(copy(out(0), r ? out(0) : in(0), TUTTI_STEP_FINAL | (r ? 0 : TUTTI_STEP_LOAD)));
      continue;
    }
    made.schedules[r].scratch = {{0, 0}, {0, 0}};
    if (r > 0) lane.push_back(recv(r - 1, scratch(0)));
    if (r > 0 && !last) lane.push_back(reduce(scratch(1), {scratch(0), in(0)}, TUTTI_STEP_LOAD));
    if (!last) lane.push_back(send(r + 1, r ? scratch(1) : in(0), r ? 0 : TUTTI_STEP_LOAD));
    if (r > 0) lane.push_back(copy(out(0), scratch(0), TUTTI_STEP_FINAL));
  }
  return made;
}

// Everybody signals everybody.
inline Case direct_barrier(uint32_t n) {
  Case made = make_case(TUTTI_BARRIER, n);
  for (uint32_t r = 0; r < n; ++r) {
    auto& lane = made.schedules[r].lanes.emplace_back();
    for (uint32_t k = 1; k < n; ++k) {
      lane.push_back(signal((r + k) % n));
      lane.push_back(wait((r + n - k) % n));
    }
  }
  return made;
}

}  // namespace tutti::hand
