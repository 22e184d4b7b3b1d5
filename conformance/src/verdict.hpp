// SPDX-License-Identifier: Apache-2.0
//
// The result of a case.
#pragma once

#include <string>

namespace tutti::conformance {

enum class Verdict {
  pass,
  warning,        // right, but worth a word (performance)
  not_supported,  // the plugin says so itself, by its capabilities or supports(); legal only then, and never in a
                  // must-pass case
  not_run,        // the machine lacks what the case needs, or the run ended before
  fail,           // a wrong answer or a broken promise; a failed connection is one, too
  crash,          // a process ended by a signal or by an exit that nobody asked for
  timeout         // the deadline passed
};

// "pass", "not supported" ...
const char* verdict_name(Verdict verdict);
// "not_supported" ...: the same for files.
const char* verdict_key(Verdict verdict);
// The verdict of a key; throws std::runtime_error naming the known ones.
Verdict verdict_from_key(const std::string& key);
// Does the verdict keep what was tested from conforming (in any case, must-pass or not)?
constexpr bool is_bad(Verdict v) { return v == Verdict::fail || v == Verdict::crash || v == Verdict::timeout; }

struct Outcome {
  Verdict verdict = Verdict::pass;
  std::string
      message;  // a sentence or more: who, what was expected, what came, where to look. For a pass: empty, or a remark
  std::string clause;  // the clause that was found broken ("T-7"); empty: any of the case's

  static Outcome pass() { return {}; }
  static Outcome fail(std::string text, std::string clause = {}) {
    return {Verdict::fail, std::move(text), std::move(clause)};
  }
  static Outcome warning(std::string text) { return {Verdict::warning, std::move(text), {}}; }
  static Outcome not_supported(std::string reason) { return {Verdict::not_supported, std::move(reason), {}}; }
  static Outcome not_run(std::string reason) { return {Verdict::not_run, std::move(reason), {}}; }
};

}  // namespace tutti::conformance
