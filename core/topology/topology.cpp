// SPDX-License-Identifier: Apache-2.0
#include "topology/topology.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tutti/plugin/transport.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

namespace tutti::core {
namespace {

// The transport of a pair with this rank depends on this: its offers, the preferred ones first.
std::string offers_key(const RankDescription& rank) {
  std::vector<const TransportOffer*> offers;
  for (const TransportOffer& t : rank.transports) offers.push_back(&t);
  std::ranges::sort(offers, {}, [](const TransportOffer* t) { return std::tie(t->latency_ns, t->name); });
  std::string key;
  for (const TransportOffer* t : offers)
    key += fmt::format("{}\n{}\n{}\n{}\n", t->name, t->version, t->reach, t->fabric);
  return key;
}

// How many ranks of their host have no other cores than each has, itself included.
std::vector<uint32_t> sharers(const std::vector<RankDescription>& ranks, const std::vector<uint32_t>& host_of_rank,
                              const std::vector<uint32_t>& ranks_on_host) {
  using Counts = std::unordered_map<Processors, uint32_t>;
  std::vector<Counts> ranks_with(ranks_on_host.size()), ranks_within(ranks_on_host.size());
  for (size_t r = 0; r < ranks.size(); ++r) ++ranks_with[host_of_rank[r]][ranks[r].processors];
  for (size_t host = 0; host < ranks_on_host.size(); ++host)
    for (const auto& [own, same] : ranks_with[host]) {
      uint32_t& within = ranks_within[host][own] = own.none() ? ranks_on_host[host] : 0;
      for (const auto& [processors, count] : ranks_with[host])
        if (own.any() && processors.any() && (processors & ~own).none()) within += count;
    }
  std::vector<uint32_t> counts;
  for (size_t r = 0; r < ranks.size(); ++r) counts.push_back(ranks_within[host_of_rank[r]].at(ranks[r].processors));
  return counts;
}

}  // namespace

Topology::Topology(std::vector<RankDescription> ranks) : ranks_(std::move(ranks)) {
  std::map<std::string, uint32_t> numbers, offers, devices;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> places;
  std::vector<uint32_t> place_of_process;
  std::map<std::tuple<uint32_t, uint64_t, uint64_t>, uint32_t> processes;
  for (const RankDescription& rank : ranks_) {
    const auto [host, fresh] = numbers.try_emplace(rank.host, hosts_);
    if (fresh) {
      ++hosts_;
      ranks_on_host_.push_back(0);
    }
    host_of_rank_.push_back(host->second);
    ++ranks_on_host_[host->second];
    const DeviceDescription& device = rank.device;
    device_of_rank_.push_back(device.id.empty()
                                  ? UINT32_MAX
                                  : devices
                                        .try_emplace(fmt::format("{}\n{}\n{}", rank.host, device.kind, device.id),
                                                     static_cast<uint32_t>(devices.size()))
                                        .first->second);
    offers_of_rank_.push_back(offers.try_emplace(offers_key(rank), static_cast<uint32_t>(offers.size())).first->second);
    const auto [process, first] =
        processes.try_emplace({host->second, rank.process, rank.instance}, static_cast<uint32_t>(processes.size()));
    process_of_rank_.push_back(process->second);
    // A process is in one place, whatever its ranks have found each by itself.
    if (first)
      place_of_process.push_back(
          places.try_emplace({host->second, rank.place}, static_cast<uint32_t>(places.size())).first->second);
    place_of_rank_.push_back(place_of_process[process->second]);
  }
  sharers_of_rank_ = sharers(ranks_, host_of_rank_, ranks_on_host_);
}

std::vector<std::pair<uint32_t, uint32_t>> Topology::pairs_of_each_kind() const {
  constexpr uint32_t none = UINT32_MAX;
  // Ever smaller groups: all ranks, those of a place, those of a process, one rank.
  const auto group = [this](uint32_t level, uint32_t r) {
    return std::array{0u, place_of_rank_[r], process_of_rank_[r], r}[level];
  };
  // By level, group and offers: the first rank, and the first one of another group of the next level.
  std::map<std::array<uint32_t, 3>, std::array<uint32_t, 2>> firsts;
  std::set<std::array<uint32_t, 3>> seen;
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
  const std::set<uint32_t> offers(offers_of_rank_.begin(), offers_of_rank_.end());
  for (uint32_t b = 0; b < nranks(); ++b)
    for (uint32_t level = 0; level < 3; ++level) {
      const auto apart = [&](uint32_t a) { return a != none && group(level + 1, a) != group(level + 1, b); };
      for (const uint32_t offer : offers) {
        const auto found = firsts.find({level, group(level, b), offer});
        if (found == firsts.end()) continue;
        const auto a = std::ranges::find_if(found->second, apart);
        if (a != found->second.end() && seen.insert({level, offer, offers_of_rank_[b]}).second)
          pairs.emplace_back(*a, b);
      }
      const auto [place, fresh] = firsts.try_emplace({level, group(level, b), offers_of_rank_[b]}, std::array{b, none});
      if (!fresh && place->second[1] == none && apart(place->second[0])) place->second[1] = b;
    }
  return pairs;
}

bool Topology::is_on_devices() const {
  return std::ranges::all_of(ranks_, [](const RankDescription& rank) { return !rank.device.kind.empty(); });
}

bool Topology::has_device_to_itself(uint32_t rank) const {
  const uint32_t own = device_of_rank_[rank];
  for (uint32_t r = 0; r < nranks(); ++r)
    if (r != rank && (host_of_rank_[r] != host_of_rank_[rank] || same_process(r, rank) ||
                      device_of_rank_[r] == UINT32_MAX || device_of_rank_[r] == own))
      return false;
  return own != UINT32_MAX;
}

bool Topology::reaches(const std::string& transport, uint32_t a, uint32_t b) const {
  if (same_process(a, b)) return true;
  const TransportOffer &at_a = *ranks_[a].offer(transport), &at_b = *ranks_[b].offer(transport);
  const uint32_t reach = std::min(at_a.reach, at_b.reach);
  if (place_of_rank_[a] == place_of_rank_[b]) return reach >= TUTTI_REACH_HOST;
  return reach >= TUTTI_REACH_NETWORK ||
         (reach == TUTTI_REACH_FABRIC && !at_a.fabric.empty() && at_a.fabric == at_b.fabric);
}

namespace {

const TransportLeftOut* find(const std::vector<TransportLeftOut>& transports, const std::string& name) {
  const auto found = std::ranges::find(transports, name, &TransportLeftOut::name);
  return found == transports.end() ? nullptr : &*found;
}

}  // namespace

std::string Topology::why_not(const TransportOffer& offer, uint32_t low, uint32_t high) const {
  const RankDescription& other = ranks_[high];
  if (const TransportLeftOut* const out = find(other.left_out, offer.name))
    return fmt::format("{} is left out by rank {}: {}", offer.name, high, out->why);
  const TransportOffer* const theirs = other.offer(offer.name);
  if (!theirs) return fmt::format("{} is not offered by rank {}", offer.name, high);
  const uint32_t reach = std::min(offer.reach, theirs->reach);
  if (reach == TUTTI_REACH_FABRIC)
    return fmt::format("{} reaches only ranks of one fabric, \"{}\" and \"{}\"", offer.name, offer.fabric,
                       theirs->fabric);
  if (reach != TUTTI_REACH_HOST) return fmt::format("{} reaches only ranks of one process", offer.name);
  std::string text = fmt::format("{} reaches only ranks of one host", offer.name);
  if (host_of_rank_[low] != host_of_rank_[high]) return text;
  for (const uint32_t r : {low, high})
    if (!ranks_[r].apart.empty()) text += fmt::format("; rank {} does not reach {}", r, ranks_[r].apart);
  return text;
}

const TransportOffer* Topology::transport_of(uint32_t a, uint32_t b, std::string* why,
                                             const std::vector<TransportLeftOut>& refused) const {
  const uint32_t low = std::min(a, b), high = std::max(a, b);
  const TransportOffer* best = nullptr;
  std::string reasons;
  for (const TransportOffer& offer : ranks_[low].transports) {
    if (const TransportLeftOut* const refusal = find(refused, offer.name)) {
      if (why) reasons += fmt::format("; {} has been refused: {}", offer.name, refusal->why);
    } else if (!ranks_[high].offer(offer.name) || !reaches(offer.name, low, high)) {
      if (why) reasons += "; " + why_not(offer, low, high);
    } else if (!best || offer.latency_ns < best->latency_ns ||
               (offer.latency_ns == best->latency_ns && offer.name < best->name)) {
      best = &offer;
    }
  }
  if (!best && why)
    for (const TransportLeftOut& out : ranks_[low].left_out)
      reasons += fmt::format("; {} is left out by rank {}: {}", out.name, low, out.why);
  if (!best && why)
    *why = fmt::format("no transport connects rank {} (host {}) with rank {} (host {}){}", low, host_of_rank_[low],
                       high, host_of_rank_[high], reasons.empty() ? "; none is offered" : reasons);
  return best;
}

const TransportOffer* Topology::mapping_transport_of(uint32_t a, uint32_t b, std::string* why,
                                                     const std::vector<TransportLeftOut>& refused) const {
  const uint32_t low = std::min(a, b), high = std::max(a, b);
  const TransportOffer* best = nullptr;
  for (const TransportOffer& offer : ranks_[low].transports) {
    const TransportOffer* other = ranks_[high].offer(offer.name);
    if (!offer.maps || !other || !other->maps || other->version != offer.version ||
        !reaches(offer.name, low, high) || find(refused, offer.name))
      continue;
    if (!best || std::tie(offer.latency_ns, offer.name) < std::tie(best->latency_ns, best->name)) best = &offer;
  }
  if (!best && why)
    *why = fmt::format("ranks {} and {} have no transport with mapped/1 in common that connects them", low, high);
  return best;
}

std::vector<std::string> Topology::transports() const {
  std::set<std::string> names;
  for (const auto& [a, b] : pairs_of_each_kind())
    if (const TransportOffer* offer = transport_of(a, b)) names.insert(offer->name);
  return {names.begin(), names.end()};
}

uint64_t Topology::fragment_of(uint32_t a, uint32_t b) const {
  const TransportOffer* offer = transport_of(a, b);
  return offer ? fragment_of(a, b, *offer) : 4096;
}

uint64_t Topology::fragment_of(uint32_t a, uint32_t b, const TransportOffer& offer) const {
  return std::min(ranks_[a].offer(offer.name)->fragment_bytes, ranks_[b].offer(offer.name)->fragment_bytes) / 64 * 64;
}

uint64_t Topology::smallest_fragment() const {
  uint64_t smallest = UINT64_MAX;
  for (const RankDescription& rank : ranks_)
    for (const TransportOffer& offer : rank.transports) smallest = std::min(smallest, offer.fragment_bytes);
  return smallest == UINT64_MAX ? 65536 : smallest;
}

LinkCost Topology::cost(uint32_t a, uint32_t b) const {
  const TransportOffer* offer = transport_of(a, b);
  if (!offer) return {1e-3, 1e-6};
  const double latency = static_cast<double>(offer->latency_ns) * 1e-9;
  const double byte = 1.0 / static_cast<double>(std::max<uint64_t>(offer->bandwidth, 1));
  LinkCost cost{latency, byte};
  // The latency of a message through the operating system is the work of the processors, half of it at either end. One
  // of an adapter costs a quarter of its latency there; a fast one is a few stores. Half of the time of the bytes of
  // both is the processors' work.
  constexpr double adapter = 1e-6, operating_system = 5e-6;
  if (latency >= adapter) {
    cost.gap = latency / (latency >= operating_system ? 2 : 4);
    cost.processor_per_byte = byte / 2;
  }
  return cost;
}

std::vector<HostCost> Topology::host_costs() const {
  std::vector<HostCost> costs(hosts_);
  std::vector<Processors> processors(hosts_);
  std::vector<std::set<std::string>> rails(hosts_);
  std::vector<size_t> rails_of_rank(hosts_, 1);
  std::vector<uint32_t> first(hosts_, UINT32_MAX);
  for (uint32_t r = 0; r < nranks(); ++r) first[host_of_rank_[r]] = std::min(first[host_of_rank_[r]], r);
  for (uint32_t r = 0; r < nranks(); ++r) {
    const uint32_t host = host_of_rank_[r];
    processors[host] |= ranks_[r].processors;
    costs[host].processors =
        std::max({costs[host].processors, double(ranks_[r].cores), double(processors[host].count())});
    const TransportOffer* over = hosts_ > 1 ? transport_of(r, first[host ? 0 : 1]) : nullptr;
    if (!over) continue;
    const TransportOffer& offer = *ranks_[r].offer(over->name);
    rails[host].insert(offer.rails.begin(), offer.rails.end());
    rails_of_rank[host] = std::max(rails_of_rank[host], offer.rails.size());
    costs[host].per_byte = std::max(costs[host].per_byte, 1.0 / double(std::max<uint64_t>(offer.bandwidth, 1)));
  }
  // A rank's bandwidth is that of the rails that it uses; ranks of a host that use others add theirs.
  for (uint32_t host = 0; host < hosts_; ++host)
    costs[host].per_byte *= double(rails_of_rank[host]) / double(std::max(rails[host].size(), rails_of_rank[host]));
  return costs;
}

namespace {

// Bytes per second as seconds per byte; nothing where they are not known.
double per_byte(uint64_t bandwidth) { return bandwidth ? 1.0 / static_cast<double>(bandwidth) : 0; }
double seconds(uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace

LinkCost Topology::device_cost(uint32_t a, uint32_t b) const {
  const DeviceDescription &from = ranks_[a].device, &to = ranks_[b].device;
  const double slower = std::max(per_byte(from.link_bandwidth), per_byte(to.link_bandwidth));
  if (slower > 0 && (same_process(a, b) || mapping_transport_of(a, b)))
    return {seconds(std::max(from.link_latency_ns, to.link_latency_ns)), slower};
  const LinkCost over = cost(a, b);  // while the transport moves one slot, the streams copy others
  return {over.latency + seconds(from.link_latency_ns) + seconds(to.link_latency_ns),
          std::max({over.per_byte, per_byte(from.copy_bandwidth), per_byte(to.copy_bandwidth)}), over.gap};
}

LinkCost Topology::command_cost() const {
  LinkCost slowest;
  for (const RankDescription& rank : ranks_) {
    slowest.latency = std::max(slowest.latency, seconds(rank.device.link_latency_ns));
    slowest.per_byte = std::max(slowest.per_byte, per_byte(rank.device.link_bandwidth));
  }
  return slowest;
}

double Topology::processors_per_rank() const {
  double least = 1;
  for (uint32_t r = 0; r < nranks(); ++r) least = std::min(least, processors_of(r));
  return least;
}

namespace {

// "cuda 1 (id 2f..., PCI 0000:3b:00.0, NUMA node 0)"
std::string text_of(const DeviceDescription& device) {
  std::string text =
      fmt::format("{} {} (id {}", device.kind, device.index, device.id.empty() ? "not known" : device.id);
  if (!device.pci.empty()) text += fmt::format(", PCI {}", device.pci);
  if (device.numa >= 0) text += fmt::format(", NUMA node {}", device.numa);
  return text + ")";
}

// "ib (fabric rack-7, rails mlx5_0:1 mlx5_1:1)"
std::string text_of(const TransportOffer& offer) {
  std::vector<std::string> more;
  if (!offer.fabric.empty()) more.push_back("fabric " + offer.fabric);
  if (!offer.rails.empty()) more.push_back(fmt::format("rails {}", fmt::join(offer.rails, " ")));
  return more.empty() ? offer.name : fmt::format("{} ({})", offer.name, fmt::join(more, ", "));
}

}  // namespace

std::string Topology::text() const {
  std::string text = fmt::format("{} ranks on {} host{}\n", nranks(), hosts_, hosts_ == 1 ? "" : "s");
  for (uint32_t r = 0; r < nranks(); ++r) {
    const RankDescription& rank = ranks_[r];
    std::vector<std::string> offers;
    for (const TransportOffer& offer : rank.transports) offers.push_back(text_of(offer));
    text += fmt::format("  rank {}: host {} ({}), process {}, {} cores{}, device: {}, transports: {}\n", r,
                        host_of_rank_[r], rank.host, rank.process, rank.cores,
                        rank.numa < 0 ? "" : fmt::format(" of NUMA node {}", rank.numa),
                        rank.device.kind.empty() ? "none" : text_of(rank.device),
                        offers.empty() ? "none" : fmt::format("{}", fmt::join(offers, ", ")));
    if (!rank.apart.empty()) text += fmt::format("    it does not reach {}\n", rank.apart);
  }
  constexpr uint32_t readable = 16;
  if (nranks() > readable) return text + fmt::format("  (the table of pairs is shown up to {} ranks)\n", readable);
  for (uint32_t a = 0; a < nranks(); ++a)
    for (uint32_t b = a + 1; b < nranks(); ++b) {
      const TransportOffer* offer = transport_of(a, b);
      text +=
          fmt::format("  {} - {}: {}\n", a, b,
                      offer ? fmt::format("{} ({} ns, {:.1f} GB/s, cut at {} bytes)", offer->name, offer->latency_ns,
                                          static_cast<double>(offer->bandwidth) * 1e-9, fragment_of(a, b))
                            : "unreachable");
    }
  return text;
}

}  // namespace tutti::core
