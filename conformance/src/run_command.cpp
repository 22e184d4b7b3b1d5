// SPDX-License-Identifier: Apache-2.0
//
// The default command: runs the selected cases, prints what matters, writes reports.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <stdexcept>

#include "command.hpp"
#include "machine.hpp"
#include "magnitudes.hpp"
#include "matrix/smaller.hpp"
#include "page.hpp"
#include "report/judgement.hpp"
#include "report/report.hpp"
#include "report/submission.hpp"
#include "report/text_file.hpp"
#include "report/waivers.hpp"
#include "runner.hpp"
#include "suites.hpp"

namespace tutti::conformance {
namespace {

struct RunCommandOptions {
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

// The objections that verify-report would have to a run that is about whole plugins.
std::vector<std::string> objections_to_submission(const Selection& selection, const Run& run) {
  std::vector<std::string> reasons;
  if (selection.level < Level::quick || !run.manifest.cases.empty() || !run.manifest.share.empty()) return reasons;
  if (selection.transports.empty() && selection.algorithms.empty() && selection.devices.empty()) return reasons;
  for (const Subject& subject : subjects_of(selection, run)) {
    const std::vector<std::string> own = reasons_against(subject, run, today());
    reasons.insert(reasons.end(), own.begin(), own.end());
  }
  return reasons;
}

// The smallest cell that fails as the first failure does, in words; "" if that is no cell.
std::string smallest_of(const Run& run, const RunnerOptions& options) {
  constexpr double seconds = 20;
  const Result* first = first_bad(run);
  if (!first || first->kind != "matrix") return {};
  const auto least = smallest_failure(*first, options, seconds * options.patience);
  if (!least) return "none that is smaller fails alike";
  return least->reproduce;
}

int finish(const Run& run, const Selection& selection, const RunnerOptions& runner, bool verbose) {
  const Counts c = run.counts();
  const Judgement judgement = judge(run, today());
  std::string verdict = judgement.title();
  for (const std::string& reason : judgement.reasons)
    verdict += (&reason == &judgement.reasons.front() ? ": " : "; ") + reason;
  print_page(run, verdict, smallest_of(run, runner), verbose);
  if (judgement.conforming())
    for (const std::string& reason : objections_to_submission(selection, run))
      fmt::print("verify-report would not call this run conforming: {}\n", reason);
  print_magnitudes(run, verbose);
  fmt::print("{} passed ({} with warnings), {} failed, {} not supported, {} not run; {:.1f} s\n", c.passed + c.warnings,
             c.warnings, c.failed + c.crashed + c.timed_out, c.not_supported, c.not_run, run.manifest.seconds);
  return judgement.reasons.empty() ? 0 : 1;
}

// Before the run: what would be lost at its end.
void require_places(const RunCommandOptions& options) {
  if (!options.json.empty()) require_writable("--json", options.json);
  if (!options.junit.empty()) require_writable("--junit", options.junit);
  if (!options.html.empty()) require_writable("--html", options.html);
  if (!options.report.empty()) begin_submission(options.report);
}

void write_reports(const Run& run, const RunCommandOptions& options) {
  if (!options.json.empty()) write_json(run, options.json);
  if (!options.junit.empty()) write_junit(run, options.junit);
  if (!options.html.empty()) write_html(run, options.html);
  if (!options.report.empty()) write_submission(run, options.report);
}

int run_selected(const Session& session, const RunCommandOptions& options) {
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
  runner.nccl_net = selection.nccl_net;
  runner.netns = selection.netns;
  runner.patience = selection.patience;
  const auto begin = std::chrono::steady_clock::now();
  {
    ResultPrinter printer(options.verbose, cases.size());
    runner.on_result = [&](const Result& result) { printer.print(result); };
    run.results = run_cases(cases, runner);
  }
  run.manifest.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const int status = finish(run, selection, runner, options.verbose);
  write_reports(run, options);
  return status;
}

}  // namespace

Action add_run_command(CLI::App& app, Session& session) {
  auto options = std::make_shared<RunCommandOptions>();
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
