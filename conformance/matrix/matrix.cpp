// SPDX-License-Identifier: Apache-2.0
#include "matrix/matrix.hpp"

#include <tutti/registry.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "matrix/cells.hpp"
#include "matrix/perform.hpp"

namespace tutti::conformance {
namespace {

// Milliseconds on two cores: the processes take turns, the data are made and checked element by element.
uint32_t estimate_of(const Cell& cell) {
  const uint64_t n = cell.operation.nranks;
  const uint64_t elements = cell.bytes() / cell.type->bytes * (reduces(cell.operation.collective) ? n : 1);
  return static_cast<uint32_t>(2 + n * n / 8 + elements / 50'000);
}

// What a collective with numbers shows of the plugins below it.
std::vector<std::string> clauses_of(const Cell& cell) {
  if (cell.operation.collective == TUTTI_BARRIER) return {"T-25", "A-11"};
  std::vector<std::string> clauses{"T-13", "T-15", "T-16", "T-17", "T-18", "A-12", "A-14"};
  if (cell.memory != Memory::heap) clauses.emplace_back("T-35");
  return clauses;
}

// Ranks that are threads of this process run side by side.
Outcome perform_by_threads(const Cell& cell, const Mix& mix, Members& members, const Place& place) {
  std::mutex mutex;
  Outcome worst;
  std::vector<std::thread> threads;
  for (const uint32_t rank : members.local())
    threads.emplace_back([&, rank] {
      Attestation attestation;
      Outcome outcome;
      try {
        outcome = perform(cell, mix, members, rank, place.seed, attestation);
      } catch (const std::exception& e) {
        outcome = Outcome::fail(e.what());
      }
      const std::lock_guard lock(mutex);
      Attestation& all = place.attestation;
      all.traffic.insert(all.traffic.end(), attestation.traffic.begin(), attestation.traffic.end());
      if (!attestation.algorithm.empty()) {
        all.algorithm = attestation.algorithm;
        all.plan_hash = attestation.plan_hash;
        all.plugins = attestation.plugins;
      }
      if (outcome.verdict > worst.verdict) {
        worst = outcome;
        worst.message = "rank " + std::to_string(rank) + ": " + worst.message;
      }
    });
  for (std::thread& thread : threads) thread.join();
  return worst;
}

Outcome run_cell(const Cell& cell, const Mix& mix, const Place& place) {
  if (!mix.unusable.empty()) return Outcome::fail(mix.unusable);
  if (!place.shared) place.shared = std::make_shared<Members>(place.folder, place.rank, mix, cell.operation.nranks);
  auto& members = *static_cast<Members*>(place.shared.get());
  if (mix.threads) return perform_by_threads(cell, mix, members, place);
  return perform(cell, mix, members, place.rank, place.seed, place.attestation);
}

Case case_of(const Cell& cell, const Mix& mix) {
  Case one;
  one.id = cell.id();
  one.clauses = clauses_of(cell);
  one.must_pass = true;
  one.estimate_ms = estimate_of(cell);
  one.deadline_ms = static_cast<uint32_t>(60'000 + cell.bytes() / 5'000);
  one.needs.free_memory = cell.bytes() * 3 / 2 + (256 << 20);
  one.processes = mix.threads ? 1 : cell.operation.nranks;
  one.job = "matrix/" + mix.name + "/n" + std::to_string(cell.operation.nranks);
  const std::vector<uint32_t> hosts = mix.hosts(cell.operation.nranks);
  if (mix.transports.size() > 1) one.hosts = hosts;
  if (mix.transports.size() > 1)
    one.environment = [hosts](uint32_t rank) {
      return std::vector<std::string>{"TUTTI_HOST_ID=conform-" + std::to_string(hosts[rank])};
    };
  one.run = [cell, mix](const Place& place) { return run_cell(cell, mix, place); };
  one.axes = {{"collective", collective_name(cell.operation.collective)},
              {"algorithm", cell.algorithm},
              {"transport", cell.mix},
              {"type", cell.type->name},
              {"operator", cell.op ? op_name(cell.op) : "none"},
              {"ranks", std::to_string(cell.operation.nranks)},
              {"count", std::to_string(cell.operation.count)},
              {"root", std::to_string(cell.operation.root)},
              {"place", name_of(cell.place)},
              {"memory", name_of(cell.memory)},
              {"alignment", name_of(cell.alignment)},
              {"calls", name_of(cell.calls)}};
  return one;
}

// A transport that says that it cannot serve on this machine: told, not passed over.
Case unusable_case(const Mix& mix) {
  Case one;
  one.id = "matrix/transport/" + mix.name;
  one.estimate_ms = 0;
  one.run = [mix](const Place&) {
    return mix.broken ? Outcome::fail(mix.unusable, "T-1") : Outcome::not_supported(mix.unusable);
  };
  one.axes = {{"transport", mix.name}};
  return one;
}

void list(const Selection& selection, std::vector<Case>& cases) {
  for (const Mix& mix : select_mixes(selection.transports)) {
    if (!mix.unusable.empty()) {
      cases.push_back(unusable_case(mix));
      cases.back().must_pass = !selection.transports.empty();  // it was asked for by name
      continue;
    }
    std::vector<Cell> cells = cells_of(selection, mix);
    // One job after the other, and in it one algorithm after the other: each change makes new communicators.
    std::stable_sort(cells.begin(), cells.end(), [](const Cell& a, const Cell& b) {
      return std::pair(a.operation.nranks, a.algorithm) < std::pair(b.operation.nranks, b.algorithm);
    });
    std::set<std::string> ids;
    for (const Cell& cell : cells)
      if (ids.insert(cell.id()).second) cases.push_back(case_of(cell, mix));
  }
}

std::optional<Case> find(const std::string& id) {
  const std::string transport = "matrix/transport/";
  if (id.rfind(transport, 0) == 0) {
    const Mix mix = make_mix(id.substr(transport.size()));
    return mix.unusable.empty() ? std::nullopt : std::optional(unusable_case(mix));
  }
  const auto cell = cell_from(id);
  std::string error;
  if (cell && !find_algorithm(cell->algorithm, &error)) throw std::invalid_argument(id + ": " + error);
  return cell ? std::optional(case_of(*cell, make_mix(cell->mix))) : std::nullopt;
}

}  // namespace

Suite matrix_suite() { return {"matrix", "collectives with numbers, over every algorithm and transport", list, find}; }

}  // namespace tutti::conformance
