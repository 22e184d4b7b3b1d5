// SPDX-License-Identifier: Apache-2.0
//
// One rank's whole run: who is there, all rows, the report (rank 0), the exit status.
#pragma once

#include <tutti/tutti.h>

#include "options.hpp"

namespace perf {

// Makes a communicator from `config`, measures everything and destroys it. Returns the exit status of this rank: 0, 1
// for wrong results on any rank or a failed call, 2 for options that do not fit the number of ranks. Throws nothing.
int run_rank(const Options& options, tutti_comm_config config);

}  // namespace perf
