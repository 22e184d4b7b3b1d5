// SPDX-License-Identifier: Apache-2.0
//
// libtutti-mpi.so: when the program first calls MPI, it loads libtutti-mpi-openmpi.so or libtutti-mpi-mpich.so from its
// own folder and passes the calls on.
#pragma once

#include "../src/passed_on.hpp"

namespace tutti::mpi {

// The function of the file for the program's MPI library. Ends the process, with a message, if it cannot be had.
PassedOn pick(const char* name);

}  // namespace tutti::mpi
