// SPDX-License-Identifier: Apache-2.0
//
// JUnit XML as CI systems read it: a suite of tests for each kind of case; a crash or timeout is an error, what is not
// supported, not run or waived is skipped with its reason.
#include <fmt/format.h>

#include <map>

#include "report/judgement.hpp"
#include "report/report.hpp"
#include "report/text_file.hpp"
#include "report/waivers.hpp"

namespace tutti::conformance {
namespace {

// Characters that XML 1.0 cannot hold become '?'.
std::string xml_text(const std::string& text) {
  std::string safe;
  for (const char c : text) switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\n':
        safe += "&#10;";
        break;
      default:
        safe += static_cast<unsigned char>(c) >= 0x20 && static_cast<unsigned char>(c) < 0x7f ? c : '?';
    }
  return safe;
}

std::string element(const char* name, const Result& r) {
  const std::string clause = r.outcome.clause.empty() ? "" : "breaks " + r.outcome.clause + ": ";
  return fmt::format("<{} type=\"{}\" message=\"{}\">{}</{}>", name, verdict_key(r.outcome.verdict),
                     xml_text(clause + r.outcome.message), xml_text("again: " + r.reproduce), name);
}

struct JunitSuite {
  std::string cases;
  uint64_t tests = 0, failures = 0, errors = 0, skipped = 0;
  double seconds = 0;

  void add(const Result& r, const Waiver* waiver) {
    ++tests;
    seconds += r.seconds;
    cases += fmt::format("<testcase classname=\"{}\" name=\"{}\" time=\"{:.3f}\">", xml_text(r.kind), xml_text(r.id),
                         r.seconds);
    const Verdict verdict = r.outcome.verdict;
    if (waiver && is_bad(verdict)) {
      ++skipped;
      cases += fmt::format("<skipped message=\"{}\"/>",
                           xml_text(fmt::format("{}, waived until {}: {} ({})", verdict_name(verdict), waiver->expires,
                                                waiver->reason, waiver->link)));
    } else if (verdict == Verdict::fail) {
      ++failures;
      cases += element("failure", r);
    } else if (is_bad(verdict)) {
      ++errors;
      cases += element("error", r);
    } else if (verdict == Verdict::not_supported || verdict == Verdict::not_run) {
      ++skipped;
      cases += fmt::format("<skipped message=\"{}: {}\"/>", verdict_name(verdict), xml_text(r.outcome.message));
    } else if (!r.outcome.message.empty()) {
      cases += fmt::format("<system-out>{}{}</system-out>", verdict == Verdict::warning ? "warning: " : "",
                           xml_text(r.outcome.message));
    }
    cases += "</testcase>\n";
  }
};

}  // namespace

std::string junit_text(const Run& run) {
  std::map<std::string, JunitSuite> suites;
  JunitSuite all;
  const std::string day = day_of(run);
  for (const Result& r : run.results) {
    const Waiver* waiver = waiver_of(run.waivers, r, day);
    suites[r.kind].add(r, waiver);
    all.add(r, waiver);
  }
  const auto counts = [](const JunitSuite& s) {
    return fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3f}\"", s.tests, s.failures,
                       s.errors, s.skipped, s.seconds);
  };
  std::string text =
      fmt::format("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"tutti-conform\" {}>\n", counts(all));
  std::string properties;
  const auto property = [&](const std::string& name, const std::string& value) {
    properties += fmt::format("<property name=\"{}\" value=\"{}\"/>\n", xml_text(name), xml_text(value));
  };
  property("command", run.manifest.command_line);
  property("level", run.manifest.level);
  property("seed", fmt::format("{:#x}", run.manifest.seed));
  for (const auto& [name, value] : run.manifest.machine) property(name, value);
  for (const PluginFact& p : run.manifest.plugins) property("plugin " + p.id, p.version + " " + p.sha256);
  for (const auto& [name, suite] : suites)
    text += fmt::format("<testsuite name=\"{}\" timestamp=\"{}\" {}>\n<properties>\n{}</properties>\n{}</testsuite>\n",
                        xml_text(name), xml_text(run.manifest.started), counts(suite), properties, suite.cases);
  return text + "</testsuites>\n";
}

void write_junit(const Run& run, const std::string& path) { write_text_file(path, junit_text(run)); }

}  // namespace tutti::conformance
