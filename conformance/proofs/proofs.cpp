// SPDX-License-Identifier: Apache-2.0
#include "proofs/proofs.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <set>

#include "filters.hpp"
#include "oracle/reference.hpp"

namespace tutti::conformance {
namespace {

std::string where(const Problem& p) {
  std::string text = fmt::format("{} on {} ranks", collective_name(p.collective), p.nranks);
  if (has_root(p.collective)) text += fmt::format(", root {}", p.root);
  const uint32_t hosts = 1 + *std::ranges::max_element(p.hosts);
  if (hosts == 1) return text;
  text += fmt::format(", on {} hosts (", hosts);
  for (uint32_t r = 0; r < p.nranks; ++r) text += fmt::format("{}{}", r ? " " : "", p.hosts[r]);
  return text + ")";
}

// The clause of docs/contract.md that a fault of the verifier breaks.
const char* clause_of(Fault fault) {
  switch (fault) {
    case Fault::unmatched:
    case Fault::size_mismatch:
      return "A-10";
    case Fault::deadlock:
      return "A-11";
    case Fault::wrong_result:
      return "A-12";
    case Fault::race:
      return "A-13";
    case Fault::overwritten:
      return "A-14";
    case Fault::scaling:
      return "A-15";
    case Fault::in_place_order:
      return "A-16";
    case Fault::slice_reuse:
      return "A-17";
    default:
      return "A-8";
  }
}

// True if the algorithm serves the problem; otherwise `reason` says why not. A contradiction goes to `wrong`.
bool supported(const tutti_algorithm& algorithm, Problem p, std::string* reason, Outcome* wrong) {
  bool first = false;
  for (const bool in_place : {false, true}) {
    p.in_place.assign(p.nranks, in_place);
    for (const uint32_t rank : {0u, p.nranks / 2, p.nranks - 1}) {
      const tutti_query query = make_query(p, rank);
      take_plugin_error();
      const tutti_status status = algorithm.supports(algorithm.self, &query);
      const std::string text = take_plugin_error();
      const bool yes = status >= 0;
      if (rank == 0 && !in_place) {
        first = yes;
        *reason = text;
      } else if (yes != first) {
        *wrong = Outcome::fail(
            fmt::format("supports() answers {} to rank 0 and {} to rank {}{}, for {}: its answer must "
                        "not depend on rank or in-place",
                        first ? "yes" : "no", yes ? "yes" : "no", rank, in_place ? " in place" : "", where(p)),
            "A-4");
        return false;
      }
      if (!yes && status != TUTTI_NOT_SUPPORTED)
        *wrong = Outcome::fail(
            fmt::format("supports() returns {} for {}; expected TUTTI_OK or TUTTI_NOT_SUPPORTED", status, where(p)),
            "A-2");
      else if (!yes && text.empty())
        *wrong = Outcome::fail(fmt::format("supports() refuses {} without a reason: it must call set_error before it "
                                           "returns TUTTI_NOT_SUPPORTED",
                                           where(p)),
                               "A-2");
      if (is_bad(wrong->verdict)) return false;
    }
  }
  return first;
}

// The same query gives the same schedule, whatever was asked in between.
Outcome build_twice(const tutti_algorithm& algorithm, const Problem& p) {
  std::vector<Schedule> once, again;
  std::string error;
  if (build_schedules(algorithm, p, &once, &error) < 0)
    return Outcome::fail(fmt::format("{}: supports() says yes, but {}", where(p), error), "A-5");
  if (build_schedules(algorithm, p, &again, &error) < 0)
    return Outcome::fail(fmt::format("{}: asked a second time: {}", where(p), error), "A-6");
  for (uint32_t r = 0; r < p.nranks; ++r)
    if (schedule_hash(once[r]) != schedule_hash(again[r]))
      return Outcome::fail(
          fmt::format("{}: asked twice, rank {} gets two schedules: it must be a pure function of the query", where(p),
                      r),
          "A-6");
  return Outcome::pass();
}

std::set<uint32_t> roots(uint32_t collective, uint32_t n) {
  if (!rooted(collective)) return {0};
  return {0, 1 % n, n / 2, n - 1};
}

// The schedules of all ranks, in place and out of place; empty where they cannot be had.
std::vector<uint64_t> digest(const tutti_algorithm& algorithm, Problem p) {
  std::vector<uint64_t> hashes;
  for (const bool in_place : {false, true}) {
    p.in_place.assign(p.nranks, in_place);
    std::vector<Schedule> schedules;
    std::string error;
    if (build_schedules(algorithm, p, &schedules, &error) < 0) return {};
    for (const Schedule& schedule : schedules) hashes.push_back(schedule_hash(schedule));
  }
  return hashes;
}

// The hosts of the ranks: one host, two, and hosts of any sizes with their ranks anywhere.
std::vector<std::vector<uint32_t>> placements(uint32_t n) {
  std::vector<std::vector<uint32_t>> all{std::vector<uint32_t>(n, 0)};
  if (n > 1) all.push_back(place_on_hosts(std::vector<uint32_t>{(n + 1) / 2, n / 2}, false));
  if (n > 2) all.push_back(random_hosts(n, n));
  return all;
}

Case case_of(uint32_t collective, const std::string& name) {
  Case one;
  one.id = fmt::format("proof/{}/{}", collective_name(collective), name);
  one.clauses = {"A-2", "A-4", "A-5", "A-6", "A-8", "A-10", "A-11", "A-12", "A-13", "A-14", "A-15", "A-16", "A-17"};
  one.must_pass = true;
  one.estimate_ms = 300;
  one.deadline_ms = 300'000;
  one.axes = {{"collective", collective_name(collective)}, {"algorithm", name}};
  one.run = [collective, name](const Place&) {
    std::string error;
    const tutti_algorithm* algorithm = find_algorithm(name, &error);
    return algorithm ? prove(*algorithm, collective, proved_ranks) : Outcome::fail(error);
  };
  return one;
}

void list(const Selection& selection, std::vector<Case>& cases) {
  for (uint32_t c = TUTTI_BROADCAST; c <= last_collective; ++c)
    for (const tutti_algorithm* a : list_algorithms())
      if ((a->collectives >> c & 1) && wants(selection.collectives, collective_name(c)) &&
          wants(selection.algorithms, a->name))
        cases.push_back(case_of(c, a->name));
}

}  // namespace

Outcome prove(const tutti_algorithm& algorithm, uint32_t collective, uint32_t most) {
  std::string refused, last_reason;
  uint32_t proved = 0;
  for (uint32_t n = 1; n <= most; ++n) {
    bool served = true;
    for (const uint32_t root : roots(collective, n)) {
      std::set<std::vector<uint64_t>> known;  // proved: many algorithms do the same on any hosts
      for (const std::vector<uint32_t>& hosts : placements(n)) {
        Problem p;
        p.collective = collective;
        p.nranks = n;
        p.root = root;
        p.lanes = 4;
        p.hosts = hosts;
        std::string reason;
        Outcome wrong;
        if (!supported(algorithm, p, &reason, &wrong)) {
          if (is_bad(wrong.verdict)) return wrong;
          served = false;
          last_reason = reason;
          continue;
        }
        if (wrong = build_twice(algorithm, p); is_bad(wrong.verdict)) return wrong;
        ++proved;
        const std::vector<uint64_t> all = digest(algorithm, p);
        if (!all.empty() && !known.insert(all).second) continue;
        if (const Proof proof = verify_algorithm(algorithm, p); !proof.ok())
          return Outcome::fail(fmt::format("{}: {}: {}", where(p), fault_name(proof.fault), proof.error),
                               clause_of(proof.fault));
      }
    }
    if (!served) refused += (refused.empty() ? "" : ", ") + std::to_string(n);
  }
  if (!proved)
    return Outcome::not_supported(fmt::format("supports() refuses every number of ranks to {}: {}", most, last_reason));
  Outcome outcome = Outcome::pass();
  if (!refused.empty())
    outcome.message =
        fmt::format("proved to {} ranks, but for those that supports() refuses: {} ({})", most, refused, last_reason);
  return outcome;
}

Suite proof_suite() { return {"proof", "every algorithm's schedules, proved at all ranks to 64", list, nullptr}; }

}  // namespace tutti::conformance
