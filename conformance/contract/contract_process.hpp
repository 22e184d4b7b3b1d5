// SPDX-License-Identifier: Apache-2.0
//
// A contract case in a process of its own: this program, started again with a hidden argument, which loads nothing but
// the plugin under test.
#pragma once

#include <string>
#include <vector>

#include "case.hpp"
#include "contract_case.hpp"
#include "test_host.hpp"

namespace tutti::conformance::contract {

// The hidden first argument.
constexpr const char* process_argument = "--contract-case";
// The rest of that command line; the exit status.
int run_process(int argc, char** argv);

// The subject of a test: a file, and the name of a transport, algorithm or device in it.
struct Target {
  Subject subject = Subject::transport;
  std::string path, name;
  std::vector<Companion> companions;     // plugins that it may wrap
  std::vector<std::string> environment;  // "NAME=VALUE" more than this process's
};

// Runs a case and waits for its outcome, at most deadline_ms; then its processes are killed (Timeout).
Outcome run_contract_case(const Target& target, const ContractCase& one, uint64_t seed, double patience,
                          uint32_t deadline_ms);

// Every plugin found, in a process that is then gone: nothing is loaded here. {path, id, transports, algorithms,
// devices, meetings, rmas}.
struct Found {
  std::string path, id;
  std::vector<std::string> transports, algorithms, devices, meetings, rmas;
};
std::vector<Found> find_plugins();  // of this process's registry

}  // namespace tutti::conformance::contract
