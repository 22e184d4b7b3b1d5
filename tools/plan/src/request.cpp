// SPDX-License-Identifier: Apache-2.0
#include "request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iterator>
#include <numeric>
#include <string_view>

#include "texts/texts.hpp"
#include "topology_network.hpp"

namespace tutti::plan {
namespace {

constexpr uint32_t most_ranks = 65536;

// A number from 1 to most_ranks; 0: something else.
uint32_t number(std::string_view text) {
  uint32_t value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && rest == text.data() + text.size() && value <= most_ranks ? value : 0;
}

std::string known_collectives() {
  std::string names;
  for (uint32_t c = TUTTI_BROADCAST; c <= last_collective; ++c)
    names += (names.empty() ? "" : ", ") + std::string(collective_name(c));
  return names;
}

// The parts of a text between separators.
std::vector<std::string> parts_of(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size(); begin += parts.back().size() + 1)
    parts.push_back(text.substr(begin, std::min(text.find(separator, begin), text.size()) - begin));
  return parts;
}

// "4,2+2": the ranks of each host, by its NUMA nodes where these are told.
std::vector<std::vector<uint32_t>> nodes_of(const std::string& text) {
  std::vector<std::vector<uint32_t>> hosts;
  uint64_t sum = 0;
  for (const std::string& host : parts_of(text, ',')) {
    std::vector<uint32_t>& nodes = hosts.emplace_back();
    for (const std::string& part : parts_of(host, '+')) {
      nodes.push_back(number(part));
      if (!nodes.back())
        throw WrongRequest(
            fmt::format("--hosts \"{}\": expected the number of ranks of each host, such as 4,4, or of "
                        "each of its NUMA nodes, such as 2+2,2+2; \"{}\" is none from 1 to {}",
                        text, part, most_ranks));
      sum += nodes.back();
    }
  }
  if (sum > most_ranks)
    throw WrongRequest(
        fmt::format("--hosts \"{}\": these are {} ranks; at most {} can be planned for", text, sum, most_ranks));
  return hosts;
}

std::vector<uint32_t> sizes_of(const std::string& text) {
  std::vector<uint32_t> sizes;
  for (const std::vector<uint32_t>& nodes : nodes_of(text))
    sizes.push_back(std::accumulate(nodes.begin(), nodes.end(), 0u));
  return sizes;
}

// The NUMA node of each rank; none where nothing tells them.
std::vector<int32_t> numa_of(const Request& request, const std::vector<uint32_t>& hosts) {
  std::vector<int32_t> numa;
  if (!request.topology.empty()) {
    const TopologyFile file = read_topology(request.topology);
    for (uint32_t rank = 0; rank < file.nranks(); ++rank) numa.push_back(file.rank(rank).numa);
  } else if (request.hosts.find('+') != std::string::npos) {
    const std::vector<std::vector<uint32_t>> nodes = nodes_of(request.hosts);
    std::vector<uint32_t> seen(nodes.size(), 0);  // of each host's ranks
    for (const uint32_t host : hosts) {
      uint32_t left = seen[host]++;
      numa.push_back(0);
      for (auto size = nodes[host].begin(); left >= *size; left -= *size++) ++numa.back();
    }
  }
  return numa;
}

}  // namespace

std::string text_of_file(const std::string& path, const char* kind) {
  const auto content = texts::content_of(path);
  if (!content || content->empty())
    throw WrongRequest(
        fmt::format("cannot read the {} file \"{}\": {}", kind, path, content ? "it is empty" : std::strerror(errno)));
  return *content;
}

Range ranks_of(const Request& request) {
  if (request.ranks.empty()) return {4, 4};
  const size_t dots = request.ranks.find("..");
  const uint32_t first = number(request.ranks.substr(0, dots));
  const uint32_t last = dots == std::string::npos ? first : number(request.ranks.substr(dots + 2));
  if (!first || last < first)
    throw WrongRequest(fmt::format("-n \"{}\": expected how many ranks, from 1 to {}, or a range such as 1..64",
                                   request.ranks, most_ranks));
  return {first, last};
}

bool wants_table(const Request& request) {
  return request.collective == "all" || request.algorithm == "all" || request.ranks.find("..") != std::string::npos;
}

uint32_t collective_of(const Request& request) {
  if (const uint32_t collective = collective_from_name(request.collective)) return collective;
  throw WrongRequest(fmt::format("unknown collective \"{}\"; known are {}", request.collective, known_collectives()));
}

std::vector<uint32_t> hosts_of(const Request& request) {
  const bool cyclic = request.placement == "cyclic";
  if (!cyclic && request.placement != "consecutive")
    throw WrongRequest(fmt::format("--placement \"{}\": expected consecutive or cyclic", request.placement));
  if (!request.topology.empty()) {
    const std::vector<uint32_t> hosts = read_topology(request.topology).host_of_rank();
    if (cyclic || !request.hosts.empty() || !request.ranks.empty())
      throw WrongRequest(fmt::format("--topology {} places its {} ranks: leave out -n, --hosts and --placement",
                                     request.topology, hosts.size()));
    return hosts;
  }
  if (request.hosts.empty()) {
    if (cyclic)
      throw WrongRequest("--placement cyclic places ranks on hosts: say which by --hosts, such as --hosts 4,4");
    return {};
  }
  constexpr std::string_view random = "random:";
  if (request.hosts.starts_with(random)) {
    uint64_t seed = 0;
    const char* end = request.hosts.data() + request.hosts.size();
    const auto [rest, error] = std::from_chars(request.hosts.data() + random.size(), end, seed);
    if (error != std::errc() || rest != end)
      throw WrongRequest(fmt::format("--hosts \"{}\": expected a number as the seed, such as random:1", request.hosts));
    if (cyclic || ranks_of(request).first != ranks_of(request).last)
      throw WrongRequest(fmt::format(
          "--hosts {} places one number of ranks at random: give neither --placement nor a range", request.hosts));
    return random_hosts(ranks_of(request).first, seed);
  }
  std::vector<uint32_t> hosts = place_on_hosts(sizes_of(request.hosts), cyclic);
  if (!request.ranks.empty() && (ranks_of(request).first != hosts.size() || ranks_of(request).last != hosts.size()))
    throw WrongRequest(fmt::format("-n {} and --hosts {}, which has {} ranks, contradict each other: leave -n out",
                                   request.ranks, request.hosts, hosts.size()));
  return hosts;
}

std::shared_ptr<const tutti_topology> topology_of(const Request& request, const std::vector<uint32_t>& hosts) {
  const std::vector<int32_t> numa = numa_of(request, hosts);
  return numa.empty() ? nullptr : topology_of_nodes(hosts, numa);
}

DrawingOptions drawing_of(const Request& request) {
  DrawingOptions options;
  const std::pair<const char*, View> views[] = {
      {"auto", View::automatic}, {"steps", View::steps}, {"rounds", View::rounds}, {"matrix", View::matrix}};
  const auto view = std::ranges::find(views, request.view, [](const auto& v) { return std::string_view(v.first); });
  if (view == std::end(views))
    throw WrongRequest(fmt::format("--view \"{}\": expected auto, steps, rounds or matrix", request.view));
  options.view = view->second;
  if (request.follow.empty()) return options;
  const auto number = [&](std::string_view text) {
    uint32_t value = 0;
    const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc() || stop != text.data() + text.size())
      throw WrongRequest(
          fmt::format("--follow \"{}\": expected CHUNK or CHUNK@RANK, such as 0 or 3@1", request.follow));
    return value;
  };
  const std::string_view text = request.follow;
  const size_t at = text.find('@');
  options.follow = Follow{number(text.substr(0, at)), std::nullopt};
  if (at != text.npos) options.follow->rank = number(text.substr(at + 1));
  return options;
}

Problem problem_of(const Request& request) {
  Problem problem;
  problem.collective = collective_of(request);
  problem.hosts = hosts_of(request);
  problem.nranks = problem.hosts.empty() ? ranks_of(request).first : static_cast<uint32_t>(problem.hosts.size());
  problem.root = request.root;
  problem.lanes = request.lanes;
  problem.in_place.assign(problem.nranks, request.in_place);
  problem.parameters = split_algorithm(request.algorithm).second;
  problem.topology = topology_of(request, problem.hosts);
  const auto check = [&](const char* what, uint32_t rank) {
    if (rank >= problem.nranks)
      throw WrongRequest(fmt::format("{} {} is not a rank: expected 0 to {}", what, rank, problem.nranks - 1));
  };
  check("root", request.root);
  check("rank", request.rank.value_or(0));
  return problem;
}

std::pair<std::string, std::string> split_algorithm(const std::string& text) {
  const size_t colon = std::min(text.find(':'), text.size());
  return {text.substr(0, colon), text.substr(std::min(colon + 1, text.size()))};
}

}  // namespace tutti::plan
