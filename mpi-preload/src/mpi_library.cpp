// SPDX-License-Identifier: Apache-2.0
#include "mpi_library.hpp"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace tutti::mpi {
namespace {

struct Library {
  void* handle = nullptr;
  std::string file;
};

std::vector<std::string> loaded_files() {
  std::vector<std::string> files;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* list) {
        if (info->dlpi_name && *info->dlpi_name)
          static_cast<std::vector<std::string>*>(list)->emplace_back(info->dlpi_name);
        return 0;
      },
      &files);
  return files;
}

// The object that defines PMPI_Init itself: others only need it.
Library find_library() {
  for (const std::string& file : loaded_files()) {
    void* handle = dlopen(file.c_str(), RTLD_NOLOAD | RTLD_LAZY | RTLD_LOCAL);
    if (!handle) continue;
    Dl_info where{};
    if (void* init = dlsym(handle, "PMPI_Init"); init && dladdr(init, &where) && where.dli_fname == file)
      return {handle, file};
    dlclose(handle);
  }
  return {};
}

[[noreturn]] void stop(const std::string& text) {
  std::fprintf(stderr, "tutti-mpi: %s\n", text.c_str());
  std::fflush(nullptr);
  _exit(1);
}

const Library& library() {
  static const Library found = find_library();
  if (!found.handle)
    stop("the process " + std::to_string(getpid()) +
         " calls MPI, but none of its shared libraries defines PMPI_Init: expected a program that is linked with the "
         "shared library of " +
         built_for + "; a program that is linked statically cannot be served");
  return found;
}

}  // namespace

void* find_mpi_symbol(const char* name) { return dlsym(library().handle, name); }

void* mpi_symbol(const char* name) {
  if (void* found = find_mpi_symbol(name)) return found;
  stop(library().file + " has no " + name + ": this file was built for " + built_for);
}

void require_matching_library() {
  // Has no handle among its arguments, so that it can be called whatever the ABI.
  auto* version = reinterpret_cast<int (*)(char*, int*)>(mpi_symbol("PMPI_Get_library_version"));
  char text[16384] = "";
  int length = 0;
  version(text, &length);
  text[std::strcspn(text, "\n")] = '\0';
  const bool open_mpi = find_mpi_symbol("ompi_mpi_comm_world") != nullptr;
  const bool standard = library().file.find("libmpi_abi") != std::string::npos;
#if defined(OPEN_MPI)
  const bool matches = open_mpi && !standard;
  const char* other = "libtutti-mpi-mpich.so";
#else
  const bool matches = !open_mpi && !standard && find_mpi_symbol("PMPI_Comm_get_attr");
  const char* other = "libtutti-mpi-openmpi.so";
#endif
  if (matches) return;
  stop("the program uses " + std::string(text) + " (" + library().file + "), but the preloaded file is for " + built_for +
       (standard ? ": the MPI ABI of libmpi_abi.so is not served; link the program with the library's own ABI (libmpi.so)"
                 : std::string(": preload libtutti-mpi.so, which picks the right file, or ") + other));
}

}  // namespace tutti::mpi
