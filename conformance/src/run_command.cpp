// SPDX-License-Identifier: Apache-2.0
//
// The default command: runs the selected cases, prints what matters, writes reports.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <stdexcept>

#include "command.hpp"
#include "contract/clauses.hpp"
#include "machine.hpp"
#include "report/judgement.hpp"
#include "report/report.hpp"
#include "report/submission.hpp"
#include "report/text_file.hpp"
#include "report/waivers.hpp"
#include "runner.hpp"
#include "suites.hpp"

namespace tutti::conformance {
namespace {

struct Options {
  bool list = false, verbose = false;
  std::string reproduce, json, junit, html, report, waivers;
};

// "ID@SEED", the seed in hexadecimal, as a result's reproducer gives it.
void take_reproducer(const std::string& text, Selection& selection) {
  const size_t at = text.rfind('@');
  size_t read = 0;
  try {
    if (at != std::string::npos) selection.seed = std::stoull(text.substr(at + 1), &read, 16);
  } catch (const std::exception&) {
    read = 0;
  }
  if (at == std::string::npos || read == 0 || at + 1 + read != text.size())
    throw std::invalid_argument("--reproduce: expected CASE@SEED with a hexadecimal seed, got \"" + text + "\"");
  selection.cases = {text.substr(0, at)};
}

uint64_t seconds_of(const std::vector<Case>& cases) {
  uint64_t ms = 0;
  for (const Case& one : cases) ms += one.estimate_ms;
  return (ms + 999) / 1000;
}

int list_cases(const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    std::string clauses;
    for (const std::string& clause : one.clauses) clauses += (clauses.empty() ? "" : ",") + clause;
    fmt::print("{}{}{}{}\n", one.id, one.must_pass ? "  must pass" : "", clauses.empty() ? "" : "  ", clauses);
  }
  fmt::print("{} cases, about {} s on two cores\n", cases.size(), seconds_of(cases));
  return 0;
}

void print_result(const Result& result, bool verbose) {
  const Verdict verdict = result.outcome.verdict;
  if (verdict == Verdict::pass && !verbose) return;
  if ((verdict == Verdict::not_supported || verdict == Verdict::not_run) && !verbose && !result.must_pass) return;
  fmt::print("{:<13} {}\n", verdict_name(verdict), result.id);
  if (const Clause* clause = find_clause(result.outcome.clause))
    fmt::print("  breaks {}: {}\n", clause->id, clause->text);
  if (!result.outcome.message.empty())
    fmt::print("  {}{}\n", result.outcome.clause.empty() ? "" : "but: ", result.outcome.message);
  if (is_bad(verdict)) fmt::print("  again: {}\n", result.reproduce);
  std::fflush(stdout);
}

// Failures in full, but of those that name one clause (or none) only the first few: a broken promise shows in many
// cases.
class Printer {
 public:
  Printer(bool verbose, size_t cases) : verbose_(verbose), cases_(cases), terminal_(isatty(STDOUT_FILENO) != 0) {}
  ~Printer() { clear(); }
  void print(const Result& result) {
    clear();
    print_line(result);
    if (terminal_) fmt::print("{} of {} cases", ++done_, cases_);
    if (terminal_) std::fflush(stdout);
  }

 private:
  // On a terminal the last line counts the cases.
  void clear() const {
    if (terminal_) fmt::print("\r\x1b[K");
    if (terminal_) std::fflush(stdout);
  }
  void print_line(const Result& result) {
    constexpr uint64_t in_full = 3;
    const bool again = !verbose_ && is_bad(result.outcome.verdict) && ++seen_[result.outcome.clause] > in_full;
    if (!again) return print_result(result, verbose_);
    const std::string clause = result.outcome.clause.empty() ? "" : "  (" + result.outcome.clause + " again)";
    fmt::print("{:<13} {}{}\n", verdict_name(result.outcome.verdict), result.id, clause);
    std::fflush(stdout);
  }

  bool verbose_;
  size_t cases_, done_ = 0;
  bool terminal_;
  std::map<std::string, uint64_t> seen_;  // by clause
};

// A summary of many failures: the clauses that they break, and where to begin. Cases come cheapest first, and those of
// the contract before the matrix, which shows the consequences.
void print_summary(const Run& run) {
  std::map<std::string, uint64_t> clauses;
  const Result* first = nullptr;
  uint64_t bad = 0;
  for (const Result& result : run.results) {
    if (!is_bad(result.outcome.verdict)) continue;
    if (!first || (first->outcome.clause.empty() && !result.outcome.clause.empty())) first = &result;
    ++clauses[result.outcome.clause];
    ++bad;
  }
  if (bad < 2) return;
  std::string text;
  for (const auto& [id, times] : clauses)
    if (!id.empty()) text += fmt::format("{}{} in {}", text.empty() ? "" : ", ", id, times);
  if (const auto unnamed = clauses.find(""); unnamed != clauses.end())
    text += fmt::format("{}{} without a clause of their own", text.empty() ? "" : ", ", unnamed->second);
  fmt::print(
      "{} cases say that something is broken: {} (docs/contract.md).\n"
      "Begin with the simplest, {}; the rest may follow from it:\n  {}\n",
      bad, text, first->id, first->reproduce);
}

int finish(const Run& run) {
  print_summary(run);
  const Counts c = run.counts();
  const Judgement judgement = judge(run, today());
  std::string reasons;
  for (const std::string& reason : judgement.reasons) reasons += (reasons.empty() ? ": " : "; ") + reason;
  fmt::print("{}{}\n", judgement.title(), reasons);
  fmt::print("{} passed ({} with warnings), {} failed, {} not supported, {} not run; {:.1f} s\n", c.passed + c.warnings,
             c.warnings, c.failed + c.crashed + c.timed_out, c.not_supported, c.not_run, run.manifest.seconds);
  return judgement.reasons.empty() ? 0 : 1;
}

// Before the run: what would be lost at its end.
void require_places(const Options& options) {
  if (!options.json.empty()) require_writable("--json", options.json);
  if (!options.junit.empty()) require_writable("--junit", options.junit);
  if (!options.html.empty()) require_writable("--html", options.html);
  if (!options.report.empty()) begin_submission(options.report);
}

void write_reports(const Run& run, const Options& options) {
  if (!options.json.empty()) write_json(run, options.json);
  if (!options.junit.empty()) write_junit(run, options.junit);
  if (!options.html.empty()) write_html(run, options.html);
  if (!options.report.empty()) write_submission(run, options.report);
}

int run_selected(const Session& session, const Options& options) {
  const Selection& selection = session.selection;
  const std::vector<Case> cases = select_cases(selection);
  if (options.list) return list_cases(cases);
  Run run;
  if (!options.waivers.empty()) try {
      run.waivers = read_waivers(options.waivers);
    } catch (const std::runtime_error& e) {
      throw std::invalid_argument(std::string("--waivers: ") + e.what());
    }
  require_places(options);
  fmt::print("level {}: {} cases, about {} s on two cores, seed {:#x}\n", level_name(selection.level), cases.size(),
             seconds_of(cases), selection.seed);
  std::fflush(stdout);
  run.manifest = make_manifest(selection, session.command_line);
  RunnerOptions runner;
  runner.seed = selection.seed;
  runner.plugins = selection.plugins;
  runner.netns = selection.netns;
  runner.patience = selection.patience;
  const auto begin = std::chrono::steady_clock::now();
  {
    Printer printer(options.verbose, cases.size());
    runner.on_result = [&](const Result& result) { printer.print(result); };
    run.results = run_cases(cases, runner);
  }
  run.manifest.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const int status = finish(run);
  write_reports(run, options);
  return status;
}

}  // namespace

Action add_run_command(CLI::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  app.add_flag("--list", options->list, "print the cases that would run, and end");
  app.add_flag("-v,--verbose", options->verbose, "print every result");
  app.add_option("--reproduce", options->reproduce, "run one case with the data of a result: CASE@SEED");
  app.add_option("--json", options->json, "write the results to a file");
  app.add_option("--junit", options->junit, "write the results as JUnit XML to a file");
  app.add_option("--html", options->html, "write the results as one page to a file");
  app.add_option("--report", options->report, "write all of these and their digests into a folder, for verify-report");
  app.add_option("--waivers", options->waivers, "a JSON file of failures that are accepted until a day");
  return [&session, options] {
    if (!options->reproduce.empty()) take_reproducer(options->reproduce, session.selection);
    return run_selected(session, *options);
  };
}

}  // namespace tutti::conformance
