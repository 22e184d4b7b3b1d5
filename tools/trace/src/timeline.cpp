// SPDX-License-Identifier: Apache-2.0
#include "timeline.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <stdexcept>

#include "clocks.hpp"
#include "texts/texts.hpp"

namespace trace {
namespace {

void place(Span& span, uint64_t begin, uint64_t end, const TickClock& clock, int64_t shift) {
  span.begin = clock.ns(begin) + shift;
  span.end = clock.ns(end) + shift;
}

Step step_of(const tutti_trace_step& s, const TickClock& clock, int64_t shift) {
  Step step;
  place(step, s.begin_ticks, s.end_ticks, clock, shift);
  step.peer = s.peer;
  step.sequence = s.sequence;
  step.bytes = s.bytes;
  step.lane = s.lane;
  step.step = s.step;
  step.slice = s.slice;
  step.kind = s.step_kind;
  step.flags = s.flags;
  step.transport = texts::text_of(s.transport);
  return step;
}

template <typename T>
void sort_by_begin(std::vector<T>& spans) {
  std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
}

RankTrace rank_of(const TraceFile& file, const TickClock& clock, int64_t shift) {
  RankTrace rank;
  rank.rank = file.header.rank;
  rank.host = file.host;
  rank.program = file.program;
  rank.pid = file.header.pid;
  rank.links = file.links;
  for (const tutti_trace_call& c : file.calls) {
    Call call;
    place(call, c.begin_ticks, c.end_ticks, clock, shift);
    call.sequence = c.sequence;
    call.count = c.count;
    if (const auto tag = file.tags.find(c.sequence); tag != file.tags.end()) call.tag = tag->second;
    call.collective = c.collective;
    call.dtype = c.dtype;
    call.op = c.op;
    call.root = c.root;
    call.slices = c.slices;
    call.in_place = c.in_place;
    call.status = c.status;
    call.begin_ticks = c.begin_ticks;
    call.end_ticks = c.end_ticks;
    if (const auto service = file.services.find(c.service); service != file.services.end()) {
      call.algorithm = service->second.algorithm;
      call.transports = service->second.transports;
    }
    rank.calls.push_back(std::move(call));
  }
  for (const tutti_trace_step& s : file.steps) rank.steps.push_back(step_of(s, clock, shift));
  for (const tutti_trace_step& s : file.waits) rank.waits.push_back(step_of(s, clock, shift));
  for (const tutti_trace_transfer& t : file.transfers) {
    Transfer transfer;
    place(transfer, t.begin_ticks, t.end_ticks, clock, shift);
    transfer.number = t.number;
    transfer.bytes = t.bytes;
    transfer.peer = t.peer;
    transfer.tag = t.tag;
    transfer.sending = t.sending;
    transfer.status = t.status;
    transfer.begin_ticks = t.begin_ticks;
    transfer.end_ticks = t.end_ticks;
    rank.transfers.push_back(transfer);
  }
  sort_by_begin(rank.calls);
  sort_by_begin(rank.steps);
  sort_by_begin(rank.waits);
  sort_by_begin(rank.transfers);
  return rank;
}

template <typename Function>
void for_each_span(Timeline& timeline, Function&& function) {
  for (Group& group : timeline.groups)
    for (RankTrace& rank : group.ranks) {
      for (Span& span : rank.calls) function(span);
      for (Span& span : rank.steps) function(span);
      for (Span& span : rank.waits) function(span);
      for (Span& span : rank.transfers) function(span);
    }
}

int64_t time_in_calls(const Group& group) {
  int64_t sum = 0;
  for (const RankTrace& rank : group.ranks) {
    for (const Call& call : rank.calls) sum += call.length();
    for (const Transfer& transfer : rank.transfers) sum += transfer.length();
  }
  return sum;
}

// From the first span on, the busiest communicator first.
void normalise(Timeline& timeline) {
  int64_t first = std::numeric_limits<int64_t>::max();
  for_each_span(timeline, [&](Span& span) { first = std::min(first, span.begin); });
  for_each_span(timeline, [&](Span& span) {
    span.begin -= first;
    span.end -= first;
    timeline.end = std::max(timeline.end, span.end);
  });
  for (Group& group : timeline.groups) {
    std::sort(group.ranks.begin(), group.ranks.end(), [](auto& a, auto& b) { return a.rank < b.rank; });
    if (group.ranks.size() == group.nranks) continue;
    std::string absent;
    size_t n = 0;
    for (uint32_t r = 0; r < group.nranks; ++r)
      if (!group.find(r) && ++n <= 8) absent += (absent.empty() ? "" : ", ") + std::to_string(r);
    timeline.problems.push_back(group.name + ": no usable trace of " + std::to_string(n) + " of " +
                                std::to_string(group.nranks) + " ranks (" + absent + (n > 8 ? ", ..." : "") +
                                "): was TUTTI_TRACE set there, and are all hosts' files in the folder?");
  }
  std::stable_sort(timeline.groups.begin(), timeline.groups.end(),
                   [](const Group& a, const Group& b) { return time_in_calls(a) > time_in_calls(b); });
}

}  // namespace

const RankTrace* Group::find(uint32_t rank) const {
  for (const RankTrace& r : ranks)
    if (r.rank == rank) return &r;
  return nullptr;
}

Timeline merge(std::vector<TraceFile> files, const std::string& only) {
  Timeline timeline;
  std::sort(files.begin(), files.end(),
            [](const TraceFile& a, const TraceFile& b) { return a.header.rank < b.header.rank; });
  const Alignment alignment = align(files);
  timeline.inexact_ns = alignment.inexact_ns;
  timeline.clocks = alignment.shift.size();
  timeline.problems = alignment.problems;
  std::map<uint64_t, double> rates;  // by clock
  for (const TraceFile& file : files)
    if (const double rate = TickClock::rate_of(file.clocks); rate > 0) rates[file.header.clock] = rate;
  std::map<uint64_t, Group> groups;
  for (const TraceFile& file : files) {
    if (!only.empty() && file.name != only) continue;
    timeline.problems.insert(timeline.problems.end(), file.problems.begin(), file.problems.end());
    const TickClock clock(file.clocks, rates[file.header.clock]);
    if (!clock.known()) {
      timeline.problems.push_back(file.path + ": it does not say how its clock runs: it is left out");
      continue;
    }
    Group& group = groups[file.header.communicator];
    group.name = file.name;
    group.id = file.header.communicator;
    group.nranks = file.header.nranks;
    group.least_step_call = file.header.least_step_call;
    if (group.find(file.header.rank)) {
      timeline.problems.push_back(file.path + ": a second file of that rank: it is left out");
      continue;
    }
    group.ranks.push_back(rank_of(file, clock, alignment.shift.at(file.header.clock)));
  }
  for (auto& [id, group] : groups) timeline.groups.push_back(std::move(group));
  normalise(timeline);
  return timeline;
}

Timeline read_folder(const std::string& folder, const std::string& only) {
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  if (error) throw std::runtime_error(folder + ": " + error.message());
  std::vector<TraceFile> files;
  std::vector<std::string> problems, paths;
  for (const auto& entry : entries)
    if (entry.path().extension() == TUTTI_TRACE_SUFFIX) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) try {
      files.push_back(read_trace(path));
    } catch (const std::exception& problem) {
      problems.push_back(problem.what());
    }
  if (files.empty()) {
    std::string text =
        folder + ": no file *" TUTTI_TRACE_SUFFIX " that can be used; run the job with TUTTI_TRACE=" + folder;
    for (const std::string& problem : problems) text += "\n  " + problem;
    throw std::runtime_error(text);
  }
  Timeline timeline = merge(std::move(files), only);
  timeline.problems.insert(timeline.problems.begin(), problems.begin(), problems.end());
  if (timeline.groups.empty()) throw std::runtime_error(folder + ": no communicator is called \"" + only + "\"");
  return timeline;
}

}  // namespace trace
