// SPDX-License-Identifier: Apache-2.0
#include "loaded_mpi.hpp"

#include <dlfcn.h>
#include <link.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <vector>

namespace tutti::mpi {
namespace {

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

// The object that defines MPI's functions itself: others only need them. The preload has many, but not this one.
LoadedMpi find_mpi() {
  for (const std::string& file : loaded_files()) {
    void* handle = dlopen(file.c_str(), RTLD_NOLOAD | RTLD_LAZY | RTLD_LOCAL);
    if (!handle) continue;
    Dl_info where{};
    void* own = dlsym(handle, "PMPI_Get_library_version");
    if (own && dladdr(own, &where) && where.dli_fname == file) return {handle, file};
    dlclose(handle);
  }
  return {};
}

}  // namespace

bool LoadedMpi::is_open_mpi() const { return dlsym(handle, "ompi_mpi_comm_world") != nullptr; }

bool has_loaded_mpi() { return find_mpi().handle != nullptr; }

void say(const std::string& text) {
  std::fprintf(stderr, "tutti-mpi: %s\n", text.c_str());
  std::fflush(nullptr);
  struct stat kind {};
  int left = 0;
  if (fstat(STDERR_FILENO, &kind) != 0 || !S_ISFIFO(kind.st_mode)) return;
  for (int ms = 0; ms < 2000 && ioctl(STDERR_FILENO, FIONREAD, &left) == 0 && left > 0; ++ms) usleep(1000);
}

void stop(const std::string& text) {
  say(text);
  _exit(1);
}

const LoadedMpi& loaded_mpi() {
  static const LoadedMpi found = find_mpi();
  if (!found.handle)
    stop("the process " + std::to_string(getpid()) +
         " calls MPI, but none of its shared libraries defines PMPI_Get_library_version: expected a program that is "
         "linked with a shared library of Open MPI or MPICH; one that is linked statically cannot be served");
  return found;
}

}  // namespace tutti::mpi
