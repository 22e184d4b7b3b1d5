// SPDX-License-Identifier: Apache-2.0
#include "page.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "contract/clauses.hpp"

namespace tutti::conformance {
namespace {

void print_in_full(const Result& result, bool verbose) {
  const Verdict verdict = result.outcome.verdict;
  if (verdict == Verdict::pass && !verbose) return;
  if ((verdict == Verdict::not_supported || verdict == Verdict::not_run) && !verbose && !result.must_pass) return;
  fmt::print("{:<13} {}\n", verdict_name(verdict), result.id);
  if (const Clause* clause = find_clause(result.outcome.clause))
    fmt::print("  breaks {}: {}\n", clause->id, clause->text);
  if (!result.outcome.message.empty())
    fmt::print("  {}{}\n", result.outcome.clause.empty() ? "" : "but: ", result.outcome.message);
  if (is_bad(verdict)) fmt::print("  again: {}\n", result.reproduce);
}

// Where the author of a plugin finds more.
std::string where_to_look(const Result& result) {
  const std::string algorithm = axis_of(result, "algorithm"), collective = axis_of(result, "collective");
  const std::string clause = result.outcome.clause.empty() ? "" : "docs/contract.md, " + result.outcome.clause + "; ";
  if (result.kind == "proof") return fmt::format("{}tutti-plan print {} {}", clause, collective, algorithm);
  if (result.kind == "matrix")
    return clause + "the cases of contract/ and proof/ that fail: the matrix shows their consequences";
  return clause + "TUTTI_CONFORM_VERBOSE=1 prints the plugin's own log, tutti-conform --case one case";
}

// The first line, cut at a length that a terminal shows.
std::string headline(const std::string& text) {
  constexpr size_t most = 400;
  const std::string line = text.substr(0, text.find('\n'));
  return line.size() <= most ? line : line.substr(0, most) + " ...";
}

// "T-9 in 2, T-11 in 1 and 3 without a clause": besides `first`.
std::string others(const Run& run, const Result& first) {
  std::map<std::string, uint64_t> clauses;
  for (const Result& result : run.results)
    if (is_bad(result.outcome.verdict) && &result != &first) ++clauses[result.outcome.clause];
  std::string text;
  for (const auto& [id, times] : clauses)
    text += fmt::format("{}{} in {}", text.empty() ? "" : ", ", id.empty() ? "no clause named" : id, times);
  return text;
}

}  // namespace

ResultPrinter::ResultPrinter(bool verbose, size_t cases)
    : verbose_(verbose), cases_(cases), terminal_(isatty(STDOUT_FILENO) != 0) {}
ResultPrinter::~ResultPrinter() { clear(); }

void ResultPrinter::clear() const {
  if (!terminal_) return;
  fmt::print("\r\x1b[K");
  std::fflush(stdout);
}

void ResultPrinter::print(const Result& result) {
  clear();
  if (verbose_)
    print_in_full(result, true);
  else if (is_bad(result.outcome.verdict))
    fmt::print("{:<13} {}{}\n", verdict_name(result.outcome.verdict), result.id,
               result.outcome.clause.empty() ? "" : "  breaks " + result.outcome.clause);
  ++done_;
  if (terminal_) fmt::print("{} of {} cases", done_, cases_);
  std::fflush(stdout);
}

const Result* first_bad(const Run& run) {
  const Result* first = nullptr;
  for (const Result& result : run.results)
    if (is_bad(result.outcome.verdict) &&
        (!first || (first->outcome.clause.empty() && !result.outcome.clause.empty())))
      first = &result;
  return first;
}

void print_page(const Run& run, const std::string& verdict, const std::string& smallest, bool verbose) {
  fmt::print("{}\n", verdict);
  if (const Result* first = first_bad(run)) {
    if (const Clause* clause = find_clause(first->outcome.clause))
      fmt::print("  broken    {}: {}\n", clause->id, clause->text);
    fmt::print("  seen      {}: {}: {}\n  look at   {}\n  again     {}\n", first->id, verdict_name(first->outcome.verdict),
               headline(first->outcome.message), where_to_look(*first), first->reproduce);
    if (!smallest.empty()) fmt::print("  smallest  {}\n", smallest);
    if (const std::string more = others(run, *first); !more.empty()) fmt::print("  others    {}\n", more);
  }
  if (verbose) return;
  constexpr uint64_t in_full = 3;
  std::map<std::string, uint64_t> shown;  // by clause
  for (const Result& result : run.results) {
    const bool bad = is_bad(result.outcome.verdict);
    if (!bad || ++shown[result.outcome.clause] <= in_full) print_in_full(result, false);
  }
}

}  // namespace tutti::conformance
