// SPDX-License-Identifier: Apache-2.0
#include "report/must_pass.hpp"

#include <sstream>
#include <stdexcept>

#include "must_pass_lists.hpp"  // made from conformance/mustpass by report/CMakeLists.txt

namespace tutti::conformance {

std::vector<std::string> must_pass_lines(const std::string& kind) {
  std::string text;
  if (kind == "transport")
    text = transport_list;
  else if (kind == "algorithm")
    text = algorithm_list;
  else if (kind == "device")
    text = device_list;
  else
    throw std::invalid_argument("there is no must-pass list for a " + kind +
                                ": there are transport, algorithm, device");
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    if (!line.empty() && line[0] != '#') lines.push_back(line);
  return lines;
}

std::vector<std::string> must_pass_patterns(const Subject& subject) {
  std::vector<std::string> patterns = must_pass_lines(subject.kind);
  const std::string place = "{" + subject.kind + "}";
  for (std::string& pattern : patterns)
    for (size_t at; (at = pattern.find(place)) != std::string::npos;) pattern.replace(at, place.size(), subject.name);
  return patterns;
}

}  // namespace tutti::conformance
