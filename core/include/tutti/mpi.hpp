// SPDX-License-Identifier: Apache-2.0
//
// A communicator of the ranks of an MPI communicator, for programs that use both libraries. Compile with mpicxx, link
// libtutti. mpi.h beside this file has the same for C, and all of the rules.
//
//   tutti::Communicator world = tutti::from_mpi(MPI_COMM_WORLD);
#pragma once

#include <tutti/mpi.h>

#include <string>
#include <tutti/tutti.hpp>

namespace tutti {

// Collective over `mpi`, as tutti_comm_create_from_mpi is. If one rank fails, all throw that rank's error.
inline Communicator from_mpi(MPI_Comm mpi, tutti_comm_config config = Communicator::defaults()) {
  std::string error(TUTTI_MPI_TEXT, '\0');
  if (!config.error) {
    config.error = error.data();
    config.error_bytes = error.size();
  }
  tutti_comm* made = nullptr;
  const tutti_status status = tutti_comm_create_from_mpi(mpi, &config, &made);
  if (status < 0) throw Error(status, config.error);
  return Communicator(made);
}

}  // namespace tutti
