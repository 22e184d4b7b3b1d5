// SPDX-License-Identifier: Apache-2.0
#include "suites.hpp"

#include <algorithm>
#include <set>
#include <stdexcept>

#include "chaos/chaos.hpp"
#include "contract/contract.hpp"
#include "fuzz/trial.hpp"
#include "matrix/matrix.hpp"
#include "performance/performance.hpp"
#include "proofs/proofs.hpp"
#include "runner.hpp"
#include "soak/walk.hpp"

namespace tutti::conformance {

namespace {

std::vector<Suite>& table() {
  static std::vector<Suite> all{
      contract_suite(),    proof_suite(), matrix_suite(),     chaos_suite(),
      performance_suite(), soak_suite(),  fuzz::fuzz_suite(),
  };
  return all;
}

}  // namespace

const std::vector<Suite>& suites() { return table(); }
void add_suite(const Suite& suite) { table().push_back(suite); }

bool matches(const std::string& pattern, const std::string& text) {
  size_t p = 0, t = 0, star = std::string::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::optional<Case> find_case(const std::string& id) {
  for (const Suite& suite : suites()) {
    if (id.rfind(std::string(suite.name) + '/', 0) != 0) continue;
    if (suite.find) return suite.find(id);
    Selection everything;
    everything.level = Level::full;
    std::vector<Case> cases;
    suite.list(everything, cases);
    for (Case& one : cases)
      if (one.id == id) return std::move(one);
  }
  return std::nullopt;
}

namespace {

// The listed case that has most leading parts in common with an id that is none: what may have been meant.
std::string nearest_case(const std::string& id) {
  std::vector<Case> listed;
  Selection few;
  for (const Suite& suite : suites()) suite.list(few, listed);
  std::string nearest;
  size_t most = 0;
  for (const Case& one : listed) {
    const auto differs = std::mismatch(id.begin(), id.end(), one.id.begin(), one.id.end()).first;
    const auto parts = static_cast<size_t>(std::count(id.begin(), differs, '/'));
    if (parts > most) nearest = one.id, most = parts;
  }
  return nearest.empty() ? "" : "; one that begins alike is " + nearest;
}

}  // namespace

std::vector<Case> select_cases(const Selection& selection) {
  std::vector<Case> cases;
  std::vector<std::string> patterns;
  for (const std::string& name : selection.cases) {
    if (name.find('*') != std::string::npos) {
      patterns.push_back(name);
      continue;
    }
    auto found = find_case(name);
    if (!found) {
      std::string known;
      for (const Suite& suite : suites()) known += (known.empty() ? "" : ", ") + std::string(suite.name);
      throw std::invalid_argument("there is no case \"" + name + "\"; suites: " + known + "; --list shows the cases" +
                                  nearest_case(name));
    }
    cases.push_back(std::move(*found));
  }
  if (!selection.cases.empty() && patterns.empty()) return cases;
  std::vector<Case> listed;
  for (const Suite& suite : suites()) suite.list(selection, listed);
  for (Case& one : listed)
    if (patterns.empty() || std::any_of(patterns.begin(), patterns.end(),
                                        [&](const std::string& pattern) { return matches(pattern, one.id); }))
      cases.push_back(std::move(one));
  if (!patterns.empty() && cases.empty())
    throw std::invalid_argument("no case of the level matches \"" + patterns.front() + "\"; --list shows the cases");
  if (selection.share.n > 1)
    std::erase_if(cases, [&](const Case& one) {
      return case_seed(selection.seed, one.id) % selection.share.n != selection.share.k - 1;
    });
  return cases;
}

}  // namespace tutti::conformance
