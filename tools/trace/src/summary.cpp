// SPDX-License-Identifier: Apache-2.0
#include "summary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace trace {
namespace {

constexpr size_t most_lines = 16;

std::string time_text(int64_t ns) {
  return ns >= 1'000'000'000 ? fmt::format("{:.2f} s", double(ns) / 1e9)
         : ns >= 1'000'000   ? fmt::format("{:.2f} ms", double(ns) / 1e6)
                             : fmt::format("{:.1f} us", double(ns) / 1e3);
}

std::string straggler_text(const Findings& findings) {
  if (!findings.straggler) return "  straggler: none; no rank is waited for much more than the others\n";
  const RankFindings& f = *findings.find(*findings.straggler);
  return fmt::format(
      "  straggler: rank {}: the others waited {} for it, {} of that before it called and {} while it was "
      "in a call\n",
      f.rank, time_text(f.blamed_ns()), time_text(f.late_ns), time_text(f.slow_ns));
}

std::string links_text(const Group& group, const Findings& findings) {
  if (findings.links.empty())
    return fmt::format("  slowest link: not known; it takes calls of {} bytes and more\n", group.least_step_call);
  const LinkFindings &slowest = findings.links.front(), &middle = findings.links[findings.links.size() / 2];
  return fmt::format(
      "  slowest link: rank {} to rank {} over {}: {:.2f} GB/s ({} bytes in {} messages); the one in the "
      "middle of {}: {:.2f} GB/s\n",
      slowest.from, slowest.to, slowest.transport, slowest.gigabytes_per_second(), slowest.bytes, slowest.messages,
      findings.links.size(), middle.gigabytes_per_second());
}

std::string ranks_text(const Findings& findings) {
  std::vector<const RankFindings*> ranks;
  for (const RankFindings& f : findings.ranks) ranks.push_back(&f);
  const bool all = ranks.size() <= most_lines;
  if (!all) {
    std::stable_sort(ranks.begin(), ranks.end(), [](auto* a, auto* b) { return a->blamed_ns() > b->blamed_ns(); });
    ranks.resize(most_lines);
  }
  std::string text = fmt::format("  {:>6} {:>9} {:>12} {:>12} {:>7} {:>18}\n", "rank", "calls", "in calls", "waiting",
                                 "share", "others waited");
  for (const RankFindings* f : ranks)
    text +=
        fmt::format("  {:>6} {:>9} {:>12} {:>12} {:>6.1f}% {:>18}\n", f->rank, f->calls, time_text(f->in_calls_ns),
                    time_text(f->waited_ns), f->in_calls_ns ? 100 * double(f->waited_ns) / double(f->in_calls_ns) : 0.0,
                    time_text(f->blamed_ns()));
  if (!all)
    text += fmt::format("  ... and {} more ranks, which others waited for less\n", findings.ranks.size() - most_lines);
  return text;
}

std::string calls_text(const Findings& findings) {
  std::string text = fmt::format("  {:>9} {:>12} {:>12}  {}\n", "calls", "total", "longest", "call");
  for (size_t i = 0; i < std::min(most_lines, findings.calls.size()); ++i) {
    const CallFindings& c = findings.calls[i];
    text += fmt::format("  {:>9} {:>12} {:>12}  {} by {} (longest: {})\n", c.calls, time_text(c.total_ns),
                        time_text(c.longest_ns), c.text, c.served_by, c.longest);
  }
  if (findings.calls.size() > most_lines)
    text += fmt::format("  ... and {} more\n", findings.calls.size() - most_lines);
  return text;
}

}  // namespace

std::string summary(const Timeline& timeline) {
  std::string text;
  for (const std::string& problem : timeline.problems) text += "note: " + problem + "\n";
  if (timeline.clocks == 1)
    text += "clocks: one host; times of different ranks agree within a microsecond\n";
  else if (timeline.inexact_ns < 0)
    text += fmt::format("clocks: {} hosts, not all of them aligned: do not compare their times\n", timeline.clocks);
  else
    text += fmt::format("clocks: {} hosts; times of different hosts agree within {}\n", timeline.clocks,
                        time_text(timeline.inexact_ns));
  for (const Group& group : timeline.groups) {
    const Findings findings = find(group);
    text += fmt::format("\n{} ({:016x}): {} ranks\n", group.name, group.id, group.nranks);
    text += straggler_text(findings) + links_text(group, findings) + ranks_text(findings) + calls_text(findings);
  }
  return text;
}

}  // namespace trace
