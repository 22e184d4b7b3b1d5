// SPDX-License-Identifier: Apache-2.0
#include "chaos/chaos.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <tutti/tutti.hpp>

#include "chaos/disturbed_cells.hpp"
#include "chaos/faults.hpp"
#include "matrix/perform.hpp"

namespace tutti::conformance {
namespace {

constexpr const char* wrapper = "chaos";
// A short deadline if nothing else can find the fault; otherwise one that a slow machine does not reach by chance.
constexpr double soon = 1.5, late = 20;
// ... and to refuse a call after a failure takes no time.
constexpr double refusal = 2;

// Before anything asks for the plugin: its settings are read once.
void disturb(const std::string& over, const std::string& script, uint64_t seed, bool checksum) {
  setenv("TUTTI_CHAOS_OVER", over.c_str(), 1);
  setenv("TUTTI_CHAOS", script.c_str(), 1);
  setenv("TUTTI_CHAOS_SEED", std::to_string(seed).c_str(), 1);
  setenv("TUTTI_CHECKSUM", checksum ? "1" : "0", 1);
}

std::string last_words(const std::string& text) {
  constexpr size_t most = 600;
  return text.size() > most ? text.substr(text.size() - most) : text;
}

Outcome run_allowed(const std::string& over, const AllowedFault& fault, bool checksum, const Place& place) {
  disturb(over, *fault.script ? fault.script : "random", place.seed, checksum);
  const Mix mix = make_mix(wrapper);
  if (!mix.unusable.empty()) return Outcome::fail(mix.unusable);
  const CapturedErrors errors(fmt::format("{}/errors-{}", place.folder, place.rank));
  {
    Members members(place.folder, place.rank, mix, place.nranks, place.patience);
    for (const Cell& cell : disturbed_cells(wrapper, place.nranks)) {
      Outcome outcome = perform(cell, mix, members, place.rank, place.seed, place.attestation);
      if (outcome.verdict == Verdict::pass) continue;
      outcome.message = fmt::format("{} with {}: {}", cell.id(), fault.name, outcome.message);
      return outcome;
    }
  }
  // A slow rank is one rank; every other fault strikes on all.
  const bool here = std::string_view(fault.name) != "slow" || place.rank == 1;
  if (here && *fault.script && errors.text().find("faults that struck: ") == std::string::npos)
    return Outcome::fail("the fault never struck: the case proves nothing. The end of the log: " +
                         last_words(errors.text()));
  return Outcome::pass();
}

// Rounds of an all_reduce, an all_gather and a message around the ring, each checked, until the fault ends them.
struct Rounds {
  static constexpr uint64_t count = 33;
  static constexpr int most = 300;
  Communicator& comm;
  uint64_t seed;

  // "" when all results of a round are right.
  std::string one(int round) const {
    const uint32_t n = comm.nranks(), rank = comm.rank();
    const Data data({element_type("int64"), TUTTI_SUM, n, count, seed + static_cast<uint64_t>(round), 0});
    std::vector<int64_t> mine(count), sum(count), all(count * n), received(count);
    for (uint64_t i = 0; i < count; ++i) mine[i] = static_cast<int64_t>(data.input(rank, i));
    comm.all_reduce<int64_t>(mine, sum, Op::sum);
    for (uint64_t i = 0; i < count; ++i)
      if (sum[i] != static_cast<int64_t>(data.reduced(i))) return fmt::format("all_reduce: out[{}] is wrong", i);
    comm.all_gather<int64_t>(mine, all);
    for (uint64_t i = 0; i < count * n; ++i)
      if (all[i] != static_cast<int64_t>(data.input(static_cast<uint32_t>(i / count), i % count)))
        return fmt::format("all_gather: out[{}] is wrong", i);
    const uint32_t before = (rank + n - 1) % n;
    Request receiving = comm.async().receive<int64_t>(received, before);
    Request sending = comm.async().send<int64_t>(mine, (rank + 1) % n);
    receiving.wait();
    sending.wait();
    for (uint64_t i = 0; i < count; ++i)
      if (received[i] != static_cast<int64_t>(data.input(before, i))) return fmt::format("receive: [{}] is wrong", i);
    return {};
  }
};

// The text that a rank's error must have.
std::string lacks(const ForbiddenFault& fault, const Error& e, uint32_t nranks) {
  const std::string text = e.what();
  const auto has = [&](const std::string& part) { return text.find(part) != std::string::npos; };
  if (e.status() != TUTTI_INTERNAL && e.status() != TUTTI_TIMEOUT && e.status() != TUTTI_PEER_FAILED &&
      e.status() != TUTTI_MISMATCH)
    return fmt::format("its status is {}", tutti_status_text(e.status()));
  bool rank = false;
  for (uint32_t r = 0; r < nranks; ++r) rank |= has("rank " + std::to_string(r));
  if (!rank) return "it names no rank";
  if (!has("all_reduce") && !has("all_gather") && !has("receive") && !has("send")) return "it names no operation";
  if (std::none_of(fault.causes.begin(), fault.causes.end(), has)) return "it does not name the cause";
  return {};
}

Outcome run_forbidden(const std::string& over, const ForbiddenFault& fault, const Place& place) {
  const bool waits = std::any_of(fault.causes.begin(), fault.causes.end(),
                                 [](const std::string& cause) { return cause == "no progress for"; });
  setenv("TUTTI_TIMEOUT", fmt::format("{}", (waits ? soon : late) * place.patience).c_str(), 1);
  disturb(over, fmt::format("{}:rank=1,after={}{}", fault.fault, 5 + place.seed % 40, fault.keys), place.seed,
          fault.checksum);
  tutti_comm_config config{sizeof(tutti_comm_config)};
  const std::string meeting = "file:" + place.folder;
  config.rendezvous = meeting.c_str();
  config.rank = place.rank;
  config.nranks = place.nranks;
  config.transports = wrapper;
  Communicator comm(config);
  const Rounds rounds{comm, place.seed};
  for (int round = 0; round < Rounds::most; ++round) try {
      if (const std::string wrong = rounds.one(round); !wrong.empty())
        return Outcome::fail(fmt::format("a wrong result instead of an error: round {}: {}", round, wrong));
    } catch (const Error& e) {
      if (const std::string missing = lacks(fault, e, place.nranks); !missing.empty())
        return Outcome::fail(fmt::format("the error is not good enough: {}. It says: {}", missing, e.what()));
      // A further call returns the error at once.
      const auto begin = std::chrono::steady_clock::now();
      try {
        comm.barrier();
        return Outcome::fail("a call after the failure succeeds");
      } catch (const Error&) {
        if (std::chrono::steady_clock::now() - begin > std::chrono::duration<double>(refusal * place.patience))
          return Outcome::fail(
              fmt::format("a call after the failure takes more than {:g} s to be refused", refusal * place.patience));
      }
      return Outcome::pass();
    }
  return Outcome::fail(fmt::format("{} rounds went by and nobody noticed the fault", Rounds::most));
}

// Transports that chaos can be laid over and whose ranks may be processes.
std::vector<std::string> wrapped_transports(const Selection& selection) {
  std::vector<std::string> names;
  for (const tutti_transport* transport : list_transports()) {
    const std::string name = transport->name;
    const auto& wanted = selection.transports;
    tutti_transport_caps caps{};
    caps.struct_size = sizeof caps;
    if (name == wrapper || (!wanted.empty() && std::find(wanted.begin(), wanted.end(), name) == wanted.end())) continue;
    if (query_transport(*transport, &caps) == TUTTI_OK && caps.reach != TUTTI_REACH_PROCESS) names.push_back(name);
    take_plugin_error();
  }
  return names;
}

// The id of the plugin that has a transport.
std::string plugin_of(const std::string& transport) {
  for (const PluginRecord& record : list_plugins())
    if (std::find(record.transports.begin(), record.transports.end(), transport) != record.transports.end())
      return record.id;
  return transport;
}

Case base_case(const std::string& id, const std::string& over, const std::string& fault, uint32_t nranks) {
  Case one;
  one.id = id;
  one.must_pass = true;
  one.deadline_ms = 120'000;
  one.processes = nranks;
  one.environment = [](uint32_t) { return std::vector<std::string>{"TUTTI_LOG=info"}; };
  one.axes = {{"transport", over}, {"fault", fault}, {"ranks", std::to_string(nranks)}};
  return one;
}

Case allowed_case(const std::string& over, const AllowedFault& fault, uint32_t nranks, bool checksum) {
  Case one = base_case(fmt::format("chaos/allowed/{}/{}/n{}{}", over, fault.name, nranks, checksum ? "/checksum" : ""),
                       over, fault.name, nranks);
  one.estimate_ms = 1500;
  one.run = [over, &fault, checksum](const Place& place) {
    return run_allowed(plugin_of(over), fault, checksum, place);
  };
  return one;
}

Case forbidden_case(const std::string& over, const ForbiddenFault& fault, uint32_t nranks) {
  Case one = base_case(fmt::format("chaos/forbidden/{}/{}/n{}", over, fault.name, nranks), over, fault.name, nranks);
  one.estimate_ms = 1200;
  one.run = [over, &fault](const Place& place) { return run_forbidden(plugin_of(over), fault, place); };
  return one;
}

bool wraps() {
  const auto all = list_transports();
  return std::any_of(all.begin(), all.end(), [](const tutti_transport* t) { return t->name == std::string(wrapper); });
}

void list(const Selection& selection, std::vector<Case>& cases) {
  if (!wraps() || !selection.algorithms.empty() || !selection.collectives.empty() || !selection.types.empty()) return;
  std::vector<uint32_t> ranks{3};
  if (selection.level >= Level::standard) ranks = {2, 3, 5};
  if (!selection.ranks.empty()) ranks = selection.ranks;
  for (const std::string& over : wrapped_transports(selection))
    for (const uint32_t n : ranks) {
      if (n < 2) continue;
      for (const AllowedFault& fault : allowed_faults()) {
        const bool brief = selection.level == Level::smoke;
        if (brief && std::string_view(fault.name) != "all") continue;
        cases.push_back(allowed_case(over, fault, n, false));
        if (selection.level >= Level::standard) cases.push_back(allowed_case(over, fault, n, true));
      }
      for (const ForbiddenFault& fault : forbidden_faults())
        if (selection.level != Level::smoke || std::string_view(fault.name) == "corrupt")
          cases.push_back(forbidden_case(over, fault, n));
    }
}

// Nothing may be asked of the plugin before its settings are made: the id says all.
std::optional<Case> find(const std::string& id) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= id.size();) {
    const size_t end = std::min(id.find('/', begin), id.size());
    parts.push_back(id.substr(begin, end - begin));
    begin = end + 1;
  }
  if (parts.size() < 5 || parts[4].size() < 2 || parts[4][0] != 'n') return std::nullopt;
  const auto nranks = static_cast<uint32_t>(std::strtoul(parts[4].c_str() + 1, nullptr, 10));
  if (parts[1] == "allowed")
    for (const AllowedFault& fault : allowed_faults())
      if (Case one = allowed_case(parts[2], fault, nranks, parts.size() > 5); one.id == id) return one;
  if (parts[1] == "forbidden")
    for (const ForbiddenFault& fault : forbidden_faults())
      if (Case one = forbidden_case(parts[2], fault, nranks); one.id == id) return one;
  return std::nullopt;
}

}  // namespace

Suite chaos_suite() {
  return {"chaos", "every transport with faults put in: allowed ones change nothing, others become errors", list, find};
}

}  // namespace tutti::conformance
