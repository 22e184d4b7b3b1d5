// SPDX-License-Identifier: Apache-2.0
#include "process_state.hpp"

#include <tutti/registry.h>

#include <fstream>
#include <string_view>
#include <tutti/sdk/text.hpp>
#include <vector>

#include "texts/texts.hpp"

namespace info {

uint64_t this_host() {
  static const uint64_t host = tutti::host_identity().processes;
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
  const std::vector<std::string> fields = texts::words_of(std::string_view(line).substr(name_end + 1));
  constexpr size_t start_time = 19;
  if (fields.size() <= start_time) return ProcessState::gone;
  const char state = fields.front().front();
  const uint64_t began = tutti::whole_number(fields[start_time], 0, UINT64_MAX).value_or(0);
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
