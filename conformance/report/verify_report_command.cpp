// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <set>
#include <stdexcept>

#include "command.hpp"
#include "filters.hpp"
#include "report/judgement.hpp"
#include "report/submission.hpp"
#include "report/waivers.hpp"

namespace tutti::conformance {
namespace {

struct VerifyCommandOptions {
  std::string folder, day = today();
};

void print_verdict(const std::string& verdict, const std::vector<std::string>& about,
                   const std::vector<std::string>& reasons) {
  fmt::print("{}{}{}\n", verdict, about.empty() ? "" : ": ", fmt::join(about, ", "));
  for (const std::string& reason : reasons) fmt::print("  {}\n", reason);
}

// Each subject is judged by its own list; what is wrong with the submission itself speaks against all of them.
int verify(const VerifyCommandOptions& options, const Selection& asked) {
  std::vector<std::string> good, bad, reasons;
  uint64_t cases = 0;
  try {
    const Run run = read_submission(options.folder);
    const std::vector<Subject> subjects = subjects_of(asked, run);
    reasons = judge_submission(run, options.day).reasons;
    if (subjects.empty())
      reasons.emplace_back("it is about no transport, algorithm or device: no must-pass list applies");
    const bool sound = reasons.empty();
    for (const Subject& subject : subjects) {
      const std::vector<std::string> own = reasons_against(subject, run, options.day);
      (sound && own.empty() ? good : bad).push_back(subject.kind + " " + subject.name);
      reasons.insert(reasons.end(), own.begin(), own.end());
    }
    cases = run.results.size();
    for (const Waiver& w : run.waivers)
      if (in_force(w, options.day)) fmt::print("waived until {}: {}: {} ({})\n", w.expires, w.cases, w.reason, w.link);
  } catch (const std::runtime_error& e) {
    reasons.emplace_back(e.what());
  }
  if (!good.empty()) fmt::print("conforming: {}; {} cases\n", fmt::join(good, ", "), cases);
  if (reasons.empty()) return 0;
  print_verdict("NOT conforming", bad, reasons);
  return 1;
}

}  // namespace

Action add_verify_report_command(CLI::App& app, Session& session) {
  auto options = std::make_shared<VerifyCommandOptions>();
  CLI::App* command = app.add_subcommand(
      "verify-report", "Checks a submission, a folder that --report wrote, against the must-pass lists");
  command->add_option("FOLDER", options->folder, "the submission")->required();
  command->add_option("--day", options->day, "judge the waivers as of this day, YYYY-MM-DD (today)");
  return [&session, options] {
    if (!std::filesystem::is_directory(options->folder))
      throw std::invalid_argument("verify-report: " + options->folder + " is no folder");
    if (!is_day(options->day)) throw std::invalid_argument("--day " + options->day + ": expected YYYY-MM-DD");
    return verify(*options, session.selection);
  };
}

}  // namespace tutti::conformance
