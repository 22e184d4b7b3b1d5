// SPDX-License-Identifier: Apache-2.0
//
// The contract of plugins as numbered clauses: the text of docs/plugin-guide.md, section "The contract", which a test
// holds equal to this table. Cases and mutants name clauses by their ids.
#pragma once

#include <span>
#include <string_view>

namespace tutti::conformance {

struct Clause {
  const char* id;    // "T-7": E entry and host, T transport/1, V view/1, W wait_fd/1, R rails/1, A algorithm/1, D
                     // device/1, X executor/1
  const char* text;  // what a plugin must do; Markdown, one line
};

// In the order of the guide.
std::span<const Clause> clauses();
// nullptr: there is no such clause.
const Clause* find_clause(std::string_view id);

}  // namespace tutti::conformance
