// SPDX-License-Identifier: Apache-2.0
//
// One rank's part in one call: its buffers and the result that must come out.
#pragma once

#include <tutti/tutti.h>

#include <memory>
#include <string>
#include <vector>

#include "fuzz/program.hpp"
#include "matrix/buffers.hpp"

namespace tutti::conformance::fuzz {

class Work {
 public:
  virtual ~Work() = default;
  // request as in tutti.h.
  virtual tutti_status start(tutti_comm* comm, tutti_request** request) = 0;
  // After its end: "" when all is right; otherwise what is wrong.
  virtual std::string judge() const = 0;
};

// A rank's part in an event. `rank` and `members` as in the communicator; a message's rank `sends` or receives.
std::unique_ptr<Work> make_work(const Program& program, const Event& event, const std::vector<uint32_t>& members,
                                uint32_t rank, bool sends);

}  // namespace tutti::conformance::fuzz
