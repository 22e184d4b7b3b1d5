// SPDX-License-Identifier: Apache-2.0
//
// The MPI library that the process has loaded. Needs no header of MPI.
#pragma once

#include <string>

namespace tutti::mpi {

struct LoadedMpi {
  void* handle = nullptr;  // for dlsym
  std::string file;

  bool is_open_mpi() const;
  // Is it the ABI that MPI 5 standardizes, which is not that of the library's other file?
  bool has_standard_abi() const { return file.find("libmpi_abi") != std::string::npos; }
};
bool has_loaded_mpi();
// Ends the process, with a message, if there is none.
const LoadedMpi& loaded_mpi();

// Prints "tutti-mpi: " and the text on the standard error. If that is a pipe, returns when the launcher has read it:
// MPICH's loses what it has not read when a job is aborted.
void say(const std::string& text);
// The same, and ends the process.
[[noreturn]] void stop(const std::string& text);

}  // namespace tutti::mpi
