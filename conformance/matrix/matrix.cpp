// SPDX-License-Identifier: Apache-2.0
#include "matrix/matrix.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <utility>

#include "matrix/application_operators.hpp"
#include "matrix/blame.hpp"
#include "matrix/cells.hpp"
#include "matrix/perform.hpp"

namespace tutti::conformance {
namespace {

// Milliseconds on two cores: the processes take turns, the data are made and checked element by element. Fitted to the
// seconds of a run at the level standard.
uint32_t estimate_of(const Cell& cell) {
  const uint64_t n = cell.operation.nranks;
  const uint64_t elements = cell.bytes() / cell.type->bytes * (reduces(cell.operation.collective) ? n : 1);
  const uint64_t at_once = cell.calls == Calls::overlap ? 3 : 1;
  // Data too large to be kept is computed again for each check.
  const uint64_t a_millisecond = cell.bytes() > 1 << 30 ? 40'000 : 250'000;
  return static_cast<uint32_t>(3 + n * n / 4 + at_once * elements / a_millisecond);
}

// The checks of a collective on data, which judge the plugins below it.
std::vector<std::string> clauses_of(const Cell& cell) {
  if (cell.operation.collective == TUTTI_BARRIER) return {"T-25", "A-11"};
  std::vector<std::string> clauses{"T-13", "T-15", "T-16", "T-17", "T-18", "A-12", "A-14"};
  if (cell.on_host() && cell.memory != Memory::heap) clauses.emplace_back("T-35");
  if (!cell.on_host()) clauses.insert(clauses.end(), {"D-2", "D-3", "X-1", "X-2", "X-3", "X-5", "X-6", "X-8"});
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
        all.device = attestation.device;
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

// Why the devices of a cell cannot read each other's memory, where that is asked of them; "": they can.
std::string strangers(const Cell& cell, const Mix& mix) {
  if (!mix.mapped || cell.devices < 2) return {};
  const tutti_device* memory = make_device(cell.device).tables.memory;
  for (uint32_t a = 0; a < cell.devices; ++a)
    for (uint32_t b = 0; b < cell.devices; ++b)
      if (a != b && memory->enable_peer(memory->self, a, b) < 0)
        return fmt::format("device {} cannot read device {}: {}", a, b, take_plugin_error());
  return {};
}

Outcome run_cell(const Cell& cell, const Mix& mix, const Place& place) {
  if (!mix.unusable.empty()) return Outcome::fail(mix.unusable);
  if (const std::string reason = strangers(cell, mix); !reason.empty()) return Outcome::not_supported(reason);
  if (!place.shared) place.shared = std::make_shared<Members>(place.folder, place.rank, mix, cell, place.patience);
  auto& members = *static_cast<Members*>(place.shared.get());
  if (by_threads(cell, mix)) return perform_by_threads(cell, mix, members, place);
  return perform(cell, mix, members, place.rank, place.seed, place.attestation);
}

Case case_of(const Cell& cell, const Mix& mix) {
  Case one;
  one.id = cell.id();
  one.clauses = clauses_of(cell);
  one.must_pass = !(mix.mapped && cell.devices > 1);
  one.estimate_ms = estimate_of(cell);
  one.deadline_ms = static_cast<uint32_t>(60'000 + cell.bytes() / 5'000);
  one.needs.free_memory = cell.bytes() * 3 / 2 + (256 << 20);
  one.processes = by_threads(cell, mix) ? 1 : cell.operation.nranks;
  one.job = "matrix/" + mix.name + "/n" + std::to_string(cell.operation.nranks);
  if (!cell.on_host())
    one.job += "/" + cell.device + "/" + name_of(cell.ranks_as) + "/on" + std::to_string(cell.devices);
  const std::vector<uint32_t> hosts = mix.hosts(cell.operation.nranks);
  const bool pretended = mix.transports.size() > 1;
  if (pretended) one.hosts = hosts;
  one.environment = [hosts, pretended, nodes = numa_of(cell, mix)](uint32_t rank) {
    std::vector<std::string> variables{"TUTTI_NUMA_NODE=" + std::to_string(nodes[rank])};
    if (pretended) variables.push_back("TUTTI_HOST_ID=conform-" + std::to_string(hosts[rank]));
    return variables;
  };
  one.run = [cell, mix](const Place& place) { return run_cell(cell, mix, place); };
  one.axes = {{"collective", collective_name(cell.operation.collective)},
              {"algorithm", cell.algorithm},
              {"transport", cell.mix},
              {"type", cell.type->name},
              {"operator", operator_name(cell.op)},
              {"ranks", std::to_string(cell.operation.nranks)},
              {"count", std::to_string(cell.operation.count)},
              {"root", std::to_string(cell.operation.root)},
              {"place", name_of(cell.place)},
              {"memory", name_of(cell.memory)},
              {"alignment", name_of(cell.alignment)},
              {"calls", name_of(cell.calls)},
              {"device", cell.device}};
  if (!cell.on_host()) {
    one.axes.emplace_back("ranks as", name_of(cell.ranks_as));
    one.axes.emplace_back("devices", std::to_string(cell.devices));
  }
  return one;
}

constexpr const char* nothing_maps = "mapped: there is no device whose memory other processes can map";

// A plugin that cannot serve on this machine is reported, not skipped.
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

// A device of which the plugin says that it cannot serve on this machine.
Case unusable_case(const Device& device) {
  Case one;
  one.id = "matrix/device/" + device.name;
  one.estimate_ms = 0;
  one.run = [device](const Place&) {
    return device.broken ? Outcome::fail(device.unusable, "D-1") : Outcome::not_supported(device.unusable);
  };
  one.axes = {{"device", device.name}};
  return one;
}

// An operation whose cells have one rank only says so: they prove little.
Case alone_case(uint32_t collective, const std::string& algorithm, const std::string& mix) {
  Case one;
  one.id = fmt::format("matrix/{}/{}/{}", collective_name(collective), algorithm, mix);
  one.estimate_ms = 0;
  one.run = [](const Place&) {
    return Outcome::not_supported(
        "supports() refuses 2 to 17 ranks on the hosts of this transport: all cells have one rank, and no bytes are "
        "exchanged. A mix of two transports has two hosts");
  };
  one.axes = {{"collective", collective_name(collective)}, {"algorithm", algorithm}, {"transport", mix}};
  return one;
}

void list_cells(const Selection& selection, const Mix& mix, const Device& device, const Layouts& layouts,
                std::vector<Case>& cases) {
  std::vector<Cell> cells = cells_of(selection, mix, device, layouts);
  // One job after the other, and in it one algorithm after the other: each change makes new communicators.
  const auto order = [](const Cell& c) { return std::tuple(c.operation.nranks, c.ranks_as, c.devices, c.algorithm); };
  std::stable_sort(cells.begin(), cells.end(), [&](const Cell& a, const Cell& b) { return order(a) < order(b); });
  std::set<std::string> ids;
  std::map<std::pair<uint32_t, std::string>, uint32_t> most_ranks;  // of each operation
  for (const Cell& cell : cells) {
    if (ids.insert(cell.id()).second) cases.push_back(case_of(cell, mix));
    uint32_t& most = most_ranks[{cell.operation.collective, cell.algorithm}];
    most = std::max(most, cell.operation.nranks);
  }
  for (const auto& [operation, most] : most_ranks)
    if (most == 1 && selection.ranks.empty() && device.host())
      cases.push_back(alone_case(operation.first, operation.second, mix.name));
}

void list(const Selection& selection, std::vector<Case>& cases) {
  std::vector<Mix> mixes = select_mixes(selection.transports);
  const std::vector<Device> devices = select_devices(selection.devices);
  for (Mix& mix : mixes)
    if (mix.mapped && !selection.transports.empty() && std::ranges::none_of(devices, &Device::exports))
      mix.unusable = nothing_maps;
  for (const Mix& mix : mixes)
    if (!mix.unusable.empty()) {
      cases.push_back(unusable_case(mix));
      cases.back().must_pass = !selection.transports.empty();  // it was asked for by name
    }
  for (const Device& device : devices) {
    if (!device.unusable.empty()) {
      // A run about something else by name is not about this.
      const bool named = !selection.devices.empty();
      const bool others_named =
          !selection.transports.empty() || !selection.algorithms.empty() || !selection.collectives.empty();
      if (!named && others_named) continue;
      cases.push_back(unusable_case(device));
      cases.back().must_pass = named;
      continue;
    }
    // Ranks that are threads of one process exchange nothing over a transport: once is enough.
    bool threads_done = false;
    for (const Mix& mix : mixes) {
      if (!mix.unusable.empty() || (mix.mapped && !device.exports)) continue;
      const bool threads = mix.transports.size() == 1 && !mix.mapped && !std::exchange(threads_done, true);
      list_cells(selection, mix, device, layouts_of(device, !mix.threads, threads || mix.threads), cases);
    }
  }
}

std::optional<Case> find(const std::string& id) {
  const std::string transport = "matrix/transport/", on = "matrix/device/";
  if (id.rfind(on, 0) == 0) {
    const Device device = make_device(id.substr(on.size()));
    return device.unusable.empty() ? std::nullopt : std::optional(unusable_case(device));
  }
  if (id.rfind(transport, 0) == 0) {
    Mix mix = make_mix(id.substr(transport.size()));
    if (mix.mapped) mix.unusable = nothing_maps;
    return mix.unusable.empty() ? std::nullopt : std::optional(unusable_case(mix));
  }
  if (std::ranges::count(id, '/') == 3) {
    const size_t first = id.find('/'), second = id.find('/', first + 1), third = id.find('/', second + 1);
    const uint32_t collective = collective_from_name(id.substr(first + 1, second - first - 1));
    if (!collective) return std::nullopt;
    return alone_case(collective, id.substr(second + 1, third - second - 1), id.substr(third + 1));
  }
  const auto cell = cell_from(id);
  std::string error;
  if (cell && !find_algorithm(cell->algorithm, &error)) throw std::invalid_argument(id + ": " + error);
  return cell ? std::optional(case_of(*cell, make_mix(cell->mix))) : std::nullopt;
}

}  // namespace

Suite matrix_suite() { return {"matrix", "collectives with numbers, over every algorithm and transport", list, find}; }

}  // namespace tutti::conformance
