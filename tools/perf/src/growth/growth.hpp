// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace perf {

struct Options;

// `tutti-perf growth`: jobs of growing size, one at a time. The program's exit status: 1 where a size was not measured.
// The calling process must not have made a communicator, and has one thread.
int measure_growth(const Options& options);

}  // namespace perf
