// SPDX-License-Identifier: Apache-2.0
#include "pick.hpp"

#include <dlfcn.h>

#include <string>

#include "../src/loaded_mpi.hpp"
#include "start_again.hpp"

namespace tutti::mpi {
namespace {

std::string own_folder() {
  Dl_info own{};
  dladdr(reinterpret_cast<void*>(&pick), &own);
  const std::string file = own.dli_fname ? own.dli_fname : "";
  return file.substr(0, file.find_last_of('/') + 1);
}

std::string picked_file() { return loaded_mpi().is_open_mpi() ? "libtutti-mpi-openmpi.so" : "libtutti-mpi-mpich.so"; }

void* load() {
  void* handle = dlopen((own_folder() + picked_file()).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    stop("the program uses " + loaded_mpi().file + ", for which " + picked_file() +
         " is needed, which cannot be loaded: " + dlerror());
  return handle;
}

__attribute__((constructor)) void begin(int, char** arguments, char**) {
  start_again(own_folder().c_str(), arguments);
}

}  // namespace

PassedOn pick(const char* name) {
  static void* const picked = load();
  void* function = dlsym(picked, name);
  // Forms that the other MPI library has alone.
  if (!function) function = dlsym(loaded_mpi().handle, name);
  if (!function)
    stop(loaded_mpi().file + " has no " + name + ", which the program found in this file: preload " + picked_file() +
         " instead");
  return reinterpret_cast<PassedOn>(function);
}

}  // namespace tutti::mpi
