// SPDX-License-Identifier: Apache-2.0
#include "topology_drawing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "texts/texts.hpp"

namespace info {
namespace {

using tutti::TopologyFile;

constexpr double margin = 24, rank_width = 92, rank_height = 56, gap = 10, head = 52, node_head = 20, title_height = 64;
constexpr uint32_t ranks_of_a_row = 4, hosts_of_a_row = 4, most_hosts = 64;

constexpr const char* style = R"(<style>
  text { font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2933; font-size: 12px; }
  .title { font-size: 18px; font-weight: 600; } .note { fill: #6b7785; } .paper { fill: #ffffff; }
  .host { fill: #f4f6f9; stroke: #9aa5b1; } .numa { fill: #ffffff; stroke: #d9dfe7; }
  .rank { fill: #cfe3fb; stroke: #5f97d2; }
</style>
)";

std::string words(double x, double y, const std::string& text, const char* css = "") {
  return fmt::format("<text x=\"{:g}\" y=\"{:g}\" class=\"{}\">{}</text>\n", x, y, css, texts::xml_escaped(text));
}
std::string box(double x, double y, double width, double height, const char* css) {
  return fmt::format("<rect x=\"{:g}\" y=\"{:g}\" width=\"{:g}\" height=\"{:g}\" rx=\"4\" class=\"{}\"/>\n", x, y,
                     width, height, css);
}
std::string figures(const TopologyFile::Link& link) {
  return fmt::format("{}: {:.3g} us, {:.3g} GB/s", link.transport, link.latency * 1e6, link.bandwidth * 1e-9);
}

// Ranks by host and NUMA node.
using Nodes = std::map<int32_t, std::vector<uint32_t>>;
std::vector<Nodes> hosts_of(const TopologyFile& topology) {
  std::vector<Nodes> hosts;
  for (uint32_t rank = 0; rank < topology.nranks(); ++rank) {
    const uint32_t host = topology.host_of_rank()[rank];
    if (host >= hosts.size()) hosts.resize(host + 1);
    hosts[host][topology.rank(rank).numa].push_back(rank);
  }
  return hosts;
}

double width_of(size_t ranks) { return double(std::min<size_t>(ranks, ranks_of_a_row)) * (rank_width + gap) + gap; }
double height_of(size_t ranks) {
  return node_head + double((ranks + ranks_of_a_row - 1) / ranks_of_a_row) * (rank_height + gap);
}
struct Size {
  double width = 0, height = head;
};
Size size_of(const Nodes& nodes) {
  Size size;
  for (const auto& [numa, ranks] : nodes) {
    size.width = std::max(size.width, width_of(ranks.size()) + 2 * gap);
    size.height += height_of(ranks.size()) + gap;
  }
  size.width = std::max(size.width, 320.0);  // room for the words
  return size;
}

std::string draw_host(const TopologyFile& topology, uint32_t host, const Nodes& nodes, double x, double y, Size size) {
  const uint32_t first = nodes.begin()->second.front();
  std::string svg = box(x, y, size.width, size.height, "host");
  svg += words(x + gap, y + 18, fmt::format("host {}: {}, {} cores", host, topology.rank(first).host.substr(0, 36),
                                            topology.rank(first).cores));
  // Two ranks of the host, if there are.
  for (uint32_t other = first + 1; other < topology.nranks(); ++other)
    if (topology.host_of_rank()[other] == host) {
      svg += words(x + gap, y + 36, "inside: " + figures(topology.link(first, other)), "note");
      break;
    }
  double top = y + head;
  for (const auto& [numa, ranks] : nodes) {
    svg += box(x + gap, top, size.width - 2 * gap, height_of(ranks.size()), "numa");
    svg += words(x + 2 * gap, top + 14, numa < 0 ? "NUMA node not known" : "NUMA node " + std::to_string(numa), "note");
    for (size_t i = 0; i < ranks.size(); ++i) {
      const double left = x + 2 * gap + double(i % ranks_of_a_row) * (rank_width + gap);
      const double up = top + node_head + double(i / ranks_of_a_row) * (rank_height + gap);
      const TopologyFile::Rank rank = topology.rank(ranks[i]);
      svg +=
          box(left, up, rank_width, rank_height, "rank") + words(left + 6, up + 16, "rank " + std::to_string(ranks[i]));
      svg += words(left + 6, up + 32, rank.device.empty() ? "no device" : rank.device, "note");
      if (!rank.rails.empty())
        svg += words(left + 6, up + 48, rank.rails.front() + (rank.rails.size() > 1 ? " ..." : ""), "note");
    }
    top += height_of(ranks.size()) + gap;
  }
  return svg;
}

// "tcp: 7 us, 3 GB/s; a host sends 3 GB/s to others": of each kind of link between hosts.
std::string between_hosts(const TopologyFile& topology, const std::vector<Nodes>& hosts) {
  if (hosts.size() == 1) return "one host";
  const uint32_t a = hosts[0].begin()->second.front(), b = hosts[1].begin()->second.front();
  return fmt::format("between hosts 0 and 1: {}; host 0 sends at most {:.3g} GB/s to others",
                     figures(topology.link(a, b)), topology.host_bandwidth(0) * 1e-9);
}

}  // namespace

std::string draw_topology(const TopologyFile& topology) {
  const std::vector<Nodes> hosts = hosts_of(topology);
  const size_t shown = std::min<size_t>(hosts.size(), most_hosts);
  Size cell;
  for (size_t h = 0; h < shown; ++h) {
    const Size size = size_of(hosts[h]);
    cell = {std::max(cell.width, size.width), std::max(cell.height, size.height)};
  }
  const size_t columns = std::min<size_t>(shown, hosts_of_a_row), rows = (shown + columns - 1) / columns;
  const double width = std::max(2 * margin + double(columns) * (cell.width + gap), 640.0);
  const double height = title_height + margin + double(rows) * (cell.height + gap) + 20;
  std::string svg =
      fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:g} {:g}\">\n{}", width, height, style);
  svg += "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n";
  svg += words(margin, 28,
               std::to_string(topology.nranks()) + " ranks on " + std::to_string(hosts.size()) +
                   (hosts.size() == 1 ? " host" : " hosts"),
               "title");
  svg += words(margin, 50, between_hosts(topology, hosts), "note");
  for (size_t h = 0; h < shown; ++h)
    svg += draw_host(topology, uint32_t(h), hosts[h], margin + double(h % columns) * (cell.width + gap),
                     title_height + double(h / columns) * (cell.height + gap), size_of(hosts[h]));
  if (shown < hosts.size())
    svg += words(margin, height - 12, "and " + std::to_string(hosts.size() - shown) + " more hosts", "note");
  return svg + "</svg>\n";
}

}  // namespace info
