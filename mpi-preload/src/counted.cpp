// SPDX-License-Identifier: Apache-2.0
#include "counted.hpp"

#include <string>

#include "serve.hpp"

namespace tutti::mpi {

Counted::Counted(const char* name, int communicator)
    : communicator_(communicator),
      counted_as_(static_cast<int>(function_of(name))),
      function_(reinterpret_cast<PassedOn>(mpi_symbol(("P" + std::string(name)).c_str()))) {}

void Counted::count_call(Word communicator) const {
  const auto function = static_cast<Function>(counted_as_);
  const auto comm = (MPI_Comm)communicator;  // an int in MPICH, a pointer in Open MPI
  static const MPI_Comm none = MPI_COMM_NULL;
  if (!is_running() || comm == none) return;  // MPI refuses it
  fall_through(function, function >= Function::neighbor_all_gather ? Verdict::neighborhood : Verdict::persistent, "",
               comm);
}

}  // namespace tutti::mpi
