// SPDX-License-Identifier: Apache-2.0
#include "port.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <tuple>

namespace tutti::ib {
namespace {

bool link_local(const RawGid& g) {
  return is_v4(g) ? g[12] == 169 && g[13] == 254 : g[0] == 0xfe && (g[1] & 0xc0) == 0x80;
}

// Is each address within the other's subnet?
bool share_subnet(const OfferedGid& a, const OfferedGid& b) {
  if (is_v4(a.raw) != is_v4(b.raw)) return false;
  const uint32_t bits = std::min(128u, (is_v4(a.raw) ? 96 : 0) + std::max(a.prefix, b.prefix));
  for (uint32_t i = 0; i < bits; ++i)
    if ((a.raw[i / 8] ^ b.raw[i / 8]) >> (7 - i % 8) & 1) return false;
  return true;
}

std::string with_prefix(const OfferedGid& gid) { return fmt::format("{}/{}", gid_text(gid.raw), gid.prefix); }

}  // namespace

bool is_v4(const RawGid& g) {
  static constexpr std::array<uint8_t, 12> prefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::equal(prefix.begin(), prefix.end(), g.begin());
}

std::string gid_text(const RawGid& gid) {
  char text[INET6_ADDRSTRLEN] = "?";
  inet_ntop(is_v4(gid) ? AF_INET : AF_INET6, gid.data() + (is_v4(gid) ? 12 : 0), text, sizeof text);
  return text;
}

std::string gids_in_words(const std::vector<OfferedRail>& rails) {
  std::string text;
  for (const OfferedRail& rail : rails)
    for (uint32_t i = 0; i < rail.n_gids; ++i) text += (text.empty() ? "" : ", ") + with_prefix(rail.gids[i]);
  return text;
}

uint32_t megabits_of_rate(const std::string& rate) {
  double gigabits = 0;
  const auto [end, error] = std::from_chars(rate.data(), rate.data() + rate.size(), gigabits);
  return error == std::errc() && std::string_view(end).starts_with(" Gb/sec") ? static_cast<uint32_t>(gigabits * 1000) : 0;
}

OfferedRail Port::offer(const Settings& settings) const {
  OfferedRail rail;
  rail.infiniband = infiniband;
  rail.mtu = mtu;
  rail.lid = lid;
  rail.needs_route = needs_route;
  rail.megabits = megabits;
  for (const Gid& gid : gids)
    if (offers(gid, settings) && rail.n_gids < kMaxGids) rail.gids[rail.n_gids++] = gid;
  return rail;
}

// ---- The choice

namespace {

std::string refusal(const Port& port, const Settings& settings) {
  if (!settings.hca.admits(port.device, port.port)) return "left out by TUTTI_IB_HCA=" + settings.hca.text();
  if (!port.unfit.empty()) return port.unfit;
  if (!port.up) return "the port is " + port.state;
  if (std::any_of(port.gids.begin(), port.gids.end(), [&](const Gid& g) { return port.offers(g, settings); }))
    return "";
  if (settings.gid_index) return fmt::format("its table has no GID with TUTTI_IB_GID_INDEX={}", *settings.gid_index);
  return port.infiniband ? "it has no GID" : "it has no RoCE v2 GID: give its network interface an address";
}

}  // namespace

void choose_ports(std::vector<Port>& ports, const Settings& settings, int numa, std::vector<size_t>* order) {
  order->clear();
  std::string refusals;
  for (size_t i = 0; i < ports.size(); ++i) {
    ports[i].chosen = false;
    ports[i].why = refusal(ports[i], settings);
    if (ports[i].why.empty()) order->push_back(i);
    refusals += (i ? "; " : "") + ports[i].name() + ": " + ports[i].why;
  }
  // A list that names no port that there is was written wrongly: another transport is no cure.
  const bool is_misnamed = settings.hca.is_set() && !ports.empty() && std::ranges::none_of(ports, [&](const Port& p) {
    return settings.hca.admits(p.device, p.port).has_value();
  });
  if (order->empty())
    throw error(is_misnamed ? TUTTI_INVALID_ARGUMENT : TUTTI_NOT_SUPPORTED, "no verbs port can be used: {}{}", refusals,
                settings.hca.is_set() ? " (check TUTTI_IB_HCA)" : "");
  // Nearness counts only if the user named no ports: near ports come first, then faster ones.
  uint32_t hops = 0;
  for (const size_t i : *order) hops = std::max(hops, ports[i].shared_hops);
  const auto far = [&](const Port& p) {
    return hops > 0 ? p.shared_hops < hops : numa >= 0 && p.numa >= 0 && p.numa != numa;
  };
  std::stable_sort(order->begin(), order->end(), [&](size_t a, size_t b) {
    const Port &x = ports[a], &y = ports[b];
    const size_t place_x = *settings.hca.admits(x.device, x.port), place_y = *settings.hca.admits(y.device, y.port);
    if (place_x != place_y) return place_x < place_y;
    if (!settings.hca.names_ports() && far(x) != far(y)) return far(y);
    return x.megabits > y.megabits;
  });
  const bool some_near = !far(ports[order->front()]);
  size_t kept = 0;
  for (const size_t i : *order) {
    Port& p = ports[i];
    if (kept == settings.rails) {
      p.why = fmt::format("beyond TUTTI_IB_RAILS={}", settings.rails);
    } else if (!settings.hca.names_ports() && some_near && far(p)) {
      p.why = hops > 0 ? fmt::format("further from {}{} in the PCI tree than others", settings.near_is, settings.near)
                       : fmt::format("on NUMA node {}, this rank is on node {} and has nearer ones", p.numa, numa);
      p.why += "; name it in TUTTI_IB_HCA to use it";
    } else {
      p.chosen = true;
      p.why = settings.hca.names_ports() ? "named by TUTTI_IB_HCA" : "up";
      if (hops > 0 && p.shared_hops == hops)
        p.why += fmt::format(", nearest to {}{}", settings.near_is, settings.near);
      else if (p.numa >= 0 && p.numa == numa)
        p.why += settings.near.empty() ? ", on this rank's NUMA node"
                                       : fmt::format(", on the NUMA node of {}{}", settings.near_is, settings.near);
      (*order)[kept++] = i;
    }
  }
  order->resize(kept);
}

sdk::RailFacts facts_of(const Port& port, const Settings& settings) {
  sdk::RailFacts facts;
  facts.name = port.name();
  facts.medium = port.infiniband ? "InfiniBand" : "RoCE";
  facts.state = port.state;
  facts.why = port.why;
  if (port.chosen)
    facts.why += port.no_dma_buf.empty() ? "; registers device memory (dma-buf)" : "; no dma-buf: " + port.no_dma_buf;
  facts.chosen = port.chosen;
  facts.bandwidth = uint64_t{port.megabits} * 125'000;
  facts.numa = port.numa;
  facts.mtu = 128u << port.mtu;
  for (const Gid& gid : port.gids)
    facts.addresses.push_back({with_prefix(gid), gid.interface,
                               fmt::format("{}GID {}",
                                           port.infiniband ? ""
                                           : gid.roce_v2   ? "RoCE v2, "
                                                           : "RoCE v1, ",
                                           gid.index),
                               port.offers(gid, settings)});
  return facts;
}

// ---- Pairing

namespace {

// How well two GIDs fit. Below kSamePort it is a guess that one reaches the other.
enum Fit : int { kNone, kLinkLocal, kRoutedV6, kRoutedV4, kSamePort, kSubnetV6, kSubnetV4 };

Fit fit(bool infiniband, const OfferedGid& a, const OfferedGid& b) {
  const bool subnet = share_subnet(a, b), v4 = is_v4(a.raw), local = link_local(a.raw);
  if (a.raw == b.raw) return kSamePort;
  if (infiniband) return subnet ? kSubnetV6 : kNone;
  if (v4 != is_v4(b.raw) || local != link_local(b.raw)) return kNone;
  if (local) return subnet ? kLinkLocal : kNone;
  if (subnet) return v4 ? kSubnetV4 : kSubnetV6;
  return v4 ? kRoutedV4 : kRoutedV6;
}

std::string reason(bool infiniband, Fit score) {
  static constexpr const char* words[] = {"no",
                                          "link-local addresses only",
                                          "routed IPv6",
                                          "routed IPv4",
                                          "the same port",
                                          "same IPv6 subnet",
                                          "same IPv4 subnet"};
  if (infiniband) return score == kSamePort ? "InfiniBand, the same port" : "InfiniBand, same subnet";
  return fmt::format("RoCE v2, {}", words[score]);
}

struct Candidate {
  Fit score = kNone;
  Pairing pairing;

  // Two ranks of one host may offer the same port. They meet there only when no two different ports share a subnet.
  // Guesses come last.
  int round() const { return score > kSamePort ? 0 : score == kSamePort ? 1 : 2; }
  bool same_place() const { return pairing.own.rail == pairing.peer.rail; }
};

// Speeds within a factor of two are of one class.
int speed_class(uint32_t megabits) { return std::bit_width(megabits); }

// The faster class first, then the better fit, then the same position: rails of one kind are paired in order.
bool is_better(const Candidate& a, const Candidate& b) {
  const auto rank = [](const Candidate& c) {
    return std::tuple(c.round(), -speed_class(c.pairing.megabits), -c.score, !c.same_place());
  };
  return rank(a) < rank(b);
}

Candidate best(const OfferedRail& a, const OfferedRail& b) {
  Candidate candidate;
  if (a.infiniband != b.infiniband) return candidate;
  for (uint32_t i = 0; i < a.n_gids; ++i)
    for (uint32_t j = 0; j < b.n_gids; ++j) {
      const Fit score = fit(a.infiniband, a.gids[i], b.gids[j]);
      if (score <= candidate.score) continue;
      candidate.score = score;
      candidate.pairing.own.gid = a.gids[i];
      candidate.pairing.peer.gid = b.gids[j];
    }
  candidate.pairing.mtu = std::min(a.mtu, b.mtu);
  candidate.pairing.megabits = std::min(a.megabits, b.megabits);
  candidate.pairing.why = reason(a.infiniband, candidate.score);
  return candidate;
}

}  // namespace

std::vector<Pairing> pair_rails(const std::vector<OfferedRail>& lower, const std::vector<OfferedRail>& higher) {
  std::vector<Candidate> candidates;
  std::vector<bool> near(lower.size()), peer_near(higher.size());  // shares a subnet with a rail of the other end
  for (uint32_t i = 0; i < lower.size(); ++i)
    for (uint32_t j = 0; j < higher.size(); ++j) {
      Candidate candidate = best(lower[i], higher[j]);
      if (candidate.score == kNone) continue;
      candidate.pairing.own.rail = i;
      candidate.pairing.peer.rail = j;
      if (candidate.score >= kSamePort) near[i] = peer_near[j] = true;
      candidates.push_back(std::move(candidate));
    }
  std::stable_sort(candidates.begin(), candidates.end(), is_better);

  std::vector<Pairing> pairs;
  std::vector<bool> used(lower.size()), peer_used(higher.size());
  int known = -1;       // the fastest class of the sure pairs
  Fit guessed = kNone;  // the fit of the guesses
  for (Candidate& c : candidates) {
    const uint32_t i = c.pairing.own.rail, j = c.pairing.peer.rail;
    const int speed = speed_class(c.pairing.megabits);
    if (used[i] || peer_used[j]) continue;
    if (c.score >= kSamePort) {
      known = std::max(known, speed);
    } else {
      if (near[i] || peer_near[j] || speed <= known || (guessed != kNone && c.score != guessed)) continue;
      guessed = c.score;
    }
    used[i] = peer_used[j] = true;
    pairs.push_back(std::move(c.pairing));
  }
  std::stable_sort(pairs.begin(), pairs.end(), [](const Pairing& a, const Pairing& b) {
    return speed_class(a.megabits) > speed_class(b.megabits);
  });
  return pairs;
}

}  // namespace tutti::ib
