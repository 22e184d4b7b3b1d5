// SPDX-License-Identifier: Apache-2.0
//
// Programs that load MPI late, such as Python with mpi4py's wheels, look at run time for the functions that their MPI
// library has. libtutti-mpi.so has those of every MPI library. So when a process starts without an MPI library, and the
// launcher's variables tell which one its job has, it starts again with the file for that library preloaded.
#pragma once

namespace tutti::mpi {

// Before main(). Returns if the process is not to start again.
void start_again(const char* folder, char** arguments);

}  // namespace tutti::mpi
