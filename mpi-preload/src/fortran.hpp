// SPDX-License-Identifier: Apache-2.0
//
// The Fortran functions of MPI's libraries call those of C by their second names: MPI_ALLREDUCE of Open MPI calls
// PMPI_Allreduce, and MPI_WAIT of MPICH's module mpi_f08 PMPI_Wait. So the preload has these names as well. It serves
// the calls that come from the libraries for Fortran. It passes on all others, such as those of MPI-IO inside of Open
// MPI.
#pragma once

#include "passed_on.hpp"

namespace tutti::mpi {

// `caller`: the address to which a function returns.
bool is_called_by_fortran(const void* caller);
// The MPI library's own function. Ends the process, with a message, if it has none.
PassedOn of_mpi(const char* name);

}  // namespace tutti::mpi
