// SPDX-License-Identifier: Apache-2.0
#include "start_again.hpp"

#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <string>
#include <string_view>

#include "../src/loaded_mpi.hpp"

namespace tutti::mpi {
namespace {

constexpr std::string_view own_name = "libtutti-mpi.so";

// Of the launcher's MPI library; "": unknown.
std::string file_by_launcher() {
  if (std::getenv("OMPI_COMM_WORLD_RANK")) return "libtutti-mpi-openmpi.so";
  if (std::getenv("PMI_RANK") && (std::getenv("MPI_LOCALRANKID") || std::getenv("HYDI_CONTROL_FD")))
    return "libtutti-mpi-mpich.so";
  return "";
}

// LD_PRELOAD with `file` in the place of this library; "": it does not name this library, or names a debugger's too.
std::string other_preload(const std::string& file) {
  const char* given = std::getenv("LD_PRELOAD");
  std::string text = given ? given : "";
  if (text.find("vgpreload") != std::string::npos) return "";
  const size_t at = text.rfind(own_name);
  if (at == std::string::npos || text.find(own_name) != at) return "";
  const size_t begin = text.find_last_of(": ", at) + 1, end = at + own_name.size();
  if (end != text.size() && text[end] != ':' && text[end] != ' ') return "";
  return text.replace(begin, end - begin, file);
}

// The program's file; "" if the loader was started as the program.
std::string own_program() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0 || length == sizeof path) return "";
  const std::string program(path, static_cast<size_t>(length));
  return program.find("/ld-") == std::string::npos ? program : "";
}

}  // namespace

void start_again(const char* folder, char** arguments) {
  const std::string file = file_by_launcher();
  if (file.empty() || has_loaded_mpi()) return;
  const std::string path = folder + file, preload = other_preload(path), program = own_program();
  if (preload.empty() || program.empty() || access(path.c_str(), R_OK) != 0) return;
  setenv("LD_PRELOAD", preload.c_str(), 1);
  execv(program.c_str(), arguments);
}

}  // namespace tutti::mpi
