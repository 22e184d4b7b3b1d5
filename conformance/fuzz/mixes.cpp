// SPDX-License-Identifier: Apache-2.0
#include <tutti/registry.h>

#include <algorithm>
#include <stdexcept>

#include "filters.hpp"
#include "fuzz/generator.hpp"
#include "matrix/mix.hpp"

namespace tutti::conformance::fuzz {
namespace {

// Chaos is no transport before it is told what it is put over, which each program tells it.
constexpr const char* chaos = "chaos";

std::string reason_against(const std::string& name) {
  if (name == mapped_way) return "it needs a device";
  if (name == chaos) return {};
  const Mix mix = make_mix(name);
  return mix.threads ? "it serves ranks of one process only" : mix.unusable;
}

}  // namespace

std::vector<std::string> mixes_from(const std::vector<std::string>& wanted) {
  std::vector<std::string> all;
  for (const std::string& name : wanted) {
    if (const std::string reason = reason_against(name); !reason.empty())
      throw std::invalid_argument("fuzz: --transport " + name + ": " + reason);
    all.push_back(name);
  }
  if (!wanted.empty()) return all;
  for (const Mix& mix : select_mixes({}))
    if (reason_against(mix.name).empty() && mix.name != chaos) all.push_back(mix.name);
  const auto has = [&](const char* name) { return std::find(all.begin(), all.end(), name) != all.end(); };
  if (all.empty()) throw std::invalid_argument("fuzz: no transport serves ranks that are processes");
  if (has("shm") && has("tcp"))
    for (const tutti_transport* transport : list_transports())
      if (transport->name == std::string(chaos)) all.emplace_back(chaos);
  // Every transport that reaches the peer; the core chooses.
  all.emplace_back("all");
  return all;
}

}  // namespace tutti::conformance::fuzz
