// SPDX-License-Identifier: Apache-2.0
#include "process_state.hpp"

#include <sys/stat.h>

#include <fstream>
#include <span>
#include <sstream>

#include "flight_file.hpp"

namespace info {

uint64_t this_host() {
  static const uint64_t host = [] {
    std::string boot;
    if (std::ifstream file("/proc/sys/kernel/random/boot_id"); file) std::getline(file, boot);
    struct stat pids {};
    const bool known = stat("/proc/self/ns/pid", &pids) == 0;
    const std::string text = boot + "/" + std::to_string(known ? static_cast<uint64_t>(pids.st_ino) : 0);
    return flight_hash(std::as_bytes(std::span(text)));
  }();
  return host;
}

ProcessState process_state(uint64_t host, uint64_t pid, uint64_t start) {
  if (host != this_host()) return ProcessState::elsewhere;
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return ProcessState::gone;
  // After the program's name in parentheses: state, then 18 numbers, then the start time.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return ProcessState::gone;
  std::istringstream fields(line.substr(name_end + 1));
  char state = 0;
  fields >> state;
  std::string skipped;
  for (int i = 0; i < 18; ++i) fields >> skipped;
  uint64_t began = 0;
  fields >> began;
  if (began != start || state == 'Z' || state == 'X') return ProcessState::gone;
  return state == 'T' || state == 't' ? ProcessState::stopped : ProcessState::running;
}

const char* process_state_name(ProcessState state) {
  switch (state) {
    case ProcessState::running:
      return "running";
    case ProcessState::stopped:
      return "stopped";
    case ProcessState::gone:
      return "dead";
    case ProcessState::elsewhere:
      return "elsewhere";
  }
  return "?";
}

}  // namespace info
