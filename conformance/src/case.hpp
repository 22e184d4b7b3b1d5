// SPDX-License-Identifier: Apache-2.0
//
// A case: one question with one answer. It is a value; running it happens in worker processes (runner.hpp).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "verdict.hpp"

namespace tutti::conformance {

// Bytes that one rank moved with one peer while the case ran, counted by the core.
struct Traffic {
  std::string transport;
  uint32_t rank = 0;
  uint32_t peer = 0;
  uint64_t sent_bytes = 0;
  uint64_t received_bytes = 0;
};

// Bytes that one rank moved over one rail (tutti/plugin/rails.h), counted by its transport.
struct RailTraffic {
  std::string transport;
  std::string rail;
  uint32_t rank = 0;
  uint64_t sent_bytes = 0;
  uint64_t received_bytes = 0;
};

// The algorithms and transports that did the work of a case.
struct Attestation {
  std::string algorithm;   // the one that the core ran; "" where the case runs none
  std::string device;      // whose memory and streams the core used, as it says; "": the host's
  uint64_t plan_hash = 0;  // of all ranks' plans, equal on all ranks; 0: none
  std::vector<Traffic> traffic;
  std::vector<RailTraffic> rails;    // that moved something, where the transport has rails
  std::vector<std::string> plugins;  // ids of those that took part; the manifest has version and SHA-256 of each
};

// One of the processes of a case's job.
struct Place {
  uint32_t rank = 0;    // this process ...
  uint32_t nranks = 1;  // ... of so many
  uint64_t seed = 0;    // of this case: a function of the run's seed and the case's id; the same in all its processes
  std::string folder;   // an empty folder that belongs to the job: a meeting place ("file:" + folder), files
  // State that the cases of one job share in this process (a communicator). Empty when the process is new; destroyed,
  // after the last case, before the process ends.
  std::shared_ptr<void>& shared;
  // Filled by the case, sent along with the outcome.
  Attestation& attestation;
  double patience = 1;  // of the run: every time limit is so many times as long
};

// Requirements on the machine. Without them the case is not run, and the reason is reported.
struct Needs {
  uint64_t free_memory = 0;  // bytes, all processes together
  bool root = false;
};

// How large a number a case visits, of a kind.
struct Magnitude {
  const char* what;  // one of magnitude
  uint64_t most;
};
namespace magnitude {
inline constexpr const char* ranks = "ranks";
inline constexpr const char* lanes = "lanes";
inline constexpr const char* messages = "messages of a lane";
inline constexpr const char* lane_bytes = "bytes of a lane";
inline constexpr const char* buffer_bytes = "bytes of one buffer";
inline constexpr const char* control_messages = "control messages of a link";
inline constexpr const char* registrations = "registrations";
inline constexpr const char* sources = "sources of a REDUCE";
inline constexpr const char* command_bytes = "bytes of a command";
}  // namespace magnitude

struct Case {
  // Unique, made of parts separated by '/': the suite's name first, as in
  // matrix/all_reduce/ring/shm/float32/sum/n4/c1000/root0/out/heap/a64. It says everything about the case: its suite's
  // find() makes the case from it again, in another process.
  std::string id;
  std::vector<std::string> clauses;  // clauses of docs/plugin-guide.md that it checks: "T-3", "A-7"
  bool must_pass = false;            // NotSupported is not conforming here
  uint32_t estimate_ms = 10;         // on two cores
  uint32_t deadline_ms = 30'000;     // then its processes are killed: Timeout
  Needs needs;

  uint32_t processes = 1;
  // The pretended host of each process; empty: all on one. With --netns they are network namespaces.
  std::vector<uint32_t> hosts;
  // Cases of equal `job` (and equal `processes`) run one after another in the same processes, as long as all is well;
  // after a fail, crash or timeout the rest goes on in new ones. Empty: processes of its own.
  std::string job;
  // "NAME=VALUE" for process `rank` of the job; a name without '=' is removed. nullptr: nothing. Must be the same for
  // all cases of a job.
  std::function<std::vector<std::string>(uint32_t rank)> environment;

  // Runs in every process of the job at once. The case's outcome is the worst of its processes'. An exception counts as
  // a Fail with its text.
  std::function<Outcome(const Place&)> run;

  // For the report: the case's coordinates, {"collective", "all_reduce"}, {"transport", "shm"} ...
  std::vector<std::pair<std::string, std::string>> axes;

  std::vector<Magnitude> visits;

  // The suite: the id's first part.
  std::string kind() const { return id.substr(0, id.find('/')); }
};

}  // namespace tutti::conformance
