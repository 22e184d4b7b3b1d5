// SPDX-License-Identifier: Apache-2.0
//
// Forked children, and processes that are stopped for a while.
#pragma once

#include <sys/types.h>
#include <tutti/tutti.h>

#include <string>
#include <vector>

namespace tutti::conformance::fuzz {

// Forks; the child never returns. `what` says how it ends:
//   exit   frees the parent's requests, destroys its communicators and calls exit, as static objects do
//   calls  the same after calls that must be refused
//   quick  ends at once
//   hold   ends after `ms`: only its descriptors matter
//   exec   becomes another program
pid_t start_child(const std::string& what, uint32_t ms, const std::vector<tutti_request*>& requests,
                  const std::vector<tutti_comm*>& comms);

// Waits for its end: "" when it was a good one; otherwise how it ended.
std::string end_of_child(pid_t child);

// Stops this process by a signal; it goes on after `ms`.
void stop_for(uint32_t ms);

}  // namespace tutti::conformance::fuzz
