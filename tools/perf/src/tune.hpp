// SPDX-License-Identifier: Apache-2.0
//
// --tune: the algorithms of each collective against each other on the job's own ranks, as a table and as a tuning file
// for TUTTI_TUNING (docs/algorithms.md lists its keys).
#pragma once

#include <tutti/tutti.hpp>

#include "options.hpp"

namespace perf {

// Every algorithm has a communicator of its own, in which it is forced. All are timed in turn, in several rounds; the
// median round counts. Collective: every rank calls it with the same options. Returns the exit status. Throws
// tutti::Error.
int tune(const tutti::Communicator& comm, const Options& options);

}  // namespace perf
