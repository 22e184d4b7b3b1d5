// SPDX-License-Identifier: Apache-2.0
//
// The ABI of MPItrampoline (github.com/eschnett/MPItrampoline), version 2: what it looks up in the library that
// MPITRAMPOLINE_LIB names. It is MPI 3.1 with MPIABI_ for MPI_ in the names, and constants that are variables. The
// names are in abi/constants.txt and abi/unserved.txt, and the functions that are served in the sources here.
//
// jaxlib 0.10.2 contains MPItrampoline 5.3.1, which asks for version 2.9. Version 2.10 has one function more.
#pragma once

#include <cstdint>

#define TUTTI_MPITRAMPOLINE_EXPORT extern "C" __attribute__((visibility("default")))

namespace tutti::mpitrampoline {

inline constexpr int kAbiMajor = 2, kAbiMinor = 10, kAbiPatch = 0;

// A communicator, type, operator or request.
using Handle = std::uintptr_t;

// What MPI_Wait and MPI_Sendrecv write, unless they are given MPI_STATUS_IGNORE.
struct Status {
  uint64_t of_the_library[3];
  int source, tag, error;
};
static_assert(sizeof(Status) == 40);

inline constexpr int kLongestErrorString = 1024;  // with its NUL

}  // namespace tutti::mpitrampoline
