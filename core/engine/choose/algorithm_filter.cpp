// SPDX-License-Identifier: Apache-2.0
#include "engine/choose/algorithm_filter.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <tutti/base/name_list.hpp>
#include <vector>

#include "base/failure.hpp"

namespace tutti::core {
namespace {

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(';', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string known_collectives() {
  std::string known;
  for (uint32_t c = TUTTI_BROADCAST; c <= last_collective; ++c)
    known += (known.empty() ? "" : ", ") + std::string(collective_name(c));
  return known;
}

}  // namespace

// `setting`: with its value, as errors name it. `of`: the part of it that has the list.
AlgorithmFilter::Rule AlgorithmFilter::rule_of(const std::string& setting, const std::string& of,
                                               const std::string& list) {
  const NameList named = name_list(of, list);
  if (!named.problem.empty()) throw Failure(TUTTI_INVALID_ARGUMENT, named.problem);
  Rule rule{named.excludes, {}, setting};
  for (std::string algorithm : named.names) {
    const size_t end = std::min(algorithm.find(':'), algorithm.size());
    const std::string parameters = algorithm.substr(std::min(end + 1, algorithm.size()));
    algorithm.resize(end);
    std::string error;
    const auto is_native = [&](const tutti_collective* native) { return algorithm == native->name; };
    if (!find_algorithm(algorithm, &error) && !std::ranges::any_of(list_collectives(), is_native))
      throw Failure(TUTTI_NOT_FOUND, fmt::format("{}: {}", setting, error));
    if (rule.denies && !parameters.empty())
      throw Failure(TUTTI_INVALID_ARGUMENT,
                    fmt::format("{} rules {} out and has parameters for it, \"{}\": name it alone", setting, algorithm,
                                parameters));
    if (const auto [entry, fresh] = rule.names.try_emplace(algorithm, parameters);
        !fresh && entry->second != parameters)
      throw Failure(TUTTI_INVALID_ARGUMENT, fmt::format("{} names {} with parameters \"{}\" and \"{}\": name it once",
                                                        setting, algorithm, entry->second, parameters));
  }
  return rule;
}

AlgorithmFilter::AlgorithmFilter(const std::string& text) {
  if (text.empty()) return;
  const std::string setting = fmt::format("TUTTI_ALGO=\"{}\"", text);
  for (const std::string& part : parts_of(text)) {
    const size_t colon = part.find(':');
    const std::string name = part.substr(0, colon);
    const uint32_t collective = collective_from_name(name);
    if (colon == std::string::npos || !collective || colon + 1 == part.size())
      throw Failure(TUTTI_INVALID_ARGUMENT,
                    fmt::format("{}: expected COLLECTIVE:ALGORITHM,... (or COLLECTIVE:^ALGORITHM,...) separated by "
                                "semicolons, got \"{}\"; collectives: {}",
                                setting, part, known_collectives()));
    if (rules_.contains(collective))
      throw Failure(TUTTI_INVALID_ARGUMENT,
                    fmt::format("{} names {} twice: list its algorithms once, separated by commas", setting, name));
    rules_.emplace(collective, rule_of(setting, setting + ": " + name, part.substr(colon + 1)));
  }
}

AlgorithmFilter::AlgorithmFilter(const char* call, const std::string& text) {
  const std::string setting = "options.algorithms", of_call = fmt::format("{}: {}", call, setting);
  Rule rule = rule_of(fmt::format("{}=\"{}\"", of_call, text), of_call, text);
  rule.text = fmt::format("{}=\"{}\"", setting, text);
  rules_.emplace(every_collective, std::move(rule));
}

const AlgorithmFilter::Rule* AlgorithmFilter::rule(uint32_t collective) const {
  for (const uint32_t of : {every_collective, collective})
    if (const auto found = rules_.find(of); found != rules_.end()) return &found->second;
  return nullptr;
}

std::string AlgorithmFilter::refuses(uint32_t collective, const std::string& algorithm) const {
  const Rule* const rule = this->rule(collective);
  if (!rule || rule->names.contains(algorithm) != rule->denies) return {};
  return fmt::format("{} rules it out", rule->text);
}

std::string AlgorithmFilter::parameters(uint32_t collective, const std::string& algorithm) const {
  const Rule* const rule = this->rule(collective);
  if (!rule) return {};
  const auto named = rule->names.find(algorithm);
  return named == rule->names.end() ? std::string() : named->second;
}

}  // namespace tutti::core
