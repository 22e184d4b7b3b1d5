// SPDX-License-Identifier: Apache-2.0
//
// The transports that carried the bytes of a cell at one rank, as counted by the core and never by a plugin. Which of
// its rails a transport used only the transport knows: that is told, and judged by nobody.
#pragma once

#include <map>
#include <string>
#include <tutti/tutti.hpp>
#include <utility>

#include "case.hpp"
#include "matrix/cell.hpp"

namespace tutti::conformance {

class Witness {
 public:
  // Takes the counters before the cell's calls.
  Witness(const Cell& cell, const Mix& mix, const Communicator& comm, uint32_t rank);

  // Slices of the plan that served the latest call.
  uint64_t slices() const;
  // After the calls: fills the attestation and says what was not as asked: another algorithm, another schedule than the
  // one that is proved, another transport, no bytes where there must be some. "" when all is as asked.
  std::string judge(Attestation& attestation) const;

 private:
  using Bytes = std::pair<uint64_t, uint64_t>;                                // sent, received
  using Counters = std::map<std::pair<std::string, uint32_t>, Bytes>;         // by transport and peer
  using RailCounters = std::map<std::pair<std::string, std::string>, Bytes>;  // by transport and rail
  static Counters read(const Communicator& comm);
  static RailCounters read_rails(const Communicator& comm);
  Counters settled() const;
  tutti_plan_facts plan() const;
  std::string judge_plan(Attestation& attestation) const;
  std::string judge_device(Attestation& attestation) const;
  std::string judge_traffic(Attestation& attestation) const;
  void tell_rails(Attestation& attestation) const;

  const Cell& cell_;
  const Mix& mix_;
  const Communicator& comm_;
  uint32_t rank_;
  Counters before_;
  RailCounters rails_before_;
};

}  // namespace tutti::conformance
