// SPDX-License-Identifier: Apache-2.0
#include "clocks.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace trace {

double TickClock::rate_of(const std::vector<tutti_trace_clock>& clocks) {
  if (clocks.empty() || clocks.back().ticks <= clocks.front().ticks || clocks.back().ns <= clocks.front().ns) return 0;
  return double(clocks.back().ns - clocks.front().ns) / double(clocks.back().ticks - clocks.front().ticks);
}

TickClock::TickClock(std::vector<tutti_trace_clock> clocks, double rate) {
  constexpr uint64_t least_apart_ns = 10'000'000;  // nearer ones would make a rate of noise
  rate_ = rate_of(clocks) > 0 ? rate_of(clocks) : rate;
  for (const tutti_trace_clock& clock : clocks)
    if (points_.empty() || double(clock.ns) >= points_.back().ns + double(least_apart_ns))
      points_.push_back({double(clock.ticks), double(clock.ns)});
}

int64_t TickClock::ns(uint64_t ticks) const {
  const double at = double(ticks);
  const auto after = std::upper_bound(points_.begin(), points_.end(), at,
                                      [](double value, const Point& point) { return value < point.ticks; });
  if (after == points_.begin() || after == points_.end()) {
    const Point& near = after == points_.begin() ? points_.front() : points_.back();
    return std::llround(near.ns + (at - near.ticks) * rate_);
  }
  const Point &a = *(after - 1), &b = *after;
  return std::llround(a.ns + (at - a.ticks) * (b.ns - a.ns) / (b.ticks - a.ticks));
}

namespace {

struct Bounds {
  int64_t low = std::numeric_limits<int64_t>::min() / 4, high = std::numeric_limits<int64_t>::max() / 4;
  bool whole() const {
    return low > std::numeric_limits<int64_t>::min() / 8 && high < std::numeric_limits<int64_t>::max() / 8 &&
           low <= high;
  }
  int64_t middle() const { return low + (high - low) / 2; }
};

// Of "second clock minus first clock", by pairs of clocks.
using BoundsByPair = std::map<std::pair<uint64_t, uint64_t>, Bounds>;

BoundsByPair bounds_of(const std::vector<TraceFile>& files) {
  BoundsByPair bounds;
  for (const TraceFile& file : files)
    for (const tutti_trace_peer_clock& p : file.peer_clocks) {
      const auto off = static_cast<int64_t>(p.peer_sent_ns - p.received_ns);
      Bounds& there = bounds[{file.header.clock, p.clock}];
      there.low = std::max(there.low, off);
      Bounds& back = bounds[{p.clock, file.header.clock}];
      back.high = std::min(back.high, -off);
    }
  return bounds;
}

// The host's date minus its CLOCK_MONOTONIC.
std::optional<int64_t> date_of(const std::vector<TraceFile>& files, uint64_t clock) {
  for (const TraceFile& file : files)
    if (file.header.clock == clock && !file.clocks.empty())
      return static_cast<int64_t>(file.header.created_ns - file.clocks.front().ns);
  return std::nullopt;
}

}  // namespace

Alignment align(const std::vector<TraceFile>& files) {
  Alignment alignment;
  if (files.empty()) return alignment;
  const BoundsByPair bounds = bounds_of(files);
  std::map<uint64_t, int64_t> inexact;  // of the clocks that are placed
  const uint64_t first = files.front().header.clock;
  alignment.shift[first] = inexact[first] = 0;
  for (bool placed = true; placed;) {  // the most exact one next
    placed = false;
    int64_t least = std::numeric_limits<int64_t>::max();
    uint64_t from = 0, to = 0;
    Bounds best;
    for (const auto& [pair, b] : bounds) {
      if (!b.whole() || !inexact.count(pair.first) || inexact.count(pair.second)) continue;
      const int64_t half = (b.high - b.low) / 2 + inexact[pair.first];
      if (half < least) least = half, from = pair.first, to = pair.second, best = b, placed = true;
    }
    if (!placed) break;
    inexact[to] = least;
    alignment.shift[to] = alignment.shift[from] - best.middle();
    alignment.inexact_ns = std::max(alignment.inexact_ns, least);
  }
  for (const TraceFile& file : files) {
    if (alignment.shift.count(file.header.clock)) continue;
    const auto mine = date_of(files, file.header.clock), reference = date_of(files, first);
    alignment.shift[file.header.clock] = mine && reference ? *mine - *reference : 0;
    alignment.inexact_ns = -1;
    alignment.problems.push_back("the clock of host " + file.host + " (rank " + std::to_string(file.header.rank) +
                                 ") cannot be aligned with rank " + std::to_string(files.front().header.rank) +
                                 "'s, since no two ranks of both have told each other the time: it is placed by the "
                                 "hosts' dates");
  }
  return alignment;
}

}  // namespace trace
