// SPDX-License-Identifier: Apache-2.0
//
// Suites: where cases come from. A suite is named in one table, in suites.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "case.hpp"
#include "selection.hpp"

namespace tutti::conformance {

struct Suite {
  const char* name;     // the first part of its ids
  const char* summary;  // one line
  // Appends the cases of the selection's level that its filters let through (case ids aside: the caller does that).
  // Plugins are loaded. Deterministic: the same plugins and selection give the same cases.
  void (*list)(const Selection& selection, std::vector<Case>& cases);
  // The case of an id of this suite, or nothing. nullptr: the id is looked for among list() at the level full.
  std::optional<Case> (*find)(const std::string& id);
};

const std::vector<Suite>& suites();
// One more, in this process only: for tests of the suite itself. A worker that is to run its cases must add it, too.
void add_suite(const Suite& suite);

// The cases that a selection asks for, in order of suites. Throws std::invalid_argument when it names a case that is
// not there.
std::vector<Case> select_cases(const Selection& selection);
std::optional<Case> find_case(const std::string& id);

// Does `text` match `pattern`, in which '*' stands for anything?
bool matches(const std::string& pattern, const std::string& text);

}  // namespace tutti::conformance
