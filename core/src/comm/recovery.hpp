// SPDX-License-Identifier: Apache-2.0
//
// Recovery from a failure: a new communicator of the ranks that live, and of newcomers. Collective over the ranks that
// live.
#pragma once

#include <tutti/tutti.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/membership.hpp"
#include "comm/configuration.hpp"

namespace tutti::core {

class ProgressEngine;
struct Foundation;

class Recovery {
 public:
  explicit Recovery(ProgressEngine& engine);

  // timeout_ns 0: the connect timeout. All throw Failure.
  std::unique_ptr<tutti_comm> shrink(uint64_t timeout_ns);
  std::string invite(uint64_t timeout_ns);
  std::unique_ptr<tutti_comm> grow(const std::string& id, uint32_t newcomers, uint64_t timeout_ns);
  // Any thread.
  std::vector<uint32_t> lost_ranks() const;

 private:
  Membership& membership(const char* call);
  std::chrono::nanoseconds timeout(uint64_t given_ns) const;
  Configuration heritage(const Roster& roster, uint32_t newcomers) const;
  std::unique_ptr<tutti_comm> make_next(Membership& members, const Roster& roster, uint32_t newcomers,
                                        uint64_t timeout_ns, std::string* why);

  ProgressEngine& engine_;
  Foundation& base_;
  std::optional<Membership> membership_;  // once it was needed
  Roster invitation_;                     // of the last invite
};

}  // namespace tutti::core
