// SPDX-License-Identifier: Apache-2.0
#include "engine/choose/tuning.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tutti/registry.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <stdexcept>
#include <tutti/base/bits.hpp>
#include <tutti/base/system_text.hpp>
#include <utility>

#include "base/failure.hpp"
#include "base/hash.hpp"
#include "topology/json_file.hpp"

namespace tutti::core {
namespace {

constexpr const char* tuning_mark = "tutti_tuning";
constexpr int tuning_format = 1;

std::vector<uint32_t> hosts_of(const Json& file) {
  std::vector<uint32_t> hosts;
  uint32_t next = 0;
  for (const Json& host : json_list(file, "", "host_of_rank")) {
    if (!host.is_number_unsigned() || host > next)
      wrong_json(fmt::format("host_of_rank[{}]", hosts.size()),
                 fmt::format("a host's number, at most {}: hosts are numbered in order of first rank", next), host);
    hosts.push_back(host.get<uint32_t>());
    next = std::max(next, hosts.back() + 1);
  }
  return hosts;
}

std::vector<std::string> transports_of(const Json& file) {
  const Json& list = file.at("transports");
  std::set<std::string> names;
  if (!list.is_array()) wrong_json("transports", "a list of names", list);
  for (const Json& name : list)
    if (!name.is_string() || !names.insert(name.get<std::string>()).second)
      wrong_json("transports", "names, each once", list);
  return {names.begin(), names.end()};
}

// Throws unless this process has the algorithm, or a plugin of that name, and it does the collective.
void require_known(const std::string& name, uint32_t collective, const std::string& where) {
  std::string error;
  uint64_t does = 0;
  if (const tutti_algorithm* algorithm = find_algorithm(name, &error)) does = algorithm->collectives;
  for (const tutti_collective* native : list_collectives())
    if (name == native->name) does = native->collectives;
  if (!does) throw std::runtime_error(fmt::format("{}: {}", where, error));
  if (!has_bit(does, collective))
    throw std::runtime_error(
        fmt::format("{}: {} does no {}: expected an algorithm that does", where, name, collective_name(collective)));
}

std::map<std::string, double> times_of(const Json& times, uint32_t collective, const std::string& where) {
  if (!times.is_object() || times.empty()) wrong_json(where, "an object of algorithms and microseconds", times);
  std::map<std::string, double> seconds;
  for (const auto& [algorithm, time] : times.items()) {
    require_known(algorithm, collective, where);
    const double microseconds = time.is_number() ? time.get<double>() : 0;
    if (!(microseconds >= 1e-6 && microseconds <= 1e12))
      wrong_json(where + "." + algorithm, "microseconds from 1e-6 to 1e12", time);
    seconds[algorithm] = microseconds * 1e-6;
  }
  return seconds;
}

std::string placement(const std::vector<uint32_t>& host_of_rank, const std::vector<std::string>& transports) {
  const uint32_t hosts = *std::ranges::max_element(host_of_rank) + 1;
  return fmt::format("{} rank{} on {} host{} over {}", host_of_rank.size(), host_of_rank.size() == 1 ? "" : "s", hosts,
                     hosts == 1 ? "" : "s",
                     transports.empty() ? "no transport" : fmt::format("{}", fmt::join(transports, "+")));
}

}  // namespace

Tuning::Tuning(std::string text) : text_(std::move(text)) {
  Json file = parse_json(text_, tuning_mark, tuning_format);
  complete_json(file, "", {{"machine", ""}, {"date", ""}, {"command", ""}},
                {tuning_mark, "host_of_rank", "transports", "collectives"});
  host_of_rank_ = hosts_of(file);
  transports_ = transports_of(file);
  const Json& collectives = file["collectives"];
  if (!collectives.is_object()) wrong_json("collectives", "an object, {...}", collectives);
  for (const auto& [name, unused] : collectives.items()) {
    const uint32_t collective = collective_from_name(name);
    if (!collective) throw std::runtime_error(fmt::format("collectives.{}: there is no such collective", name));
    // Not all ranks know their sizes, and all must choose alike.
    if (has_unequal_blocks(collective))
      throw std::runtime_error(fmt::format("collectives.{}: expected a collective of equal blocks", name));
    std::vector<Point>& points = points_[collective];
    for (Json point : json_list(collectives, "collectives", name.c_str())) {
      const std::string where = fmt::format("collectives.{}[{}]", name, points.size());
      complete_json(point, where, {}, {"block_bytes", "us"});
      const Json& bytes = point["block_bytes"];
      if (!bytes.is_number_unsigned()) wrong_json(where + ".block_bytes", "a whole number, at least 0", bytes);
      if (!points.empty() && bytes <= points.back().block_bytes)
        wrong_json(where + ".block_bytes", fmt::format("more than {}: sizes rise", points.back().block_bytes), bytes);
      points.push_back({bytes.get<uint64_t>(), times_of(point["us"], collective, where + ".us")});
    }
  }
}

std::shared_ptr<const Tuning> Tuning::read(const std::string& path) {
  if (path.empty()) return nullptr;
  errno = 0;
  std::ifstream stream(path);
  std::string content(std::istreambuf_iterator<char>(stream), {});
  if (!stream || (content.empty() && errno))
    throw Failure(TUTTI_NOT_FOUND, fmt::format("TUTTI_TUNING=\"{}\": cannot be read: {}",
                                               path, errno ? system_text(errno) : "unknown error"));
  try {
    return std::make_shared<const Tuning>(content);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& wrong) {
    throw Failure(TUTTI_INVALID_ARGUMENT,
                  fmt::format("TUTTI_TUNING=\"{}\": {}; write the file again with tutti-perf --tune, or unset "
                              "TUTTI_TUNING (docs/algorithms.md lists the keys)",
                              path, wrong.what()));
  }
}

std::string Tuning::digest() const { return fmt::format("a file with digest {:016x}", hash_text(text_)); }

std::string Tuning::misfit(const Topology& topology) const {
  const std::string measured = placement(host_of_rank_, transports_);
  const std::string here = placement(topology.host_of_rank(), topology.transports());
  if (measured != here) return fmt::format("it was measured with {}, this communicator has {}", measured, here);
  if (host_of_rank_ != topology.host_of_rank())
    return fmt::format("it was measured with {}, which are placed differently", measured);
  return "";
}

std::optional<double> Tuning::seconds(uint32_t collective, const std::string& algorithm, uint64_t block_bytes) const {
  const auto known = points_.find(collective);
  if (known == points_.end()) return std::nullopt;
  const Point *below = nullptr, *above = nullptr;
  for (const Point& point : known->second) {
    if (!point.seconds.contains(algorithm)) continue;
    if (point.block_bytes <= block_bytes) below = &point;
    if (point.block_bytes >= block_bytes && !above) above = &point;
  }
  if (!below || !above) return std::nullopt;
  const double from = below->seconds.at(algorithm), to = above->seconds.at(algorithm);
  if (below == above) return from;
  const auto logarithm = [](uint64_t bytes) { return std::log2(static_cast<double>(std::max<uint64_t>(bytes, 1))); };
  const double low = logarithm(below->block_bytes), width = logarithm(above->block_bytes) - low;
  const double share = width > 0 ? (logarithm(block_bytes) - low) / width : 0;
  return from * std::pow(to / from, share);
}

std::string Tuning::sizes(uint32_t collective) const {
  const auto known = points_.find(collective);
  if (known == points_.end()) return "no size";
  return fmt::format("blocks of {} to {} bytes", known->second.front().block_bytes, known->second.back().block_bytes);
}

}  // namespace tutti::core
