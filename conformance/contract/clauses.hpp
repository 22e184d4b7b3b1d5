// SPDX-License-Identifier: Apache-2.0
//
// The contract of plugins as numbered clauses. Cases and mutants name clauses by their ids; docs/contract.md is made
// from this table.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tutti::conformance {

struct Clause {
  const char* id;    // "T-7": E entry and host, T transport/1, V view/1, W wait_fd/1, R rails/1, M mapped/1, A
                     // algorithm/1, D device/1, X executor/1; "nccl.order": NCCL's network plugins
  const char* text;  // what the plugin must or must not do; Markdown, one line
};

// In the order of the page.
std::span<const Clause> clauses();
// nullptr: there is no such clause.
const Clause* find_clause(std::string_view id);
// docs/contract.md.
std::string contract_page();

}  // namespace tutti::conformance
