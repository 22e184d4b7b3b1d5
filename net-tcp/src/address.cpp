// SPDX-License-Identifier: Apache-2.0
#include "address.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <tutti/sdk/plugin.hpp>

namespace tutti::tcp {

bool IpAddress::is_loopback() const {
  if (family == 4) return bytes[0] == 127;
  return std::all_of(bytes.begin(), bytes.end() - 1, [](uint8_t b) { return b == 0; }) && bytes[15] == 1;
}

bool IpAddress::is_link_local() const { return family == 6 && bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80; }

bool IpAddress::in_network(const IpAddress& network, uint32_t prefix) const {
  if (family != network.family) return false;
  const uint32_t whole = prefix / 8;
  if (std::memcmp(bytes.data(), network.bytes.data(), whole) != 0) return false;
  const uint32_t rest = prefix % 8;
  return rest == 0 || ((bytes[whole] ^ network.bytes[whole]) >> (8 - rest)) == 0;
}

std::string IpAddress::text() const {
  char buffer[INET6_ADDRSTRLEN] = "";
  inet_ntop(family == 4 ? AF_INET : AF_INET6, bytes.data(), buffer, sizeof buffer);
  return buffer;
}

bool IpAddress::parse(const std::string& text, IpAddress& address) {
  address = {};
  address.family = text.find(':') == std::string::npos ? 4 : 6;
  return inet_pton(address.family == 4 ? AF_INET : AF_INET6, text.c_str(), address.bytes.data()) == 1;
}

namespace {

IpAddress from_sockaddr(const sockaddr* address) {
  IpAddress ip;
  if (address->sa_family == AF_INET) {
    std::memcpy(ip.bytes.data(), &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, 4);
  } else {
    ip.family = 6;
    std::memcpy(ip.bytes.data(), &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, 16);
  }
  return ip;
}

uint32_t prefix_of(const sockaddr* netmask) {
  if (!netmask) return 0;
  const IpAddress mask = from_sockaddr(netmask);
  uint32_t bits = 0;
  for (size_t i = 0; i < mask.size(); ++i) bits += static_cast<uint32_t>(std::popcount(mask.bytes[i]));
  return bits;
}

// Does one word of TUTTI_TCP_INTERFACE (an interface name or its beginning, an address, a CIDR) mean this address?
bool means(const std::string& word, const LocalAddress& address) {
  const size_t slash = word.find('/');
  IpAddress ip;
  if (IpAddress::parse(word.substr(0, slash), ip)) {
    if (slash == std::string::npos) return ip == address.ip;
    uint32_t prefix = 0;
    const char* end = word.data() + word.size();
    const auto [stop, code] = std::from_chars(word.data() + slash + 1, end, prefix);
    if (code != std::errc() || stop != end || prefix > ip.size() * 8)
      throw sdk::Error(TUTTI_INVALID_ARGUMENT, "TUTTI_TCP_INTERFACE: \"" + word + "\" has no valid prefix length");
    return address.ip.in_network(ip, prefix);
  }
  return address.interface.starts_with(word);
}

std::string listing(const std::vector<LocalAddress>& all) {
  std::string text;
  for (const LocalAddress& a : all) text += (text.empty() ? "" : ", ") + a.interface + " " + a.ip.text();
  return text.empty() ? "none" : text;
}

}  // namespace

std::vector<LocalAddress> select_addresses(const std::vector<LocalAddress>& all, const std::string& selection) {
  std::vector<std::string> wanted, unwanted;
  for (size_t at = 0; !selection.empty() && at <= selection.size();) {
    const size_t comma = std::min(selection.find(',', at), selection.size());
    std::string word = selection.substr(at, comma - at);
    const bool excludes = word.starts_with('^');
    if (excludes) word.erase(0, 1);
    if (word.empty())
      throw sdk::Error(TUTTI_INVALID_ARGUMENT, "TUTTI_TCP_INTERFACE=\"" + selection + "\" has an empty part");
    (excludes ? unwanted : wanted).push_back(word);
    at = comma + 1;
  }
  for (const std::string& word : wanted)
    if (std::none_of(all.begin(), all.end(), [&](const LocalAddress& a) { return means(word, a); }))
      throw sdk::Error(TUTTI_INVALID_ARGUMENT, "TUTTI_TCP_INTERFACE: \"" + word +
                                                   "\" means no address of this host; there are: " + listing(all));
  std::vector<LocalAddress> chosen;
  const auto any = [](const std::vector<std::string>& words, const LocalAddress& a) {
    return std::any_of(words.begin(), words.end(), [&](const std::string& w) { return means(w, a); });
  };
  for (const LocalAddress& a : all)
    if ((wanted.empty() || any(wanted, a)) && !any(unwanted, a)) chosen.push_back(a);
  if (chosen.empty())
    throw sdk::Error(TUTTI_INVALID_ARGUMENT, "no network address is left to use (TUTTI_TCP_INTERFACE=\"" + selection +
                                                 "\"); this host has: " + listing(all));
  std::stable_partition(chosen.begin(), chosen.end(), [](const LocalAddress& a) { return !a.ip.is_loopback(); });
  return chosen;
}

namespace {

// Calls visit(entry) for every address of every interface.
template <typename Visit>
void each_interface(Visit&& visit) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) throw sdk::system_error("cannot list this host's network addresses (getifaddrs)", errno);
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(first, freeifaddrs);
  for (const ifaddrs* i = first; i; i = i->ifa_next) visit(*i);
}

bool is_ip(const ifaddrs& i) {
  return i.ifa_addr && (i.ifa_addr->sa_family == AF_INET || i.ifa_addr->sa_family == AF_INET6);
}

std::vector<LocalAddress> all_addresses() {
  std::vector<LocalAddress> all;
  each_interface([&](const ifaddrs& i) {
    if (!is_ip(i) || !(i.ifa_flags & IFF_UP)) return;
    const IpAddress ip = from_sockaddr(i.ifa_addr);
    if (!ip.is_link_local()) all.push_back({ip, prefix_of(i.ifa_netmask), i.ifa_name});
  });
  return all;
}

}  // namespace

std::vector<LocalAddress> local_addresses(const std::string& selection) {
  return select_addresses(all_addresses(), selection);
}

std::vector<sdk::RailFacts> interface_facts(const std::string& selection) {
  std::vector<LocalAddress> chosen;
  try {
    chosen = local_addresses(selection);
  } catch (const sdk::Error& error) {
    if (selection.empty() && error.status() == TUTTI_INVALID_ARGUMENT)
      chosen.clear();  // no address at all
    else
      throw;
  }
  std::vector<sdk::RailFacts> all;
  each_interface([&](const ifaddrs& i) {
    auto at = std::find_if(all.begin(), all.end(), [&](const sdk::RailFacts& r) { return r.name == i.ifa_name; });
    if (at == all.end()) {
      at = all.emplace(all.end());
      at->name = i.ifa_name;
      at->medium = i.ifa_flags & IFF_LOOPBACK ? "loopback" : "IP";
      at->state = i.ifa_flags & IFF_UP ? i.ifa_flags & IFF_RUNNING ? "up" : "no carrier" : "down";
    }
    if (!is_ip(i)) return;
    const IpAddress ip = from_sockaddr(i.ifa_addr);
    const bool used = std::any_of(chosen.begin(), chosen.end(), [&](const LocalAddress& a) { return a.ip == ip; });
    at->addresses.push_back({ip.text() + "/" + std::to_string(prefix_of(i.ifa_netmask)), i.ifa_name,
                             ip.family == 4       ? "IPv4"
                             : ip.is_link_local() ? "IPv6, link-local"
                                                  : "IPv6",
                             used});
    at->chosen |= used;
  });
  for (sdk::RailFacts& r : all)
    r.why = r.chosen ? selection.empty() ? r.medium == "loopback" ? "up; for ranks of this host only" : "up"
                                         : "named by TUTTI_TCP_INTERFACE=" + selection
            : r.addresses.empty() ? "it has no IP address"
            : r.state == "down"   ? "it is down"
            : selection.empty()   ? "it has link-local addresses only"
                                  : "left out by TUTTI_TCP_INTERFACE=" + selection;
  return all;
}

// The encoded form: magic (8), version (4), listeners (4), host (32), endpoint (16), then for each listener family (2),
// port (2), address (16).
namespace {
constexpr size_t kHeadBytes = 8 + 4 + 4 + 32 + 16;
constexpr size_t kListenerBytes = 20;

template <typename T>
void put(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}
template <typename T>
T get(std::string_view& in) {
  T value;
  std::memcpy(&value, in.data(), sizeof value);
  in.remove_prefix(sizeof value);
  return value;
}
}  // namespace

std::string PeerAddress::Listener::text() const {
  return (ip.family == 4 ? ip.text() : "[" + ip.text() + "]") + ":" + std::to_string(port);
}

std::string PeerAddress::encode() const {
  std::string out;
  put(out, kMagic);
  put(out, kVersion);
  put(out, static_cast<uint32_t>(listeners.size()));
  put(out, host);
  put(out, endpoint);
  for (const Listener& l : listeners) {
    put(out, uint16_t{l.ip.family});
    put(out, l.port);
    put(out, l.ip.bytes);
  }
  return out;
}

PeerAddress PeerAddress::decode(std::string_view blob) {
  const auto refuse = [&](const std::string& why) {
    return sdk::Error(TUTTI_INVALID_ARGUMENT,
                      "these " + std::to_string(blob.size()) + " bytes are no address of the tcp transport: " + why);
  };
  std::string_view in = blob;
  if (!blob.data() || blob.size() < kHeadBytes) throw refuse("shorter than " + std::to_string(kHeadBytes) + " bytes");
  if (get<uint64_t>(in) != kMagic) throw refuse("the magic number is wrong");
  if (const auto version = get<uint32_t>(in); version != kVersion)
    throw refuse("version " + std::to_string(version) + ", this plugin speaks " + std::to_string(kVersion));
  const auto count = get<uint32_t>(in);
  PeerAddress address;
  address.host = get<Mac>(in);
  address.endpoint = get<Id>(in);
  if (count == 0 || count > kMaxAddresses || in.size() != count * kListenerBytes)
    throw refuse(std::to_string(count) + " listeners in " + std::to_string(in.size()) + " bytes");
  for (uint32_t i = 0; i < count; ++i) {
    Listener listener;
    const auto family = get<uint16_t>(in);
    listener.port = get<uint16_t>(in);
    listener.ip.bytes = get<std::array<uint8_t, 16>>(in);
    if ((family != 4 && family != 6) || listener.port == 0)
      throw refuse("listener " + std::to_string(i) + " has family " + std::to_string(family) + " and port " +
                   std::to_string(listener.port));
    listener.ip.family = static_cast<uint8_t>(family);
    address.listeners.push_back(listener);
  }
  return address;
}

std::vector<PeerAddress::Listener> plausible(const PeerAddress& peer, const std::vector<LocalAddress>& own,
                                             bool same_host) {
  std::vector<PeerAddress::Listener> loopback, near, far;
  for (const auto& listener : peer.listeners) {
    if (listener.ip.is_loopback()) {
      if (same_host) loopback.push_back(listener);
      continue;
    }
    bool family = false, subnet = false;
    for (const LocalAddress& a : own) {
      family |= a.ip.family == listener.ip.family && (same_host || !a.ip.is_loopback());
      subnet |= !a.ip.is_loopback() && listener.ip.in_network(a.ip, a.prefix);
    }
    if (subnet) {
      near.push_back(listener);
    } else if (family) {
      far.push_back(listener);
    }
  }
  loopback.insert(loopback.end(), near.begin(), near.end());
  loopback.insert(loopback.end(), far.begin(), far.end());
  return loopback;
}

}  // namespace tutti::tcp
