// SPDX-License-Identifier: Apache-2.0
//
// The findings of a run: a result for every requested case, and the environment. This is all that report writers see.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <string_view>

#include "case.hpp"

namespace tutti::conformance {

struct Result {
  std::string id, kind;
  std::vector<std::string> clauses;
  bool must_pass = false;
  std::vector<std::pair<std::string, std::string>> axes;
  Outcome outcome;
  double seconds = 0;
  uint64_t seed = 0;
  std::string reproduce;  // a command line that runs this case alone, with the same data
  Attestation attestation;
  std::vector<Magnitude> visits;
};

// A coordinate of the result's case; "" if it has none of that name.
std::string axis_of(const Result& result, std::string_view name);

struct PluginFact {
  std::string id, version, vendor, path;
  std::string sha256;  // of the file, hexadecimal; "" for plugins linked statically
  std::vector<std::string> transports, algorithms;
  std::string refused;  // why it was not loaded; "" when it was
  std::vector<std::string> devices;
};

// The environment: everything by which somebody else could make the same run.
struct Manifest {
  std::string suite_version, library_version, library_sha256;
  std::string started;       // UTC, ISO 8601
  double seconds = 0;        // the whole run
  std::string command_line;  // quoted for a shell
  std::string level;
  uint64_t seed = 0;
  std::vector<std::string> transports, algorithms;  // what the run was about; empty: everything that is found
  std::vector<std::string> devices;                 // likewise
  std::vector<std::string> cases;                   // picked by hand: the run says nothing of a whole plugin
  std::string share;                                // "2/8": likewise; "": all
  std::vector<PluginFact> plugins;
  // "kernel", "cpu", "cores", "memory", "git" (of the folder in which it runs, when there is one) ...
  std::vector<std::pair<std::string, std::string>> machine;
  std::vector<std::pair<std::string, std::string>> interfaces;  // network interface -> driver, speed, firmware
  std::vector<std::pair<std::string, std::string>> settings;    // TUTTI_* of the environment
};

struct Counts {
  uint64_t passed = 0, warnings = 0, failed = 0, crashed = 0, timed_out = 0, not_supported = 0, not_run = 0;
  uint64_t must_pass_missing = 0;  // must-pass cases that are neither passed nor bad
};

// Cases that may fail, why, and until when.
struct Waiver {
  std::string cases;    // a pattern of ids
  std::string reason;   // for those who read the report
  std::string link;     // where the matter is followed
  std::string expires;  // the last day, YYYY-MM-DD: it does not count afterwards
};

struct Run {
  Manifest manifest;
  std::vector<Result> results;
  std::vector<Waiver> waivers;

  Counts counts() const;
};

}  // namespace tutti::conformance
