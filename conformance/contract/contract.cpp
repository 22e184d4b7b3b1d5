// SPDX-License-Identifier: Apache-2.0
#include "contract.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "contract_process.hpp"
#include "nccl_network.hpp"

namespace tutti::conformance {
namespace {

using namespace contract;

// Cases that a level leaves out: smoke takes what is quick, quick all but the long ones.
bool in_level(const ContractCase& one, Level level) {
  switch (level) {
    case Level::smoke:
      return one.cost_ms <= 40;
    case Level::quick:
      return one.cost_ms <= 550;
    case Level::standard:
      return one.memory == 0;
    default:
      return true;
  }
}

bool wanted(const std::vector<std::string>& names, const std::string& name) {
  return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

Case make_case(const ContractCase& one, const Target& target, const std::string& id) {
  Case made;
  made.id = id;
  for (const char* clause : one.clauses) made.clauses.emplace_back(clause);
  for (const char* clause : common_clauses(target.subject))
    if (std::find(made.clauses.begin(), made.clauses.end(), clause) == made.clauses.end())
      made.clauses.emplace_back(clause);
  made.estimate_ms = one.cost_ms + 15;
  made.deadline_ms = 60'000 + 20 * one.cost_ms;
  made.needs.free_memory = one.memory;
  made.visits = one.visits;
  made.axes = {{"subject", subject_name(target.subject)}, {"contract", one.name}};
  if (target.subject == Subject::nccl)
    made.axes.emplace_back("transport", "nccl:" + target.name);
  else if (target.subject != Subject::plugin)
    made.axes.emplace_back(subject_name(target.subject), target.name);
  const uint32_t deadline = made.deadline_ms - 2000;
  made.run = [&one, target, deadline](const Place& place) {
    place.attestation.plugins.push_back(target.name);
    return run_contract_case(target, one, place.seed, 8 * place.patience,
                             static_cast<uint32_t>(deadline * place.patience));
  };
  return made;
}

void list(const Selection& selection, std::vector<Case>& cases) {
  const std::vector<Found> found = find_plugins();
  std::vector<Companion> companions;
  for (const Found& plugin : found) companions.push_back({plugin.id, plugin.path});
  // Without names everything is asked for; a name asks for that transport, algorithm or device alone.
  const bool filtered = !selection.transports.empty() || !selection.algorithms.empty() || !selection.devices.empty();
  if (!selection.collectives.empty() || !selection.types.empty() || !selection.ranks.empty())
    return;  // no such axes here
  const auto add_target = [&](const Target& target) {
    for (const ContractCase& one : contract_cases(target.subject))
      if (in_level(one, selection.level))
        cases.push_back(make_case(
            one, target, fmt::format("contract/{}/{}/{}", subject_name(target.subject), target.name, one.name)));
  };
  const auto add = [&](const Found& plugin, Subject subject, const std::string& name) {
    // A network plugin of NCCL by its own table, before what stands over it.
    if (subject == Subject::transport && name.starts_with(nccl_prefix))
      add_target({Subject::nccl, nccl_network_file(), name.substr(std::strlen(nccl_prefix)), {}, {}});
    Target target{subject, plugin.path, name, {}, {}};
    for (const Companion& companion : companions)
      if (companion.id != plugin.id) target.companions.push_back(companion);
    add_target(target);
  };
  for (const Found& plugin : found) {
    const auto has = [](const std::vector<std::string>& names, const std::vector<std::string>& chosen) {
      return std::any_of(names.begin(), names.end(),
                         [&](const std::string& name) { return !chosen.empty() && wanted(chosen, name); });
    };
    if (!filtered || has(plugin.transports, selection.transports) || has(plugin.algorithms, selection.algorithms) ||
        has(plugin.devices, selection.devices))
      add(plugin, Subject::plugin, plugin.id);
    const auto add_all = [&](Subject subject, const std::vector<std::string>& names,
                             const std::vector<std::string>& chosen) {
      for (const std::string& name : names)
        if (!filtered || (!chosen.empty() && wanted(chosen, name))) add(plugin, subject, name);
    };
    add_all(Subject::transport, plugin.transports, selection.transports);
    add_all(Subject::algorithm, plugin.algorithms, selection.algorithms);
    add_all(Subject::device, plugin.devices, selection.devices);
    if (!filtered)
      for (const auto& [subject, names] : {std::pair{Subject::meeting, &plugin.meetings}, {Subject::rma, &plugin.rmas}})
        for (const std::string& name : *names) add(plugin, subject, name);
  }
}

}  // namespace

Suite contract_suite() {
  return {"contract", "plugins alone, clause by clause of docs/contract.md", list, nullptr};
}

}  // namespace tutti::conformance
