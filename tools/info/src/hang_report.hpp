// SPDX-License-Identifier: Apache-2.0
//
// tutti-info --hang: finds the flight records that were asked for, looks at them twice, and tells what they mean.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hang_verdict.hpp"

namespace info {

struct HangReport {
  struct Entry : JudgedCommunicator {
    size_t job = 0;      // communicators with a process in common belong to one
    bool ended = false;  // none of its processes lives
  };
  std::vector<Entry> communicators;  // job by job, trouble first; those that have ended come last
  std::vector<std::string> folders;  // that were searched
  std::vector<uint64_t> pids;        // whose communicators were wanted; none: all
  std::vector<std::string> refused;  // "PATH: why"
  size_t old = 0;                    // communicators of dead processes only that are not shown

  bool trouble() const;
};

// Joins the waits of all communicators, so that those of a cycle have one verdict, and puts trouble first. A pure
// function.
std::vector<HangReport::Entry> in_order(std::vector<JudgedCommunicator> judged);

// Each of `targets` is a process id, whose communicators are wanted, or a folder. None: this user's usual folders.
// `all`: also communicators whose processes are all dead, beside those that live. Throws std::runtime_error when a
// target does not exist.
HangReport find_hangs(const std::vector<std::string>& targets, bool all);

std::string hang_text(const HangReport& report);
std::string hang_json(const HangReport& report);

}  // namespace info
