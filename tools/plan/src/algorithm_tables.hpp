// SPDX-License-Identifier: Apache-2.0
//
// The algorithms of all plugins: a list, or Markdown tables of what they cost (docs/algorithms.md).
#pragma once

#include <tutti/schedule.h>

#include <string>
#include <vector>

namespace tutti::plan {

// A line for each algorithm: its name, its summary and its collectives.
std::string algorithm_list(const std::vector<const tutti_algorithm*>& algorithms);

// The same as a table, and one for each collective, with figures for 16 ranks on 4 hosts. Throws std::runtime_error
// where a schedule is wrong.
std::string algorithm_tables(const std::vector<const tutti_algorithm*>& algorithms);

}  // namespace tutti::plan
