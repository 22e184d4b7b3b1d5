// SPDX-License-Identifier: Apache-2.0
//
// Do large messages arrive? Two hosts may exchange small ones for hours, while a switch between them drops every large
// packet. So the first rank of each host sends the first rank of each other one a small and a large message, over the
// transport that a job would use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tutti/tutti.hpp>
#include <vector>

#include "judge.hpp"

namespace doctor {

// As tutti_comm_topology has it; "": it cannot be told.
std::string topology_text(const tutti::Communicator& comm);

class PairCheck {
 public:
  // Collective over all ranks of `world`. `first`: the first rank of each host, ascending. The check has a communicator
  // of its own: a connection on which a large packet was lost carries nothing more.
  PairCheck(const tutti::Communicator& world, const std::vector<uint32_t>& first);
  // Aborts what is still under way.
  ~PairCheck();
  PairCheck(const PairCheck&) = delete;
  PairCheck& operator=(const PairCheck&) = delete;

  // At the ranks of `first`: sends and receives for at most pair_limit, and returns the arrivals from each other host.
  // Messages that have not come stay under way, so the check is to be destroyed when all ranks have their results.
  std::vector<Pair> run();
  // Where all ranks know that all messages have come: nothing is aborted. Throws tutti::Error.
  void end();
  // The transports that pairs of this rank were refused there, by ranks of `world` (Job::refusals).
  std::vector<std::string> refusals() const;
  // Why the check ended early: the communicator broke. "": it did not.
  const std::string& failure() const { return failure_; }

 private:
  struct Exchange;

  bool ended_ = false;
  uint32_t rank_;
  std::vector<uint32_t> first_;
  std::optional<tutti::Communicator> hosts_;
  std::vector<uint8_t> sent_;
  std::vector<Exchange> exchanges_;
  std::string failure_;
};

}  // namespace doctor
