// SPDX-License-Identifier: Apache-2.0
//
// The traces of a job, merged: all times in nanoseconds of one clock, from the job's first record on.
//
//   one host      CLOCK_MONOTONIC is the same for all ranks; each rank's ticks are related to it every 50 ms
//   more hosts    the ranks have told each other the time when the communicator was made: stamp s of rank j has reached
//                 rank i before r, so clock j minus clock i is at least s - r, and likewise at most. The middle is
//                 used; half of the distance between the bounds is how exact it is.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trace_file.hpp"

namespace trace {

struct Span {
  int64_t begin = 0, end = 0;  // ns
  int64_t length() const { return end - begin; }
};

struct Call : Span {
  uint64_t sequence = 0, count = 0, tag = 0;
  uint32_t collective = 0, dtype = 0, op = 0, root = 0, slices = 0;
  bool in_place = false;
  int32_t status = 0;
  std::string algorithm, transports;
  uint64_t begin_ticks = 0, end_ticks = 0;  // of the process's counter
};

struct Step : Span {
  uint32_t peer = UINT32_MAX;
  uint64_t sequence = 0, bytes = 0;
  uint32_t lane = 0, step = 0, slice = 0, kind = 0, flags = 0;
  std::string transport;
};

struct Transfer : Span {
  uint64_t number = 0, bytes = 0;
  uint32_t peer = 0, tag = 0;
  bool sending = false;
  int32_t status = 0;
  uint64_t begin_ticks = 0, end_ticks = 0;
};

struct RankTrace {
  uint32_t rank = 0;
  std::string host, program;
  uint32_t pid = 0;
  std::vector<Call> calls;  // each by begin
  std::vector<Step> steps, waits;
  std::vector<Transfer> transfers;
  std::vector<tutti_trace_link> links;
};

// The communicator of some ranks.
struct Group {
  std::string name;
  uint64_t id = 0;
  uint32_t nranks = 0;
  uint64_t least_step_call = 0;
  std::vector<RankTrace> ranks;  // by rank; those whose file is absent are not there
  const RankTrace* find(uint32_t rank) const;
};

struct Timeline {
  std::vector<Group> groups;  // those with the most time in calls first
  int64_t end = 0;            // of the last span
  size_t clocks = 1;          // hosts whose clocks differ
  int64_t inexact_ns = 0;     // how far times of two hosts may be off at most; -1: not known
  std::vector<std::string> problems;
};

// From files, of which some may be damaged. `only`: communicators of that name; "": all.
Timeline merge(std::vector<TraceFile> files, const std::string& only);
// All trace files of a folder. Throws std::runtime_error when there is none that can be used.
Timeline read_folder(const std::string& folder, const std::string& only);

}  // namespace trace
