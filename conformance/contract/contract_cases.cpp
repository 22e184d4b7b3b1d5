// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "contract_case.hpp"

namespace tutti::conformance::contract {

const char* subject_name(Subject subject) {
  constexpr const char* names[] = {"plugin", "transport", "algorithm", "device", "meeting", "rma", "nccl"};
  return names[static_cast<size_t>(subject)];
}

const std::vector<const char*>& common_clauses(Subject subject) {
  static const std::vector<const char*> none,
      of_transports{"E-5", "E-6", "E-7", "E-10", "T-3", "T-9", "T-11", "T-12", "T-14", "T-16", "T-18", "T-26", "T-27"},
      of_devices{"E-5", "E-6", "E-7", "X-11"},
      of_networks{"nccl.table",        "nccl.init",         "nccl.listen",           "nccl.handle",     "nccl.connect",
                  "nccl.never-blocks", "nccl.registration", "nccl.null-request", "nccl.request-identity",
                  "nccl.completion",   "nccl.close"};
  switch (subject) {
    case Subject::transport:
      return of_transports;
    case Subject::device:
      return of_devices;
    case Subject::nccl:
      return of_networks;
    default:
      return none;
  }
}

const std::vector<ContractCase>& contract_cases(Subject subject) {
  const auto sorted = [](std::initializer_list<std::vector<ContractCase> (*)()> parts) {
    std::vector<ContractCase> all;
    for (const auto part : parts)
      for (ContractCase& one : part()) all.push_back(std::move(one));
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.cost_ms < b.cost_ms; });
    return all;
  };
  static const std::vector<ContractCase> plugin = sorted({plugin_cases});
  static const std::vector<ContractCase> transport =
      sorted({description_cases, connection_cases, transfer_cases, flow_cases, control_cases, failure_cases,
              memory_cases, device_memory_cases, lifetime_cases, process_cases, view_cases, sleep_cases, rails_cases,
              mapped_cases, magnitude_cases, walk_cases, steady_cases, settings_cases});
  static const std::vector<ContractCase> algorithm = sorted({algorithm_cases});
  static const std::vector<ContractCase> device = sorted({device_cases, export_cases, executor_cases, fused_cases});
  static const std::vector<ContractCase> nccl = sorted({nccl_setup_cases, nccl_transfer_cases, nccl_edge_cases});
  static const std::vector<ContractCase> meeting = sorted({meeting_cases}), rma = sorted({rma_cases});
  switch (subject) {
    case Subject::plugin:
      return plugin;
    case Subject::transport:
      return transport;
    case Subject::algorithm:
      return algorithm;
    case Subject::meeting:
      return meeting;
    case Subject::rma:
      return rma;
    case Subject::nccl:
      return nccl;
    default:
      return device;
  }
}

}  // namespace tutti::conformance::contract
