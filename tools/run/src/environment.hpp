// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <vector>

#include "job.hpp"

namespace tuttirun {

// The rendezvous of a job's ranks, and their common settings.
struct MeetingPlace {
  std::string address;
  uint16_t port = 0;
  std::string secret;  // hexadecimal digits
  std::string job;
  int holder = -1;  // a socket that keeps others off the port, or -1
};

// A free port of this machine, bound but not listening: nobody is given it by chance, and rank 0, which listens with
// SO_REUSEADDR, gets it. In network namespaces ports are all free. Throws std::runtime_error.
MeetingPlace make_meeting_place(bool in_namespaces);

// tuttirun's environment with what tells rank and place, and the job's own variables last. Variables of other
// launchers that would speak louder are left out.
std::vector<std::string> environment_of(const Job& job, const MeetingPlace& place, uint32_t rank);

}  // namespace tuttirun
