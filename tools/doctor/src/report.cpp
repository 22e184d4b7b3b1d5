// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <fmt/format.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <map>
#include <set>

#include "texts/texts.hpp"

namespace doctor {
namespace {

using Ordered = nlohmann::ordered_json;

size_t count(const Findings& findings, Severity severity) {
  return static_cast<size_t>(
      std::count_if(findings.begin(), findings.end(), [&](const Finding& f) { return f.severity == severity; }));
}

// The ranks of each host, in the order of hosts.
std::map<uint32_t, std::vector<uint32_t>> hosts_of(const Job& job) {
  std::map<uint32_t, std::vector<uint32_t>> hosts;
  for (size_t i = 0; i < job.ranks.size(); ++i) hosts[job.ranks[i].host_number].push_back(static_cast<uint32_t>(i));
  return hosts;
}

// " [ranks 0-3 on a, b]"; nothing where there is one rank.
std::string place(const Job& job, const Finding& finding) {
  if (job.ranks.size() < 2 || finding.ranks.empty()) return "";
  std::set<std::string> hosts;
  for (const Facts& facts : job.ranks)
    if (std::find(finding.ranks.begin(), finding.ranks.end(), facts.rank) != finding.ranks.end())
      hosts.insert(facts.process.host);
  std::string names;
  for (const std::string& host : hosts) names += (names.empty() ? "" : ", ") + host;
  return fmt::format(" [rank{} {} on {}]", finding.ranks.size() > 1 ? "s" : "", list_text(finding.ranks), names);
}

std::string quantity(size_t n, const char* what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text.empty() ? "none" : text;
}

std::string interface_text(const Interface& i) {
  std::string text = fmt::format("{} ({}, MTU {}", i.name, i.state, i.mtu);
  if (i.mbit > 0) text += fmt::format(", {:g} Gbit/s", static_cast<double>(i.mbit) / 1000);
  return text + ")";
}

void host_text(const Job& job, const std::vector<uint32_t>& ranks, std::string& out) {
  const Facts& f = job.ranks[ranks.front()];
  std::vector<std::string> interfaces, rdma;
  for (const Interface& i : f.interfaces)
    if (i.used) interfaces.push_back(interface_text(i));
  for (const RdmaPort& p : f.rdma)
    rdma.push_back(fmt::format("{}:{} ({}, {}, {})", p.adapter, p.port, p.state, p.link_layer, p.rate));
  out += fmt::format("  {}{}: {}, {}, Linux {}\n", f.process.host,
                     job.ranks.size() > 1 ? fmt::format(", {}", quantity(ranks.size(), "rank")) : "",
                     f.process.processor.empty() ? "unknown processor" : f.process.processor,
                     bytes_text(f.process.memory_bytes), f.process.kernel);
  out += fmt::format("    cores       {} of {} online; {}\n", list_text(f.process.cpus), f.online.size(),
                     quantity(std::max<size_t>(1, f.nodes.size()), "NUMA node"));
  out += fmt::format("    interfaces  {}\n    RDMA        {}\n", joined(interfaces), joined(rdma));
  out += fmt::format("    GPU         {}\n", f.nvidia_driver.empty() ? "no NVIDIA driver"
                                             : f.process.cuda == 0
                                                 ? "driver " + f.nvidia_driver + ", no CUDA"
                                                 : fmt::format("driver {}, CUDA {}.{}", f.nvidia_driver,
                                                               f.process.cuda / 1000, f.process.cuda % 1000 / 10));
  out += fmt::format("    transports  {}\n", joined(f.process.transports));
  for (const auto& [name, why] : f.process.idle_transports) out += fmt::format("      left out  {}: {}\n", name, why);
}

// How many pairs of hosts exchange large messages, in both directions each.
std::string pairs_text(const Job& job) {
  if (job.pairs.empty()) return "";
  const auto good =
      std::ranges::count_if(job.pairs, [](const Pair& pair) { return pair.arrived == Pair::large_bytes; });
  return fmt::format("  messages of {} between hosts: {} of {} ways carry them\n", bytes_text(Pair::large_bytes), good,
                     job.pairs.size());
}

}  // namespace

bool has_errors(const Findings& findings) { return count(findings, Severity::error) > 0; }

std::string report_text(const Job& job, const Findings& findings) {
  static constexpr const char* words[] = {"ERROR  ", "WARNING", "note   "};
  std::string out;
  for (const Finding& f : findings) {
    out += fmt::format("{} {}{}\n", words[static_cast<size_t>(f.severity)], f.seen, place(job, f));
    out += fmt::format("        costs: {}\n", f.cost);
    if (!f.mend.empty()) out += fmt::format("        mend:  {}\n", f.mend);
  }
  out += fmt::format("{}will be used\n", findings.empty() ? "" : "\n");
  constexpr size_t most_hosts = 8;
  const auto hosts = hosts_of(job);
  size_t shown = 0;
  for (const auto& [host, ranks] : hosts)
    if (shown++ < most_hosts) host_text(job, ranks, out);
  if (hosts.size() > most_hosts) out += fmt::format("  and {} more hosts: --json has all\n", hosts.size() - most_hosts);
  constexpr size_t most_ranks = 8;
  if (job.ranks.size() <= most_ranks)
    for (const std::string& line : texts::split(job.topology, '\n')) out += "  " + line + "\n";
  out += pairs_text(job);
  out += fmt::format("\ntutti-doctor: {}, {}, {} on {}, {}\n", quantity(count(findings, Severity::error), "error"),
                     quantity(count(findings, Severity::warning), "warning"),
                     quantity(count(findings, Severity::note), "note"), quantity(hosts.size(), "host"),
                     quantity(job.ranks.size(), "rank"));
  return out;
}

std::string report_json(const Job& job, const Findings& findings) {
  Ordered hosts = Ordered::array();
  for (const auto& [number, ranks] : hosts_of(job))
    hosts.push_back({{"host", job.ranks[ranks.front()].process.host}, {"ranks", list_text(ranks)}});
  Ordered json{{"program", "tutti-doctor"},
               {"version", tutti_version()},
               {"errors", count(findings, Severity::error)},
               {"warnings", count(findings, Severity::warning)},
               {"notes", count(findings, Severity::note)},
               {"findings", nlohmann::json(findings)},
               {"hosts", std::move(hosts)},
               {"ranks", nlohmann::json(job.ranks)},
               {"links", nlohmann::json(job.links)},
               {"clocks", nlohmann::json(job.clocks)},
               {"pairs", nlohmann::json(job.pairs)}};
  return json.dump(2, ' ', false, Ordered::error_handler_t::replace) + "\n";
}

}  // namespace doctor
