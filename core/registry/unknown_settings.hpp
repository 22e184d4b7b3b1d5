// SPDX-License-Identifier: Apache-2.0
//
// A misspelt setting does nothing, and nobody tells: TUTTI_TRANSPORTS=tcp runs on shared memory. So variables of the
// environment that begin with TUTTI_ and that nobody knows are named, with the nearest name that somebody does.
#pragma once

#include <string>
#include <vector>

namespace tutti::core {

// One sentence for each of `names` (of environment variables) that is unknown, those that resemble a known one first;
// at most eight, and then one with the number of the others. Known are the core's, those in `asked` (plugins ask for
// theirs when they are opened), and those of programs (TUTTI_PERF_, TUTTI_CONFORM_, TUTTI_TEST_), of the MPI preload
// (TUTTI_MPI_) and of the network plugin for NCCL (TUTTI_NCCL_SERVES). A name that begins as one of the `plugins` does
// (TUTTI_TCP_ for "tcp") may be asked for later: it counts as unknown only when it differs little from one that was
// asked for.
std::vector<std::string> unknown_settings(const std::vector<std::string>& names, const std::vector<std::string>& asked,
                                          const std::vector<std::string>& plugins);

// Logs them as warnings, once per process. [any thread] To be called when plugins have been opened.
void warn_of_unknown_settings();

}  // namespace tutti::core
