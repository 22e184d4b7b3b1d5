// SPDX-License-Identifier: Apache-2.0
#include "mutants/schedules/schedule_mutants.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "mutants/schedules/interleavings.hpp"
#include "mutants/schedules/staged.hpp"
#include "mutants/schedules/streams.hpp"

namespace tutti::conformance {
namespace {

bool wanted(const std::vector<std::string>& names, const std::string& name) {
  return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

struct Placement {
  const char* text;
  bool (*in_place)(uint32_t rank);
};
constexpr Placement placements[] = {{"out of place", [](uint32_t) { return false; }},
                                    {"in place", [](uint32_t) { return true; }},
                                    {"in place on odd ranks", [](uint32_t rank) { return rank % 2 == 1; }}};

bool serves(const tutti_algorithm& algorithm, const Problem& problem) {
  const tutti_query query = make_query(problem, 0);
  const bool able = algorithm.supports(algorithm.self, &query) == TUTTI_OK;
  take_plugin_error();
  return able;
}

// On one host; on two where an algorithm wants several.
void add_sets(const tutti_algorithm& algorithm, uint32_t collective, uint32_t n, std::vector<NamedSet>& sets) {
  std::set<uint32_t> roots{0};
  if (has_root(collective)) roots.insert(n - 1);
  for (const uint32_t root : roots)
    for (const Placement& placement : placements) {
      if (collective == TUTTI_ALL_TO_ALL_V && placement.in_place(1)) continue;  // it has no form in place
      NamedSet made;
      made.set.problem = {collective, n, root, 8, {}, {}};
      for (uint32_t rank = 0; rank < n; ++rank) made.set.problem.in_place.push_back(placement.in_place(rank));
      const bool one_host = serves(algorithm, made.set.problem);
      if (!one_host) made.set.problem.hosts = place_on_hosts(std::vector<uint32_t>{n - n / 2, n / 2}, false);
      if (!serves(algorithm, made.set.problem)) return;
      std::string error;
      if (build_schedules(algorithm, made.set.problem, &made.set.schedules, &error) != TUTTI_OK)
        throw std::runtime_error(error);
      made.name = fmt::format("{} {} n={}{}{} {}", algorithm.name, collective_name(collective), n,
                              has_root(collective) ? fmt::format(" root {}", root) : "",
                              one_host ? "" : " on two hosts", placement.text);
      sets.push_back(std::move(made));
    }
}

// Collects the mutants of one set; with `again` those of its equivalent mutants too.
class Trial {
 public:
  Trial(const NamedSet& original, ScheduleMutants& found) : original_(original), found_(found) {}

  void run(bool again) {
    ++found_.sets;
    const ScheduleSet& right = original_.set;
    if (const Proof proof = verify(right.problem, right.schedules); !proof.ok())
      return trouble("the verifier refuses the unchanged schedules: " + proof.error);
    if (const SearchResult search = search_all_sizes(right); !search.wrong.empty() || !search.complete)
      return trouble("the search finds the unchanged schedules wrong: " + search.wrong);
    if (const std::string wrong = search_streams(right); !wrong.empty())
      return trouble("streams do not carry out the unchanged schedules: " + wrong);
    mutate(right, original_.name, again);
  }

 private:
  void trouble(const std::string& text) { found_.failures.push_back(original_.name + ": " + text); }

  void mutate(const ScheduleSet& right, const std::string& name, bool again) {
    for (const Mutation& mutation : mutations())
      for (uint32_t rank = 0; rank < right.schedules.size(); ++rank)
        for (uint32_t lane = 0; lane < right.schedules[rank].lanes.size(); ++lane)
          for (size_t step = 0; step < right.schedules[rank].lanes[lane].size(); ++step) {
            ScheduleSet mutant = right;
            if (!mutation.apply(mutant, {rank, lane, step})) continue;
            const std::string where =
                fmt::format("{}: {} ({}), rank {} lane {} step {}: {}", name, mutation.name, mutation.what, rank, lane,
                            step, describe(right.schedules[rank].lanes[lane][step]));
            if (judge(mutant, mutation, where) && again) mutate(mutant, where, false);
          }
  }

  // Is it right by another road?
  bool judge(const ScheduleSet& mutant, const Mutation& mutation, const std::string& where) {
    ScheduleMutants::Count& count = found_.by_mutation[mutation.name];
    if (const Proof proof = verify(mutant.problem, mutant.schedules); !proof.ok()) {
      ++count.killed;
      ++count.faults[fault_name(proof.fault)];
      return false;
    }
    SearchResult search;
    if (!mutation.only_levels) search = search_all_sizes(mutant);
    if (search.wrong.empty()) search.wrong = search_streams(mutant);
    found_.orders += search.orders;
    if (!search.wrong.empty() || !search.complete) {
      found_.failures.push_back(
          where + ": the verifier passes it, " +
          (search.wrong.empty() ? "and it has too many orders to try them all" : "but " + search.wrong));
      return false;
    }
    ++count.equivalent;
    found_.equivalents.push_back(where);
    return !mutation.only_levels;
  }

  const NamedSet& original_;
  ScheduleMutants& found_;
};

void merge(ScheduleMutants& all, ScheduleMutants part) {
  for (const auto& [name, count] : part.by_mutation) {
    ScheduleMutants::Count& sum = all.by_mutation[name];
    sum.killed += count.killed;
    sum.equivalent += count.equivalent;
    for (const auto& [fault, n] : count.faults) sum.faults[fault] += n;
  }
  const auto append = [](auto& to, auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  append(all.equivalents, part.equivalents);
  append(all.failures, part.failures);
  all.sets += part.sets;
  all.orders += part.orders;
}

}  // namespace

std::vector<NamedSet> schedule_sets(const Selection& selection) {
  std::vector<NamedSet> sets;
  std::vector<uint32_t> ranks = selection.ranks;
  if (ranks.empty()) ranks = {2, 3};
  if (selection.ranks.empty() && selection.level >= Level::standard) ranks.push_back(4);
  for (const uint32_t n : ranks)
    if (n > 4)
      throw std::invalid_argument(fmt::format("mutants of schedules are searched for at most 4 ranks, not {}", n));
  for (const tutti_algorithm* algorithm : list_algorithms())
    for (uint32_t c = TUTTI_BROADCAST; c <= last_collective; ++c)
      if (algorithm->collectives >> c & 1 && wanted(selection.algorithms, algorithm->name) &&
          wanted(selection.collectives, collective_name(c)))
        for (const uint32_t n : ranks) add_sets(*algorithm, c, n, sets);
  if (selection.algorithms.empty() && selection.collectives.empty()) add_staged_sets(sets);
  return sets;
}

ScheduleMutants try_schedule_mutants(const std::vector<NamedSet>& sets, bool again) {
  std::vector<ScheduleMutants> parts(sets.size());
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i)
    threads.emplace_back([&] {
      for (size_t at = next++; at < sets.size(); at = next++) Trial(sets[at], parts[at]).run(again);
    });
  for (std::thread& thread : threads) thread.join();
  ScheduleMutants all;
  for (ScheduleMutants& part : parts) merge(all, std::move(part));
  return all;
}

int report_schedule_mutants(const ScheduleMutants& found, bool all) {
  uint64_t killed = 0, equivalent = 0;
  fmt::print("{:<18} {:>8} {:>11}  {}\n", "mutation", "killed", "equivalent", "by");
  for (const auto& [name, count] : found.by_mutation) {
    std::vector<std::pair<uint64_t, std::string>> faults;
    for (const auto& [fault, n] : count.faults) faults.emplace_back(n, fault);
    std::sort(faults.rbegin(), faults.rend());
    std::string by;
    for (const auto& [n, fault] : faults) by += fmt::format("{}{} {}", by.empty() ? "" : ", ", fault, n);
    fmt::print("{:<18} {:>8} {:>11}  {}\n", name, count.killed, count.equivalent, by);
    killed += count.killed;
    equivalent += count.equivalent;
  }
  std::set<std::string> kinds;
  if (!found.equivalents.empty())
    fmt::print("\nequivalent: the result is right in every order{}\n",
               all ? "" : " (an example of each; --all for all)");
  for (const std::string& line : found.equivalents) {
    const size_t at = line.find(": ");
    const std::string kind =
        line.substr(0, line.find(' ', line.find(' ') + 1)) + line.substr(at, line.find(' ', at + 2) - at);
    if (kinds.insert(kind).second || all) fmt::print("  {}\n", line);
  }
  for (const std::string& line : found.failures) fmt::print("FAIL {}\n", line);
  fmt::print(
      "\n{} mutants of {} sets of schedules: {} killed by the verifier, {} equivalent ({} orders searched), {} "
      "neither\n",
      killed + equivalent + found.failures.size(), found.sets, killed, equivalent, found.orders, found.failures.size());
  if (killed == 0) fmt::print("FAIL nothing was mutated: no algorithm matches\n");
  return found.failures.empty() && killed ? 0 : 1;
}

}  // namespace tutti::conformance
