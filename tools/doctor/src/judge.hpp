// SPDX-License-Identifier: Apache-2.0
//
// From facts to findings: pure functions, so tests need no broken machine.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "facts.hpp"

namespace doctor {

enum class Severity { error, warning, note };
NLOHMANN_JSON_SERIALIZE_ENUM(Severity,
                             {{Severity::error, "error"}, {Severity::warning, "warning"}, {Severity::note, "note"}})

struct Finding {
  Severity severity = Severity::note;
  std::string name;             // "cpu_quota": stable, for scripts
  std::string seen;             // with the values that were read
  std::string cost;             // the effect on a job
  std::string mend;             // a command, where one exists
  std::vector<uint32_t> ranks;  // that see it; a judgement of one rank leaves it empty
  std::string about;            // ranks of a host that see it of this see one thing, though its figures change
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Finding, severity, name, seen, cost, mend, ranks)

using Findings = std::vector<Finding>;

// One try to reach another host.
struct Link {
  uint32_t from = 0, to = 0;  // ranks
  std::string address;        // "10.0.0.2:40211"
  std::string problem;        // "": reached
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Link, from, to, address, problem)

// So much time all messages of the check of pairs have together (pairs.hpp), connecting included: a healthy job needs
// milliseconds, one with addresses that do not answer some seconds.
constexpr std::chrono::seconds pair_limit{10};

// The messages that one host's first rank has received from another's (pairs.hpp).
struct Pair {
  static constexpr uint64_t small_bytes = 8, large_bytes = 128 << 10;  // larger than any packet

  uint32_t from = 0, to = 0;  // ranks
  std::string transport;      // "tcp"; "": not known
  uint64_t arrived = 0;       // bytes of the longest message that came; 0: none
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Pair, from, to, transport, arrived)

// A rank's clock against rank 0's.
struct Clock {
  uint32_t rank = 0;
  double ahead = 0, uncertainty = 0;  // seconds
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Clock, rank, ahead, uncertainty)

struct Job {
  std::vector<Facts> ranks;  // in order; a rank that met nobody has itself alone
  std::vector<Link> links;
  std::vector<Clock> clocks;
  std::vector<Pair> pairs;
  std::string pair_failure;  // why the check of pairs ended early; "": it did not
  std::string topology;      // text
  // The transports that pairs were refused when they connected: "  0 - 2: tcp serves, ib was refused: ...".
  std::vector<std::string> refusals;
  std::string failure;       // why the ranks did not meet; "": they did
};

// By one rank of itself and its host.
Findings judge_rank(const Facts& facts);
// Cores, memory and tasks: the parts of judge_rank about what the host lets this process use ...
void judge_limits(const Facts& facts, Findings& out);
// ... and about adapters, interfaces and drivers.
void judge_devices(const Facts& facts, Findings& out);
// Between ranks.
Findings judge_job(const Job& job);
// Everything: equal findings of several ranks become one that names them; errors first.
Findings judge(const Job& job);

std::string bytes_text(uint64_t bytes);
// {0,1,2,5} -> "0-2,5"
std::string list_text(const std::vector<uint32_t>& numbers);

}  // namespace doctor
