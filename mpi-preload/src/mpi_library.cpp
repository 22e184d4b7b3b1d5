// SPDX-License-Identifier: Apache-2.0
#include "mpi_library.hpp"

#include <dlfcn.h>

#include <cstring>

#include "loaded_mpi.hpp"

namespace tutti::mpi {

void* find_mpi_symbol(const char* name) { return dlsym(loaded_mpi().handle, name); }

void* mpi_symbol(const char* name) {
  if (void* found = find_mpi_symbol(name)) return found;
  stop(loaded_mpi().file + " has no " + name + ": this file was built for " + built_for);
}

void* mpi_variable(const char* name) {
  if (void* found = dlsym(RTLD_DEFAULT, name)) return found;
  return mpi_symbol(name);
}

void require_matching_library() {
  // Has no handle among its arguments, so that it can be called whatever the ABI.
  auto* version = reinterpret_cast<int (*)(char*, int*)>(mpi_symbol("PMPI_Get_library_version"));
  char text[16384] = "";
  int length = 0;
  version(text, &length);
  text[std::strcspn(text, "\n")] = '\0';
  const bool open_mpi = loaded_mpi().is_open_mpi(), standard = loaded_mpi().has_standard_abi();
#if defined(OPEN_MPI)
  const bool matches = open_mpi && !standard;
  const char* other = "libtutti-mpi-mpich.so";
#else
  const bool matches = !open_mpi && !standard;
  const char* other = "libtutti-mpi-openmpi.so";
#endif
  if (matches) return;
  stop("the program uses " + std::string(text) + " (" + loaded_mpi().file + "), but the preloaded file is for " +
       built_for +
       (standard
            ? ": the MPI ABI of libmpi_abi.so is not served; link the program with the library's own ABI (libmpi.so)"
            : std::string(": preload libtutti-mpi.so, which picks the right file, or ") + other));
}

}  // namespace tutti::mpi
