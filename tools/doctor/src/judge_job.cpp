// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "judge.hpp"

namespace doctor {
namespace {

using Ranks = std::vector<uint32_t>;

std::map<uint32_t, std::vector<const Facts*>> by_host(const Job& job) {
  std::map<uint32_t, std::vector<const Facts*>> hosts;
  for (const Facts& facts : job.ranks) hosts[facts.host_number].push_back(&facts);
  return hosts;
}

// The ranks for which no core is left when each takes one of its own: a maximum matching of ranks and cores.
Ranks without_core(const std::vector<const Facts*>& ranks) {
  std::map<uint32_t, size_t> taken;  // core: index of its rank
  Ranks left;
  for (size_t index = 0; index < ranks.size(); ++index) {
    std::set<uint32_t> tried;
    const std::function<bool(size_t)> seat = [&](size_t i) {
      for (const uint32_t core : ranks[i]->process.cpus) {
        if (!tried.insert(core).second) continue;
        const auto other = taken.find(core);
        if (other != taken.end() && !seat(other->second)) continue;
        taken[core] = i;
        return true;
      }
      return false;
    };
    if (!ranks[index]->process.cpus.empty() && !seat(index)) left.push_back(ranks[index]->rank);
  }
  return left;
}

void judge_cores(const std::vector<const Facts*>& ranks, Findings& out) {
  const Ranks left = without_core(ranks);
  Ranks all;
  std::set<uint32_t> cores;
  for (const Facts* facts : ranks) {
    all.push_back(facts->rank);
    cores.insert(facts->process.cpus.begin(), facts->process.cpus.end());
  }
  const char* const cost = "ranks wait for each other's time slices: microseconds become milliseconds";
  if (ranks.size() > cores.size())
    out.push_back({Severity::warning, "more_ranks_than_cores",
                   fmt::format("{} ranks on {} core{}", ranks.size(), cores.size(), cores.size() > 1 ? "s" : ""), cost,
                   fmt::format("tuttirun -n {}: one rank per core; or widen their affinity: taskset -cp", cores.size()),
                   all});
  else if (!left.empty())
    out.push_back({Severity::warning, "shared_cores",
                   fmt::format("ranks {} are bound to cores of others, while {} cores serve {} ranks", list_text(left),
                               cores.size(), ranks.size()),
                   cost, "srun --cpu-bind=cores; mpirun --bind-to core; taskset -c with other cores for each rank",
                   left});
  const size_t online = ranks.front()->online.size();
  if (cores.size() < online)
    out.push_back(
        {Severity::note, "affinity",
         fmt::format("may run on {} of {} cores: {}", cores.size(), online, list_text({cores.begin(), cores.end()})),
         "the other cores stay idle, also for the application's threads",
         fmt::format("taskset -cp {} $$ in the shell that starts the job; srun --cpus-per-task=N",
                     list_text(ranks.front()->online)),
         all});
  const double quota = ranks.front()->cgroup.cpus;
  if (ranks.size() > 1 && quota > 0 && quota < static_cast<double>(ranks.size()))
    out.push_back(
        {Severity::warning, "more_ranks_than_quota",
         fmt::format("{} ranks, and the cgroup may use {:g} cores", ranks.size(), quota), cost,
         fmt::format("docker update --cpus {0} CONTAINER; systemctl set-property UNIT CPUQuota={0}00%", ranks.size()),
         all});
}

// Compares a value of each rank ("": not there). `found` gets what was seen: each value with its ranks.
void compare(const Job& job, const std::string& what, Finding found,
             const std::function<std::string(const Facts&)>& value, Findings& out) {
  std::map<std::string, Ranks> values;
  for (const Facts& facts : job.ranks) values[value(facts)].push_back(facts.rank);
  if (values.size() < 2) return;
  for (const auto& [text, ranks] : values)
    found.seen += fmt::format("{}{} on ranks {}", found.seen.empty() ? what + ": " : ", ",
                              text.empty() ? "absent" : "\"" + text + "\"", list_text(ranks));
  out.push_back(std::move(found));
}

std::set<std::string> names_of(const Job& job, std::map<std::string, std::string> Process::*map) {
  std::set<std::string> names;
  for (const Facts& facts : job.ranks)
    for (const auto& [name, value] : facts.process.*map) names.insert(name);
  return names;
}

std::string value_of(const std::map<std::string, std::string>& map, const std::string& name) {
  const auto found = map.find(name);
  return found == map.end() ? "" : found->second;
}

// Settings that are a rank's or a host's own.
bool differs_rightly(const std::string& name) {
  static const std::set<std::string> own{
      "TUTTI_RANK",          "TUTTI_LOCAL_RANK",      "TUTTI_LOCAL_WORLD_SIZE", "TUTTI_HOST_ID", "TUTTI_DEVICE",
      "TUTTI_RECORDER_DIR",  "TUTTI_TLS_CERTIFICATE", "TUTTI_TLS_KEY",          "TUTTI_TLS_CA",  "TUTTI_PLUGIN_PATH",
      "TUTTI_TCP_INTERFACE", "TUTTI_PLUGIN_OWNERS",   "TUTTI_NUMA_NODE"};
  return own.contains(name);
}

void judge_differences(const Job& job, Findings& out) {
  const Finding plugin{Severity::warning, "plugin_differs", "",
                       "ranks use only what all of them have; unequal versions may refuse each other",
                       "install the same tutti-plugins on all hosts"};
  const Finding setting{Severity::warning, "setting_differs", "", "ranks act differently, or refuse to meet",
                        "set it alike on all hosts: tuttirun and srun --export=ALL pass the environment on"};
  const Finding driver{Severity::warning, "driver_differs", "",
                       "device memory may be served in different ways, or not at all",
                       "install the same driver on all hosts"};
  const Finding mtu{Severity::warning, "mtu_differs", "",
                    "where switches drop what is too large, small messages pass and large ones hang",
                    "ip link set NAME mtu N, alike on all hosts; ping -M do -s N HOST"};
  for (const std::string& id : names_of(job, &Process::plugins))
    compare(
        job, "plugin " + id, plugin, [&](const Facts& f) { return value_of(f.process.plugins, id); }, out);
  for (const std::string& name : names_of(job, &Process::settings))
    if (!differs_rightly(name))
      compare(
          job, name, setting, [&](const Facts& f) { return value_of(f.process.settings, name); }, out);
  compare(
      job, "NVIDIA driver", driver, [](const Facts& f) { return f.nvidia_driver; }, out);
  const auto largest = [](const Facts& f) {
    int64_t most = 0;
    for (const Interface& i : f.interfaces) most = i.used ? std::max(most, i.mtu) : most;
    return most ? std::to_string(most) : "";
  };
  if (by_host(job).size() > 1) compare(job, "largest MTU", mtu, largest, out);
}

// An unreachable host is an error; one of several addresses costs time only.
void judge_links(const Job& job, Findings& out) {
  std::set<std::pair<uint32_t, uint32_t>> reached;
  for (const Link& link : job.links)
    if (link.problem.empty()) reached.insert({link.from, link.to});
  std::set<std::pair<uint32_t, uint32_t>> judged;
  for (const Link& link : job.links) {
    if (link.problem.empty()) continue;
    const bool other_way = reached.contains({link.from, link.to});
    if (!other_way && !judged.insert({link.from, link.to}).second) continue;
    std::string tried;
    for (const Link& other : job.links)
      if (other.from == link.from && other.to == link.to && (!other_way || other.address == link.address))
        tried += fmt::format("{}{}: {}", tried.empty() ? "" : "; ", other.address, other.problem);
    const std::string host = link.address.substr(0, link.address.rfind(':'));
    out.push_back(
        {other_way ? Severity::warning : Severity::error,
         other_way ? "address_silent" : "host_unreachable",
         fmt::format("rank {}'s host does not reach rank {}'s: {}", link.from, link.to, tried),
         other_way ? "up to 2 s more until ranks are connected"
                   : "TCP between these hosts fails unless it can be made in the other direction",
         fmt::format(
             "ip route get {}; let TCP from the job's network in (all ports, or TUTTI_TCP_PORTS=FIRST-LAST and these); "
             "TUTTI_TCP_INTERFACE={}",
             host, other_way ? "^NAME leaves that network out" : "NAME chooses another network"),
         {link.from}});
  }
}

// "eth0 with MTU 9000": what the transport tcp uses on a rank's host; "" where none is known.
std::string interfaces_of(const Facts& facts) {
  std::string text;
  for (const auto& [name, mtu] : facts.process.tcp_interfaces)
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", name, mtu ? fmt::format(" with MTU {}", mtu) : "");
  return text;
}

// "rank 0 and rank 3 (hosts a and b; over tcp, eth0 with MTU 9000 and eth0 with MTU 9000)", or "from rank 0 to rank 3
// (...)" where the other direction works.
std::string pair_text(const Job& job, const Pair& pair, bool both) {
  const auto facts_of = [&](uint32_t rank) { return std::ranges::find(job.ranks, rank, &Facts::rank); };
  std::string text = both ? fmt::format("rank {} and rank {}", pair.from, pair.to)
                          : fmt::format("from rank {} to rank {}", pair.from, pair.to);
  const auto from = facts_of(pair.from), to = facts_of(pair.to);
  if (from == job.ranks.end() || to == job.ranks.end()) return text;
  text += fmt::format(" (hosts {} and {}", from->process.host, to->process.host);
  if (!pair.transport.empty()) text += "; over " + pair.transport;
  const std::string mine = interfaces_of(*from), theirs = interfaces_of(*to);
  if (pair.transport == "tcp" && !mine.empty() && !theirs.empty()) text += fmt::format(", {} and {}", mine, theirs);
  return text + ")";
}

// The pairs between which messages of a length are lost, in words, and their ranks.
struct Lossy {
  std::string text;
  Ranks ranks;
};

Lossy lossy_pairs(const Job& job, const std::function<bool(const Pair&)>& lost) {
  constexpr size_t most_shown = 8;
  std::set<std::pair<uint32_t, uint32_t>> ways;
  for (const Pair& pair : job.pairs)
    if (lost(pair)) ways.insert({pair.from, pair.to});
  Lossy found;
  std::set<uint32_t> ranks;
  size_t shown = 0, more = 0;
  for (const Pair& pair : job.pairs) {
    if (!lost(pair)) continue;
    ranks.insert({pair.from, pair.to});
    const bool both = ways.contains({pair.to, pair.from});
    if (both && pair.from > pair.to) continue;
    if (shown == most_shown)
      ++more;
    else
      found.text += fmt::format("{}{}", shown++ ? "; " : ": ", pair_text(job, pair, both));
  }
  if (more) found.text += fmt::format("; and {} more (--json has all)", more);
  found.ranks.assign(ranks.begin(), ranks.end());
  return found;
}

// The check ended before its time: nobody can tell a message that was lost from one that was late.
void judge_broken_check(const Job& job, Findings& out) {
  const Lossy late = lossy_pairs(job, [](const Pair& pair) { return pair.arrived < Pair::large_bytes; });
  const std::string large = bytes_text(Pair::large_bytes);
  out.push_back({Severity::error, "pair_check",
                 fmt::format("while hosts sent each other {}: {}{}", large, job.pair_failure,
                             late.text.empty() ? "" : fmt::format("; {} had not arrived{}", large, late.text)),
                 "a job's large messages may end alike",
                 "correct what the sentence names (rank N of doctor.hosts is the first rank of host N); TUTTI_LOG=info "
                 "tells more",
                 late.ranks});
}

void judge_pairs(const Job& job, Findings& out) {
  if (!job.pair_failure.empty()) return judge_broken_check(job, out);
  constexpr int64_t seconds = pair_limit.count();
  const Lossy large = lossy_pairs(job, [](const Pair& pair) { return pair.arrived == Pair::small_bytes; });
  const Lossy silent = lossy_pairs(job, [](const Pair& pair) { return pair.arrived == 0; });
  if (!large.ranks.empty())
    out.push_back(
        {Severity::error, "large_packets_dropped",
         fmt::format("{} bytes arrive, {} do not within {} s{}", Pair::small_bytes, bytes_text(Pair::large_bytes),
                     seconds, large.text),
         "calls of more than a packet between these hosts hang until their deadline",
         "the way drops packets that are smaller than the interfaces' MTU, and no notice of it comes back. Find the "
         "largest that passes: ping -M do -s 1372 HOST (and more, or less), then ip link set NAME mtu N on both hosts; "
         "or let ICMP \"fragmentation needed\" (ICMPv6 \"packet too big\") through firewalls and routers; or sysctl -w "
         "net.ipv4.tcp_mtu_probing=1 on both",
         large.ranks});
  if (!silent.ranks.empty())
    out.push_back({Severity::error, "pair_silent",
                   fmt::format("not even {} bytes arrive within {} s{}", Pair::small_bytes, seconds, silent.text),
                   "no call that needs both hosts goes on",
                   "TUTTI_LOG=info tells which addresses were tried; let TCP from the job's network in; "
                   "TUTTI_TRANSPORT=tcp leaves adapters out",
                   silent.ranks});
}

void judge_refusals(const Job& job, Findings& out) {
  constexpr size_t most_shown = 8;
  if (job.refusals.empty()) return;
  std::string text;
  for (size_t i = 0; i < std::min(job.refusals.size(), most_shown); ++i)
    text += fmt::format("{}{}", i ? "; " : "", job.refusals[i].substr(job.refusals[i].find_first_not_of(' ')));
  if (job.refusals.size() > most_shown) text += fmt::format("; and {} more", job.refusals.size() - most_shown);
  out.push_back({Severity::warning, "refused_transport",
                 fmt::format("pairs of ranks cannot connect over a transport that both have: {}", text),
                 "the transport that serves them instead is slower",
                 "correct what the reasons name; TUTTI_TRANSPORT=NAME alone makes it an error of the job"});
}

void judge_clocks(const Job& job, Findings& out) {
  constexpr double far = 0.1;
  for (const Clock& clock : job.clocks)
    if (std::abs(clock.ahead) - clock.uncertainty > far)
      out.push_back({Severity::warning,
                     "clock",
                     fmt::format("the clock of rank {}'s host is {:.3f} s {} rank 0's", clock.rank,
                                 std::abs(clock.ahead), clock.ahead > 0 ? "ahead of" : "behind"),
                     "logs of the ranks cannot be put in order; certificates and file times seem to be of the future",
                     "timedatectl set-ntp true; chronyc makestep",
                     {clock.rank}});
}

}  // namespace

Findings judge_job(const Job& job) {
  Findings out;
  if (!job.failure.empty())
    out.push_back({Severity::error, "communicator", job.failure, "no job can run like this; only this rank is judged",
                   "correct what the sentence names; TUTTI_LOG=info tells more"});
  for (const auto& [host, ranks] : by_host(job)) judge_cores(ranks, out);
  judge_differences(job, out);
  judge_links(job, out);
  judge_pairs(job, out);
  judge_refusals(job, out);
  judge_clocks(job, out);
  return out;
}

}  // namespace doctor
