// SPDX-License-Identifier: Apache-2.0
#include "port.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <tutti/sdk/plugin.hpp>

namespace tutti::ib {
namespace {

bool v4(const RawGid& g) {
  static constexpr std::array<uint8_t, 12> prefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::equal(prefix.begin(), prefix.end(), g.begin());
}
bool link_local(const RawGid& g) {
  return v4(g) ? g[12] == 169 && g[13] == 254 : g[0] == 0xfe && (g[1] & 0xc0) == 0x80;
}

}  // namespace

bool Gid::is_v4() const { return v4(raw); }
bool Gid::is_link_local() const { return link_local(raw); }
std::string Gid::text() const { return gid_text(raw); }

bool Gid::same_subnet(const RawGid& other) const {
  if (v4(raw) != v4(other)) return false;
  const uint32_t bits = is_v4() ? 96 + prefix : prefix;
  for (uint32_t i = 0; i < bits; ++i)
    if ((raw[i / 8] ^ other[i / 8]) >> (7 - i % 8) & 1) return false;
  return true;
}

std::string gid_text(const RawGid& gid) {
  char text[INET6_ADDRSTRLEN] = "?";
  if (v4(gid))
    inet_ntop(AF_INET, gid.data() + 12, text, sizeof text);
  else
    inet_ntop(AF_INET6, gid.data(), text, sizeof text);
  return text;
}

// The choice
// -----------------------------------------------------------------------------------------------------------

namespace {

std::string refusal(const Port& port, const Settings& settings) {
  if (!settings.hca.admits(port.device, port.port)) return "left out by TUTTI_IB_HCA=" + settings.hca.text();
  if (!port.up) return "the port is " + port.state;
  if (std::any_of(port.gids.begin(), port.gids.end(), [&](const Gid& g) { return port.offers(g, settings); }))
    return "";
  if (settings.gid_index) return "its table has no GID with TUTTI_IB_GID_INDEX=" + std::to_string(*settings.gid_index);
  return port.infiniband ? "it has no GID" : "it has no RoCE v2 GID: give its network interface an address";
}

std::string all_refusals(const std::vector<Port>& ports) {
  std::string text;
  for (const Port& port : ports) text += (text.empty() ? "" : "; ") + port.name() + ": " + port.why;
  return text;
}

}  // namespace

void choose_ports(std::vector<Port>& ports, const Settings& settings, int numa, std::vector<size_t>* order) {
  order->clear();
  for (size_t i = 0; i < ports.size(); ++i) {
    ports[i].chosen = false;
    ports[i].why = refusal(ports[i], settings);
    if (ports[i].why.empty()) order->push_back(i);
  }
  if (order->empty())
    throw sdk::Error(TUTTI_NOT_SUPPORTED, "no verbs port can be used: " + all_refusals(ports) +
                                              (settings.hca.is_set() ? " (check TUTTI_IB_HCA)" : ""));
  // Nearness counts only where the user named no order: near ports first, then the faster ones.
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
      p.why = "beyond TUTTI_IB_RAILS=" + std::to_string(settings.rails);
    } else if (!settings.hca.names_ports() && some_near && far(p)) {
      p.why = hops > 0 ? "further from TUTTI_IB_NEAR=" + settings.near + " in the PCI tree than others"
                       : "on NUMA node " + std::to_string(p.numa) + ", this rank is on node " + std::to_string(numa) +
                             " and has nearer ones";
      p.why += "; name it in TUTTI_IB_HCA to use it";
    } else {
      p.chosen = true;
      p.why = settings.hca.names_ports() ? "named by TUTTI_IB_HCA" : "up";
      if (hops > 0 && p.shared_hops == hops)
        p.why += ", nearest to TUTTI_IB_NEAR=" + settings.near;
      else if (p.numa >= 0 && p.numa == numa)
        p.why += settings.near.empty() ? ", on this rank's NUMA node" : ", on the NUMA node of TUTTI_IB_NEAR";
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
    facts.addresses.push_back({gid.text() + "/" + std::to_string(gid.prefix), gid.interface,
                               (port.infiniband ? "GID "
                                : gid.roce_v2   ? "RoCE v2, GID "
                                                : "RoCE v1, GID ") +
                                   std::to_string(gid.index),
                               port.offers(gid, settings)});
  return facts;
}

// The address
// ----------------------------------------------------------------------------------------------------------

namespace {

struct AddressHead {
  uint64_t magic;
  uint32_t version;
  uint32_t rails;
  Id endpoint;
};
struct RailHead {
  uint32_t infiniband, mtu, lid, megabits, greeter, key, gids, reserved;
};

template <typename T>
T take(std::string_view& bytes) {
  if (bytes.size() < sizeof(T)) throw sdk::Error(TUTTI_INVALID_ARGUMENT, "the peer's address is cut short");
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
  return value;
}
template <typename T>
void put(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

std::string PeerAddress::encode() const {
  std::string bytes;
  put(bytes, AddressHead{kMagic, kVersion, static_cast<uint32_t>(rails.size()), endpoint});
  for (const PeerRail& r : rails) {
    put(bytes,
        RailHead{r.infiniband, r.mtu, r.lid, r.megabits, r.greeter, r.key, static_cast<uint32_t>(r.gids.size()), 0});
    for (const RawGid& gid : r.gids) put(bytes, gid);
  }
  return bytes;
}

PeerAddress PeerAddress::decode(std::string_view blob) {
  PeerAddress address;
  const auto head = take<AddressHead>(blob);
  if (head.magic != kMagic) throw sdk::Error(TUTTI_INVALID_ARGUMENT, "these bytes are no address of the ib transport");
  if (head.version != kVersion)
    throw sdk::Error(TUTTI_MISMATCH, "the peer speaks version " + std::to_string(head.version) +
                                         " of the ib transport, this rank " + std::to_string(kVersion));
  if (head.rails == 0 || head.rails > kMaxRails)
    throw sdk::Error(TUTTI_INVALID_ARGUMENT, "the peer's address tells of " + std::to_string(head.rails) +
                                                 " rails, expected 1 to " + std::to_string(kMaxRails));
  address.endpoint = head.endpoint;
  for (uint32_t i = 0; i < head.rails; ++i) {
    const auto r = take<RailHead>(blob);
    if (r.gids > kMaxGids || r.mtu < 1 || r.mtu > 5 || r.infiniband > 1)
      throw sdk::Error(TUTTI_INVALID_ARGUMENT, "the peer's address has a rail with " + std::to_string(r.gids) +
                                                   " GIDs and MTU code " + std::to_string(r.mtu));
    PeerRail rail{r.infiniband == 1, static_cast<uint8_t>(r.mtu), r.lid, r.megabits, r.greeter, r.key, {}};
    for (uint32_t g = 0; g < r.gids; ++g) rail.gids.push_back(take<RawGid>(blob));
    address.rails.push_back(std::move(rail));
  }
  if (!blob.empty())
    throw sdk::Error(TUTTI_INVALID_ARGUMENT,
                     "the peer's address has " + std::to_string(blob.size()) + " bytes too many");
  return address;
}

// Pairing
// --------------------------------------------------------------------------------------------------------------

namespace {

// How well two GIDs suit each other, 0: not at all. Two ranks of one host may both offer the same port: they meet there
// only when no two different ports share a subnet.
enum Fit : int { kNone, kLinkLocal, kRoutedV6, kRoutedV4, kSamePort, kSubnetV6, kSubnetV4, kBestFit = kSubnetV4 };
constexpr int kSharesSubnet = kSamePort;

Fit fit(const Port& port, const Gid& own, const RawGid& theirs) {
  const bool subnet = own.same_subnet(theirs);
  if (own.raw == theirs) return kSamePort;
  if (port.infiniband) return subnet ? kSubnetV6 : kNone;
  if (own.is_v4() != v4(theirs) || own.is_link_local() != link_local(theirs)) return kNone;
  if (own.is_link_local()) return subnet ? kLinkLocal : kNone;
  if (subnet) return own.is_v4() ? kSubnetV4 : kSubnetV6;
  return own.is_v4() ? kRoutedV4 : kRoutedV6;
}

std::string reason(const Port& port, Fit score) {
  static constexpr const char* words[] = {"no",
                                          "link-local addresses only",
                                          "routed IPv6",
                                          "routed IPv4",
                                          "the same port",
                                          "same IPv6 subnet",
                                          "same IPv4 subnet"};
  if (port.infiniband) return score == kSamePort ? "InfiniBand, the same port" : "InfiniBand, same subnet";
  return std::string("RoCE v2, ") + words[score];
}

struct Candidate {
  Fit score = kNone;
  Pairing pairing;
};

Candidate best(const Port& port, const PeerRail& theirs, const Settings& settings) {
  Candidate candidate;
  if (port.infiniband != theirs.infiniband) return candidate;
  for (const Gid& own : port.gids) {
    if (!port.offers(own, settings)) continue;
    for (const RawGid& other : theirs.gids) {
      const Fit score = fit(port, own, other);
      if (score <= candidate.score) continue;
      candidate.score = score;
      candidate.pairing.gid_index = own.index;
      candidate.pairing.gid = own.raw;
      candidate.pairing.peer_gid = other;
      candidate.pairing.mtu = std::min(port.mtu, theirs.mtu);
      candidate.pairing.why = reason(port, score);
    }
  }
  return candidate;
}

}  // namespace

std::vector<Pairing> pair_rails(const std::vector<Port>& own, const PeerAddress& peer, const Settings& settings) {
  std::vector<Pairing> pairs;
  std::vector<bool> used(own.size()), peer_used(peer.rails.size());
  for (int wanted = kBestFit; wanted >= 1; --wanted) {
    // Routed and link-local addresses are a guess: where there are better pairs they are not tried.
    if (wanted < kSharesSubnet && !pairs.empty()) break;
    // The same position first: rails that share one subnet are then paired in order.
    for (const bool same_place : {true, false})
      for (uint32_t i = 0; i < own.size(); ++i)
        for (uint32_t j = 0; j < peer.rails.size(); ++j) {
          if (used[i] || peer_used[j] || (i == j) != same_place) continue;
          Candidate candidate = best(own[i], peer.rails[j], settings);
          if (candidate.score != wanted) continue;
          candidate.pairing.rail = i;
          candidate.pairing.peer_rail = j;
          pairs.push_back(std::move(candidate.pairing));
          used[i] = peer_used[j] = true;
        }
  }
  return pairs;
}

}  // namespace tutti::ib
