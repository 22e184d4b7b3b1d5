// SPDX-License-Identifier: Apache-2.0
#include "address.hpp"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/ip/network_v4.hpp>
#include <boost/asio/ip/network_v6.hpp>
#include <tutti/sdk/file_descriptor.hpp>
#include <tutti/sdk/name_list.hpp>
#include <tutti/sdk/words.hpp>

namespace tutti::tcp {

namespace ip = boost::asio::ip;

std::string text(const Where& where) {
  const std::string host = where.address().to_string();
  return where.address().is_v6() ? fmt::format("[{}]:{}", host, where.port())
                                 : fmt::format("{}:{}", host, where.port());
}

IpAddress to_address(const IpBytes& bytes) {
  const ip::address_v6 v6(bytes);
  return v6.is_v4_mapped() ? IpAddress(ip::make_address_v4(ip::v4_mapped, v6)) : IpAddress(v6);
}

IpBytes to_bytes(const IpAddress& address) {
  return (address.is_v4() ? ip::make_address_v6(ip::v4_mapped, address.to_v4()) : address.to_v6()).to_bytes();
}

namespace {

bool is_link_local(const IpAddress& a) { return a.is_v6() && a.to_v6().is_link_local(); }

// Do the first `prefix` bits of two addresses agree?
bool same_network(const IpAddress& a, const IpAddress& b, uint8_t prefix) {
  if (a.is_v4() && b.is_v4())
    return ip::network_v4(a.to_v4(), prefix).canonical() == ip::network_v4(b.to_v4(), prefix).canonical();
  return a.is_v6() && b.is_v6() &&
         ip::network_v6(a.to_v6(), prefix).canonical() == ip::network_v6(b.to_v6(), prefix).canonical();
}

// Does this word of a selection match the address? A word is an interface name or its beginning, an address, or a
// network; IPv6 also in brackets.
bool means(const NameList& list, const std::string& listed, const LocalAddress& address, const std::string& source) {
  std::string word = listed;
  if (const size_t close = word.find(']'); word.starts_with('[') && close != word.npos)
    word = word.substr(1, close - 1) + word.substr(close + 1);
  boost::system::error_code none;
  const size_t slash = word.find('/');
  const IpAddress base = ip::make_address(word.substr(0, slash), none);
  if (none) return list.means(listed, address.interface);
  if (slash == word.npos) return base == address.ip;
  const int prefix = base.is_v4() ? ip::make_network_v4(word, none).prefix_length()
                                  : static_cast<int>(ip::make_network_v6(word, none).prefix_length());
  if (none) throw sdk::error(TUTTI_INVALID_ARGUMENT, "{}: \"{}\" has no valid prefix length", source, word);
  return same_network(address.ip, base, static_cast<uint8_t>(prefix));
}

std::string listing(const std::vector<LocalAddress>& all) {
  std::string text;
  for (const LocalAddress& a : all)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", a.interface, a.ip.to_string());
  return text.empty() ? "none" : text;
}

}  // namespace

std::vector<LocalAddress> select_addresses(const std::vector<LocalAddress>& all, const std::string& selection,
                                           const std::string& source) {
  NameList list{.excludes = true};  // no address
  if (!selection.empty()) list = name_list(source, selection);
  if (!list.problem.empty()) throw sdk::Error(TUTTI_INVALID_ARGUMENT, list.problem);
  for (const std::string& word : list.names)
    if (!list.excludes &&
        std::none_of(all.begin(), all.end(), [&](const LocalAddress& a) { return means(list, word, a, source); }))
      throw sdk::error(TUTTI_INVALID_ARGUMENT, "{}: \"{}\" matches no address of this host; there are: {}", source,
                       word, listing(all));
  std::vector<LocalAddress> chosen;
  for (const LocalAddress& a : all)
    if (std::any_of(list.names.begin(), list.names.end(),
                    [&](const std::string& word) { return means(list, word, a, source); }) != list.excludes)
      chosen.push_back(a);
  if (chosen.empty() && selection.empty())
    throw sdk::error(TUTTI_INVALID_ARGUMENT,
                     "this host has only link-local network addresses, which are not used: give an interface that is "
                     "up another address (ip addr add)");
  if (chosen.empty())
    throw sdk::error(TUTTI_INVALID_ARGUMENT, "no network address is left to use ({}=\"{}\"); this host has: {}", source,
                     selection, listing(all));
  std::stable_partition(chosen.begin(), chosen.end(), [](const LocalAddress& a) { return !a.ip.is_loopback(); });
  return chosen;
}

std::vector<LocalAddress> usable_addresses() {
  std::vector<LocalAddress> all;
  for (const sdk::InterfaceAddress& i : sdk::interface_addresses()) {
    if (!i.is_ip || !(i.flags & IFF_UP)) continue;
    const IpAddress address = to_address(i.ip);
    if (!is_link_local(address)) all.push_back({address, i.prefix, i.interface});
  }
  return all;
}

std::vector<LocalAddress> local_addresses(const std::string& selection, const std::string& source) {
  return select_addresses(usable_addresses(), selection, source);
}

namespace {

// 0: not known. /sys may show another network namespace, so the kernel is asked.
uint32_t mtu_of(const std::string& interface) {
  const FileDescriptor any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  interface.copy(request.ifr_name, sizeof request.ifr_name - 1);
  return any && ioctl(any.get(), SIOCGIFMTU, &request) == 0 ? static_cast<uint32_t>(request.ifr_mtu) : 0;
}

}  // namespace

std::vector<sdk::RailFacts> interface_facts(const std::string& selection) {
  std::vector<LocalAddress> chosen;
  try {
    chosen = local_addresses(selection);
  } catch (const sdk::Error& error) {
    if (!selection.empty() || error.status() != TUTTI_INVALID_ARGUMENT)
      throw;  // otherwise this host has no address at all
  }
  std::vector<sdk::RailFacts> all;
  for (const sdk::InterfaceAddress& i : sdk::interface_addresses()) {
    auto at = std::find_if(all.begin(), all.end(), [&](const sdk::RailFacts& r) { return r.name == i.interface; });
    if (at == all.end()) {
      at = all.emplace(all.end());
      at->name = i.interface;
      at->medium = i.flags & IFF_LOOPBACK ? "loopback" : "IP";
      at->mtu = mtu_of(i.interface);
      at->state = i.flags & IFF_UP ? i.flags & IFF_RUNNING ? "up" : "no carrier" : "down";
    }
    if (!i.is_ip) continue;
    const IpAddress address = to_address(i.ip);
    const bool used = std::any_of(chosen.begin(), chosen.end(), [&](const LocalAddress& a) { return a.ip == address; });
    const char* kind = address.is_v4() ? "IPv4" : is_link_local(address) ? "IPv6, link-local" : "IPv6";
    at->addresses.push_back({fmt::format("{}/{}", address.to_string(), i.prefix), i.interface, kind, used});
    at->chosen |= used;
  }
  for (sdk::RailFacts& r : all)
    r.why = r.chosen ? selection.empty() ? r.medium == "loopback" ? "up; for ranks of this host only" : "up"
                                         : "named by TUTTI_TCP_INTERFACE=" + selection
            : r.addresses.empty() ? "it has no IP address"
            : r.state == "down"   ? "it is down"
            : selection.empty()   ? "it has link-local addresses only"
                                  : "left out by TUTTI_TCP_INTERFACE=" + selection;
  return all;
}

std::vector<Where> plausible(const std::vector<Where>& listeners, const std::vector<LocalAddress>& own,
                             bool same_host) {
  std::vector<Where> order[3];  // loopback, near, far
  for (const Where& listener : listeners) {
    const IpAddress& to = listener.address();
    if (to.is_loopback()) {
      if (same_host) order[0].push_back(listener);
      continue;
    }
    bool family = false, subnet = false;
    for (const LocalAddress& a : own) {
      family |= a.ip.is_v4() == to.is_v4() && (same_host || !a.ip.is_loopback());
      subnet |= !a.ip.is_loopback() && same_network(to, a.ip, a.prefix);
    }
    if (subnet || family) order[subnet ? 1 : 2].push_back(listener);
  }
  for (const int k : {1, 2}) order[0].insert(order[0].end(), order[k].begin(), order[k].end());
  return order[0];
}

std::string unreachable_advice(const std::vector<Where>& listeners, const std::vector<LocalAddress>& own,
                               const std::vector<LocalAddress>& all, uint32_t peer) {
  const auto outward = [](const LocalAddress& a) { return !a.ip.is_loopback(); };
  std::vector<LocalAddress> unused;
  for (const LocalAddress& a : all)
    if (outward(a) && std::none_of(own.begin(), own.end(), [&](const LocalAddress& o) { return o.ip == a.ip; }))
      unused.push_back(a);
  const bool inward = std::all_of(listeners.begin(), listeners.end(),
                                  [](const Where& listener) { return listener.address().is_loopback(); });
  std::string advice;
  const auto add = [&](const std::string& sentence) { advice += (advice.empty() ? "" : "; ") + sentence; };
  if (!unused.empty() && (!inward || std::none_of(own.begin(), own.end(), outward)))
    add("TUTTI_TCP_INTERFACE can let this rank use " + listing(unused));
  else if (std::none_of(own.begin(), own.end(), outward))
    add("this host has loopback and link-local addresses only, by which no other host is reached: give it another one "
        "(ip addr add)");
  if (inward)
    add(fmt::format("rank {} offers loopback addresses only: its host needs an address that is not link-local (ip addr "
                    "add), or its TUTTI_TCP_INTERFACE or the address by which the ranks have met leaves the others out",
                    peer));
  if (advice.empty()) add("one has IPv4 addresses only and the other IPv6: give both hosts addresses of one family");
  return advice;
}

}  // namespace tutti::tcp
