// SPDX-License-Identifier: Apache-2.0
#include "filters.hpp"

#include <tutti/registry.h>
#include <tutti/schedule.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "nccl_network.hpp"
#include "options.hpp"

namespace tutti::conformance {
namespace {

// A better text than the loader's own.
void require_plugin_file(const std::string& path) {
  std::error_code ignored;
  const std::string refusal =
      path.empty()                                   ? "\"\" is no file's name"
      : std::filesystem::is_directory(path, ignored) ? path + " is a folder: name the file in it"
      : !std::filesystem::exists(path, ignored)      ? path + " cannot be loaded: there is no such file"
                                                     : "";
  if (!refusal.empty()) throw std::invalid_argument("--plugin: " + refusal);
}

void expand_all(std::vector<std::string>& values) {
  if (std::find(values.begin(), values.end(), "all") != values.end()) values.clear();
}

}  // namespace

std::vector<std::string> transports_of(const std::string& mix) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= mix.size();) {
    const size_t end = std::min(mix.find('+', begin), mix.size());
    names.push_back(mix.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

void check_selection(Selection& s) {
  if (!s.nccl_net.empty()) host_nccl_network(s);
  for (const std::string& path : s.plugins) {
    require_plugin_file(path);
    std::string error;
    if (load_plugin(path, &error) < 0) throw std::invalid_argument("--plugin: " + error);
  }
  for (auto* list : {&s.transports, &s.devices, &s.algorithms, &s.collectives, &s.types}) expand_all(*list);
  std::vector<std::string> transports, devices{"host"}, algorithms, collectives, types;
  for (const auto* t : list_transports()) transports.emplace_back(t->name);
  for (const DeviceTables& d : list_devices()) devices.emplace_back(d.memory->name);
  for (const auto* a : list_algorithms()) algorithms.emplace_back(a->name);
  for (uint32_t c = TUTTI_BROADCAST; c <= last_collective; ++c) collectives.emplace_back(collective_name(c));
  for (const uint32_t d : all_dtypes()) types.emplace_back(dtype_name(d));
  transports.emplace_back(mapped_way);
  for (const std::string& mix : s.transports) require_known("--transport", transports_of(mix), transports);
  require_known("--device", s.devices, devices);
  require_known("--algorithm", s.algorithms, algorithms);
  require_known("--collective", s.collectives, collectives);
  require_known("--type", s.types, types);
  for (const std::string host : {"-0", "-1"})
    if (!s.netns.empty() && access(("/run/netns/" + s.netns + host).c_str(), R_OK) != 0)
      throw std::invalid_argument("--netns: there is no network namespace " + s.netns + host +
                                  "; make them with tools/netns/hosts.sh up " + s.netns + " 2");
  if (!s.netns.empty() && geteuid() != 0)
    throw std::invalid_argument("--netns: entering network namespaces needs root");
}

}  // namespace tutti::conformance
