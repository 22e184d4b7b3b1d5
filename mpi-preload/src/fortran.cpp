// SPDX-License-Identifier: Apache-2.0
#include "fortran.hpp"

#include <dlfcn.h>

#include <string>
#include <unordered_map>

#include "loaded_mpi.hpp"

namespace tutti::mpi {

bool is_called_by_fortran(const void* caller) {
  // A place in a library calls one function: there are few, and a library stays loaded.
  static thread_local std::unordered_map<const void*, bool> known;
  const auto [entry, is_new] = known.try_emplace(caller, false);
  if (is_new) {
    Dl_info where{};
    const std::string file = dladdr(caller, &where) && where.dli_fname ? where.dli_fname : "";
    const std::string name = file.substr(file.find_last_of('/') + 1);
    for (const char* own : {"libmpi_mpifh", "libmpi_usempi", "libmpichfort", "libmpifort"})
      entry->second |= name.starts_with(own);
  }
  return entry->second;
}

PassedOn of_mpi(const char* name) {
  if (void* function = dlsym(loaded_mpi().handle, name)) return reinterpret_cast<PassedOn>(function);
  stop(loaded_mpi().file + " has no " + name);
}

}  // namespace tutti::mpi
