// SPDX-License-Identifier: Apache-2.0
//
// TUTTI_MPI_*, read once. An unknown name, or a value other than 0 and 1, ends the process.
#pragma once

namespace tutti::mpi {

struct Settings {
  bool require = false;  // TUTTI_MPI_REQUIRE: a call that falls through is an error
  bool report = true;    // TUTTI_MPI_REPORT: rank 0 prints the counts
};
const Settings& settings();

}  // namespace tutti::mpi
