// SPDX-License-Identifier: Apache-2.0
#include "proofs/proofs.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>
#include <tutti/schedule.h>

#include <random>
#include <set>

#include "filters.hpp"
#include "proofs/problems.hpp"

namespace tutti::conformance {
namespace {

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
                        first ? "yes" : "no", yes ? "yes" : "no", rank, in_place ? " in place" : "", text_of(p)),
            "A-4");
        return false;
      }
      if (!yes && status != TUTTI_NOT_SUPPORTED)
        *wrong = Outcome::fail(
            fmt::format("supports() returns {} for {}; expected TUTTI_OK or TUTTI_NOT_SUPPORTED", status, text_of(p)),
            "A-2");
      else if (!yes && text.empty())
        *wrong = Outcome::fail(fmt::format("supports() refuses {} without a reason: it must call set_error before it "
                                           "returns TUTTI_NOT_SUPPORTED",
                                           text_of(p)),
                               "A-2");
      if (is_bad(wrong->verdict)) return false;
    }
  }
  return first;
}

// The same query gives the same schedule, whatever was asked in between. Adds the hashes of all ranks' schedules.
Outcome build_twice(const tutti_algorithm& algorithm, const Problem& p, std::vector<uint64_t>* hashes) {
  std::vector<Schedule> once, again;
  std::string error;
  if (build_schedules(algorithm, p, &once, &error) < 0)
    return Outcome::fail(fmt::format("{}: supports() says yes, but {}", text_of(p), error), "A-5");
  if (build_schedules(algorithm, p, &again, &error) < 0)
    return Outcome::fail(fmt::format("{}: asked a second time: {}", text_of(p), error), "A-6");
  for (uint32_t r = 0; r < p.nranks; ++r) {
    hashes->push_back(schedule_hash(once[r]));
    if (hashes->back() != schedule_hash(again[r]))
      return Outcome::fail(
          fmt::format("{}: asked twice, rank {} gets two schedules: it must be a pure function of the query",
                      text_of(p), r),
          "A-6");
  }
  return Outcome::pass();
}

// Adds the hashes of all ranks' schedules in place. False: they cannot be had.
bool build_in_place(const tutti_algorithm& algorithm, Problem p, std::vector<uint64_t>* hashes) {
  p.in_place.assign(p.nranks, true);
  std::vector<Schedule> schedules;
  std::string error;
  if (build_schedules(algorithm, p, &schedules, &error) < 0) return false;
  for (const Schedule& schedule : schedules) hashes->push_back(schedule_hash(schedule));
  return true;
}

Case case_of(uint32_t collective, const std::string& name) {
  Case one;
  one.id = fmt::format("proof/{}/{}", collective_name(collective), name);
  one.clauses = {"A-2",  "A-4",  "A-5",  "A-6",  "A-8",  "A-10", "A-11",
                 "A-12", "A-13", "A-14", "A-15", "A-16", "A-17", "A-18"};
  one.must_pass = true;
  one.estimate_ms = 300;
  one.deadline_ms = 300'000;
  one.axes = {{"collective", collective_name(collective)}, {"algorithm", name}};
  one.run = [collective, name](const Place& place) {
    std::string error;
    const tutti_algorithm* algorithm = find_algorithm(name, &error);
    return algorithm ? prove(*algorithm, collective, proved_ranks, place.seed) : Outcome::fail(error);
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

namespace {

// The proof of one algorithm for one collective, problem by problem.
class Prover {
 public:
  Prover(const tutti_algorithm& algorithm, uint32_t collective, uint64_t seed)
      : algorithm_(algorithm), collective_(collective), seed_(seed) {}

  // False: it is over, and `outcome` says what is wrong.
  bool at(uint32_t n) {
    bool served = false;
    for (const uint32_t root : roots(collective_, n, seed_ + n)) {
      known_.clear();
      const auto hosts = placements(n, seed_ + n);
      // One host, ranks anywhere, and one of the other placements in turn: the contract has the product.
      for (size_t k = 0; k < hosts.size(); ++k)
        if (k == 0 || k + 1 == hosts.size() || k == (n + root) % hosts.size())
          if (!take(problem(n, root, hosts[k]), &served)) return false;
    }
    if (!served) refused_ += (refused_.empty() ? "" : ", ") + std::to_string(n);
    return true;
  }
  // Problems that no list has.
  bool at_random(uint32_t most, uint32_t problems) {
    std::mt19937_64 random(seed_);
    bool served = false;
    for (uint32_t k = 0; k < problems; ++k)
      if (!take(random_problem(collective_, most, random), &served)) return false;
    return true;
  }
  uint32_t proved() const { return proved_; }
  const std::string& refused() const { return refused_; }
  const std::string& last_reason() const { return last_reason_; }
  Outcome outcome;

 private:
  // With lanes for every algorithm: the contract and the problems at random have the other numbers of lanes.
  Problem problem(uint32_t n, uint32_t root, const std::vector<uint32_t>& hosts) const {
    Problem p;
    p.collective = collective_;
    p.nranks = n;
    p.root = root;
    p.lanes = 4;
    p.hosts = hosts;
    if (n % 2 == 0) p.topology = topology_of_nodes(hosts, nodes_in_turn(n));
    return p;
  }
  bool take(const Problem& p, bool* served) {
    std::string reason;
    if (!supported(algorithm_, p, &reason, &outcome)) {
      if (is_bad(outcome.verdict)) return false;
      last_reason_ = reason;
      return true;
    }
    *served = true;
    std::vector<uint64_t> hashes;
    if (outcome = build_twice(algorithm_, p, &hashes); is_bad(outcome.verdict)) return false;
    ++proved_;
    if (build_in_place(algorithm_, p, &hashes) && !known_.insert(hashes).second)
      return true;  // many algorithms do the same on any hosts
    if (!objection_to(algorithm_, p)) return true;
    const Problem least = shrunk(p, [&](const Problem& q) { return fails(q); });
    const Objection objection = objection_to(algorithm_, least);
    outcome = Outcome::fail(fmt::format("{}: {}", text_of(least), objection.text), objection.clause);
    return false;
  }
  bool fails(const Problem& p) const {
    const tutti_query query = make_query(p, 0);
    return algorithm_.supports(algorithm_.self, &query) >= 0 && objection_to(algorithm_, p);
  }

  const tutti_algorithm& algorithm_;
  const uint32_t collective_;
  const uint64_t seed_;
  std::set<std::vector<uint64_t>> known_;
  uint32_t proved_ = 0;
  std::string refused_, last_reason_;
};

}  // namespace

Outcome prove(const tutti_algorithm& algorithm, uint32_t collective, uint32_t most, uint64_t seed) {
  Prover prover(algorithm, collective, seed);
  for (uint32_t n = 1; n <= most; ++n)
    if (!prover.at(n)) return prover.outcome;
  if (!prover.at_random(most, random_problems)) return prover.outcome;
  if (!prover.proved())
    return Outcome::not_supported(
        fmt::format("supports() refuses every number of ranks to {}: {}", most, prover.last_reason()));
  Outcome outcome = Outcome::pass();
  if (!prover.refused().empty())
    outcome.message = fmt::format("proved to {} ranks, but for those that supports() refuses: {} ({})", most,
                                  prover.refused(), prover.last_reason());
  return outcome;
}

Suite proof_suite() { return {"proof", "every algorithm's schedules, proved at all ranks to 64", list, nullptr}; }

}  // namespace tutti::conformance
