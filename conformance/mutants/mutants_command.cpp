// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <memory>

#include "command.hpp"
#include "contract/clauses.hpp"
#include "mutant_run.hpp"
#include "options.hpp"

namespace tutti::conformance {
namespace {

struct MutantsCommandOptions {
  MutantOptions run;
  bool list = false, verbose = false;
};

// Nothing survived, but this machine could not run every mutant: ctest counts it as skipped, never as passed.
constexpr int not_run_status = 77;

int list_faults() {
  for (const auto faults : {plugin_faults(), transport_faults(), algorithm_faults(), device_faults(), meeting_faults(),
                            rma_faults(), nccl_faults()})
    for (const Fault& fault : faults)
      fmt::print("{:<26} {:<21} {:<11} {}\n", fault.name, fault.clause, fault.over, fault.what);
  return 0;
}

void print_result(const MutantResult& r, bool verbose) {
  const char* word = r.killed ? "killed" : r.not_run ? "NOT RUN" : "SURVIVES";
  fmt::print("{:<8} {:<26} {:<21} {:<26} {:5.2f} s\n", word, r.fault->name, r.fault->clause, r.by, r.seconds);
  if (!r.killed) fmt::print("         {}\n         {}: {}\n", r.why, r.fault->what, r.outcome.message);
  if (verbose && r.killed) fmt::print("         {}\n", r.outcome.message);
  std::fflush(stdout);
}

int run(const MutantsCommandOptions& options) {
  if (options.list) return list_faults();
  MutantOptions asked = options.run;
  asked.on_result = [&](const MutantResult& r) { print_result(r, options.verbose); };
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<MutantResult> results = run_mutants(asked);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  size_t killed = 0, not_run = 0;
  for (const MutantResult& r : results) killed += r.killed, not_run += r.not_run;
  fmt::print("{} of {} mutants killed, {} survive, {} not run; {:.0f} s\n", killed, results.size(),
             results.size() - killed - not_run, not_run, seconds);
  bool good = killed + not_run == results.size();
  if (asked.names.empty()) {
    std::vector<std::string> uncovered, not_shown;
    for (const std::string& clause : uncovered_clauses(results)) {
      const bool machine = std::any_of(results.begin(), results.end(),
                                       [&](const MutantResult& r) { return r.not_run && clause == r.fault->clause; });
      (machine ? not_shown : uncovered).push_back(clause);
    }
    fmt::print(
        "{} of {} clauses are covered by a killed mutant{}{}{}{}\n",
        clauses().size() - uncovered.size() - not_shown.size(), clauses().size(),
        uncovered.empty() ? "" : "; uncovered: ", fmt::join(uncovered, ", "),
        not_shown.empty() ? "" : "; not shown here, since their mutants were not run: ", fmt::join(not_shown, ", "));
    good = good && uncovered.empty();
  }
  return !good ? 1 : not_run ? not_run_status : 0;
}

}  // namespace

Action add_mutants_command(CLI::App& app, Session& session) {
  auto options = std::make_shared<MutantsCommandOptions>();
  CLI::App* sub = app.add_subcommand("mutants", "Runs the deliberately broken plugins: every one must be caught");
  sub->add_option("names", options->run.names, "mutants to run; all without any");
  sub->add_flag("--list", options->list, "shows the mutants and the clauses that they break");
  sub->add_flag("--verbose", options->verbose, "shows the message that each author would read");
  add_number(*sub, "--patience", options->run.patience, 0.5, 60, "seconds without news after which a case fails");
  return [options, &session] {
    options->run.seed = session.selection.seed;
    options->run.patience *= session.selection.patience;
    return run(*options);
  };
}

}  // namespace tutti::conformance
