// SPDX-License-Identifier: Apache-2.0
//
// One question about a plugin's contract. A case runs in a process of its own, with the plugin loaded by itself.
#pragma once

#include <string>
#include <vector>

#include "case.hpp"
#include "stage.hpp"

namespace tutti::conformance::contract {

enum class Subject { plugin, transport, algorithm, device, meeting, rma, nccl };
constexpr Subject all_subjects[] = {Subject::plugin, Subject::transport, Subject::algorithm,
                                    Subject::device, Subject::meeting,   Subject::rma,
                                    Subject::nccl};
const char* subject_name(Subject subject);

struct ContractCase {
  const char* name;   // "fifo-every-interleaving"
  const char* about;  // one sentence
  // The clauses that it can find broken. Besides, all cases of a subject name its common_clauses().
  std::vector<const char*> clauses;
  uint32_t cost_ms;           // on an idle core
  void (*run)(Bench& bench);  // returns: passed. Throws Broken, NotOffered, CannotRun
  uint64_t memory = 0;        // bytes that must be free
  std::vector<Magnitude> visits = {};
};

// Cheapest first. E-1 to E-4 hold for all of a subject's cases, whatever they name.
const std::vector<ContractCase>& contract_cases(Subject subject);
// The clauses that are checked in every call into a transport or device.
const std::vector<const char*>& common_clauses(Subject subject);

// Parts of contract_cases(), one for each file.
std::vector<ContractCase> description_cases();
std::vector<ContractCase> connection_cases();
std::vector<ContractCase> transfer_cases();
std::vector<ContractCase> flow_cases();
std::vector<ContractCase> control_cases();
std::vector<ContractCase> failure_cases();
std::vector<ContractCase> memory_cases();
std::vector<ContractCase> device_memory_cases();
std::vector<ContractCase> lifetime_cases();
std::vector<ContractCase> process_cases();
std::vector<ContractCase> view_cases();
std::vector<ContractCase> sleep_cases();
std::vector<ContractCase> rails_cases();
std::vector<ContractCase> walk_cases();
std::vector<ContractCase> steady_cases();
std::vector<ContractCase> settings_cases();
std::vector<ContractCase> magnitude_cases();
std::vector<ContractCase> mapped_cases();
std::vector<ContractCase> plugin_cases();
std::vector<ContractCase> algorithm_cases();
std::vector<ContractCase> device_cases();
std::vector<ContractCase> export_cases();
std::vector<ContractCase> executor_cases();
std::vector<ContractCase> fused_cases();
std::vector<ContractCase> meeting_cases();
std::vector<ContractCase> rma_cases();
std::vector<ContractCase> nccl_setup_cases();
std::vector<ContractCase> nccl_transfer_cases();
std::vector<ContractCase> nccl_edge_cases();

}  // namespace tutti::conformance::contract
