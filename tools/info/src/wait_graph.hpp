// SPDX-License-Identifier: Apache-2.0
//
// Who waits for whom across communicators. A rank that has not entered a call of one communicator may wait in a call of
// another one. So the waits of all communicators are joined by process, and where they form a cycle no rank is to
// blame: their order is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "hang_verdict.hpp"

namespace info {

struct WaitCycle {
  std::string text;
  std::map<size_t, std::vector<uint32_t>> ranks;  // of each communicator in it, by its index
};

// A pure function of the views. Each cycle names a communicator that the ones before do not. A communicator whose
// verdict says more (a rank is dead, the calls differ) has no part.
std::vector<WaitCycle> find_cycles(const std::vector<JudgedCommunicator>& communicators);

// Communicators with a process in common belong to one job. A number for each, in the order of their first.
std::vector<size_t> jobs_of(const std::vector<JudgedCommunicator>& communicators);

}  // namespace info
