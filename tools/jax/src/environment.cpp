// SPDX-License-Identifier: Apache-2.0
//
// Begin and end, versions, and the texts of errors.
#include <algorithm>
#include <cstring>

#include "job.hpp"

using namespace tutti::mpitrampoline;

TUTTI_MPITRAMPOLINE_EXPORT const int mpiabi_version_major = kAbiMajor;
TUTTI_MPITRAMPOLINE_EXPORT const int mpiabi_version_minor = kAbiMinor;
TUTTI_MPITRAMPOLINE_EXPORT const int mpiabi_version_patch = kAbiPatch;

// MPItrampoline calls it first.
TUTTI_MPITRAMPOLINE_EXPORT void mpiwrapper_export_fortran_constants_() {}

TUTTI_MPITRAMPOLINE_EXPORT int MPIABI_Init_thread(int*, char***, int, int* provided) {
  return ending("MPI_Init_thread", [&] {
    initialize();
    *provided = MPI_THREAD_SERIALIZED;
  });
}

TUTTI_MPITRAMPOLINE_EXPORT int MPIABI_Finalize() {
  return ending("MPI_Finalize", [] { finalize(); });
}

TUTTI_MPITRAMPOLINE_EXPORT int MPIABI_Initialized(int* flag) {
  *flag = initialized();
  return MPI_SUCCESS;
}

TUTTI_MPITRAMPOLINE_EXPORT int MPIABI_Finalized(int* flag) {
  *flag = finalized();
  return MPI_SUCCESS;
}

// Yes for every thread: any of them may call. JAX makes communicators by the threads that run its programs, and refuses
// to if the answer is no.
TUTTI_MPITRAMPOLINE_EXPORT int MPIABI_Is_thread_main(int* flag) {
  *flag = 1;
  return MPI_SUCCESS;
}

TUTTI_MPITRAMPOLINE_EXPORT int MPIABI_Get_version(int* version, int* subversion) {
  *version = 3;
  *subversion = 1;
  return MPI_SUCCESS;
}

TUTTI_MPITRAMPOLINE_EXPORT int MPIABI_Get_library_version(char* version, int* length) {
  const std::string text = fmt::format("Tutti {}", tutti_version());
  std::memcpy(version, text.c_str(), text.size() + 1);
  *length = static_cast<int>(text.size());
  return MPI_SUCCESS;
}

TUTTI_MPITRAMPOLINE_EXPORT int MPIABI_Error_string(int code, char* string, int* length) {
  std::string text = reported(code);
  if (text.empty()) text = code == MPI_SUCCESS ? "success" : fmt::format("error {} of MPI", code);
  text.resize(std::min<size_t>(text.size(), kLongestErrorString - 1));
  std::memcpy(string, text.c_str(), text.size() + 1);
  *length = static_cast<int>(text.size());
  return MPI_SUCCESS;
}
