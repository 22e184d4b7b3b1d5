// SPDX-License-Identifier: Apache-2.0
#include "net/socket_address.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <tutti/base/system_text.hpp>

#include "base/failure.hpp"
#include "base/make_failure.hpp"
#include "net/interrupt.hpp"

namespace tutti::core {

uint16_t parse_port(std::string_view text, const std::string& what) {
  uint32_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0 || port > 65535)
    throw refusal("{}: \"{}\" is not a port: expected a number from 1 to 65535", what, text);
  return static_cast<uint16_t>(port);
}

namespace {

Failure no_address(std::string_view text, const std::string& what, const char* why) {
  return refusal("{}: \"{}\" {}; expected HOST, or [ADDRESS] for IPv6, with :PORT where it takes one", what, text, why);
}

}  // namespace

HostPort parse_address(std::string_view text, const std::string& what) {
  std::string_view host = text;
  std::optional<std::string_view> port;
  if (text.starts_with('[')) {
    const size_t close = text.find(']');
    if (close == std::string_view::npos) throw no_address(text, what, "has no closing bracket");
    host = text.substr(1, close - 1);
    const std::string_view rest = text.substr(close + 1);
    if (rest.starts_with(':'))
      port = rest.substr(1);
    else if (!rest.empty())
      throw no_address(text, what, "has no colon behind its closing bracket");
  } else if (const size_t colon = text.find(':'); colon != std::string_view::npos && colon == text.rfind(':')) {
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
  }
  if (host.empty()) throw no_address(text, what, "has no host");
  return {std::string(host), port ? parse_port(*port, what) : uint16_t{0}};
}

HostPort parse_host_port(std::string_view text, const std::string& what) {
  HostPort place = parse_address(text, what);
  const bool bare = !text.starts_with('[') && place.host.find(':') != std::string::npos;
  if (place.port == 0)
    throw no_address(text, what, bare ? "is an IPv6 address without brackets" : "has no port");
  return place;
}

SocketAddress::SocketAddress(const sockaddr* address, socklen_t bytes) : bytes_(bytes) {
  std::memcpy(&storage_, address, std::min<size_t>(bytes, sizeof storage_));
}

SocketAddress SocketAddress::from_bytes(std::string_view bytes, uint16_t port) {
  if (bytes.size() == 4) {
    sockaddr_in in = {};
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    std::memcpy(&in.sin_addr, bytes.data(), 4);
    return SocketAddress(reinterpret_cast<sockaddr*>(&in), sizeof in);
  }
  if (bytes.size() != 16) return {};
  sockaddr_in6 in6 = {};
  in6.sin6_family = AF_INET6;
  in6.sin6_port = htons(port);
  std::memcpy(&in6.sin6_addr, bytes.data(), 16);
  return SocketAddress(reinterpret_cast<sockaddr*>(&in6), sizeof in6);
}

SocketAddress SocketAddress::end_of(int socket, int (*name)(int, sockaddr*, socklen_t*)) {
  SocketAddress address;
  address.bytes_ = sizeof address.storage_;
  return name(socket, reinterpret_cast<sockaddr*>(&address.storage_), &address.bytes_) == 0 ? address : SocketAddress();
}

uint16_t SocketAddress::port() const {
  if (family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
  if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port);
  return 0;
}

std::string SocketAddress::bytes() const {
  if (family() == AF_INET)
    return std::string(reinterpret_cast<const char*>(&reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr), 4);
  if (family() == AF_INET6)
    return std::string(reinterpret_cast<const char*>(&reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr), 16);
  return "";
}

std::string SocketAddress::host() const {
  std::string address = bytes();
  constexpr std::string_view kMapped("\0\0\0\0\0\0\0\0\0\0\xff\xff", 12);
  if (address.size() == 16 && address.starts_with(kMapped)) address.erase(0, kMapped.size());
  char text[INET6_ADDRSTRLEN] = "";
  if (!address.empty()) ::inet_ntop(address.size() == 4 ? AF_INET : AF_INET6, address.data(), text, sizeof text);
  return text;
}

std::string SocketAddress::text() const {
  const std::string address = host();
  if (address.empty()) return "an unknown address";
  const bool v6 = address.find(':') != std::string::npos;
  return (v6 ? "[" + address + "]" : address) + ":" + std::to_string(port());
}

std::vector<SocketAddress> resolve(const HostPort& place) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(place.host.c_str(), std::to_string(place.port).c_str(), &hints, &found);
  if (error != 0)
    throw make_failure(TUTTI_NOT_FOUND, "bootstrap: the host \"{}\" has no address: {}", place.host,
                       error == EAI_SYSTEM ? system_text(errno) : ::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next)
    if (a->ai_family == AF_INET || a->ai_family == AF_INET6) addresses.emplace_back(a->ai_addr, a->ai_addrlen);
  return addresses;
}

std::vector<SocketAddress> own_addresses(uint16_t port) {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0)
    throw make_failure(TUTTI_SYSTEM, "bootstrap: cannot list this machine's interfaces: {}", system_text(errno));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(found, &::freeifaddrs);
  std::vector<SocketAddress> v4, v6, loopback;
  for (const ifaddrs* i = found; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0) continue;
    const int family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    const std::string bytes = SocketAddress(i->ifa_addr, size).bytes();
    // A link-local address means nothing without the receiver's interface.
    if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(reinterpret_cast<const in6_addr*>(bytes.data()))) continue;
    auto& list = (i->ifa_flags & IFF_LOOPBACK) != 0 ? loopback : family == AF_INET ? v4 : v6;
    list.push_back(SocketAddress::from_bytes(bytes, port));
  }
  v4.insert(v4.end(), v6.begin(), v6.end());
  v4.insert(v4.end(), loopback.begin(), loopback.end());
  return v4;
}

namespace {

// The control plane tells why a job fails, also where the cause is a network that drops large packets. So its own
// packets are small: every network carries 1280 bytes of IPv6, of which 60 are headers. Set before connecting, the
// limit holds for both directions.
void limit_segments(const FileDescriptor& socket) {
  constexpr int most = 1280 - 60;
  (void)::setsockopt(socket.get(), IPPROTO_TCP, TCP_MAXSEG, &most, sizeof most);  // best effort
}

}  // namespace

FileDescriptor listen_on(const SocketAddress& address) {
  FileDescriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return {};
  limit_segments(socket);
  const int on = 1, off = 0;
  // A named port may still be in TIME_WAIT from an earlier run. For a free one the kernel is to pick a port that nobody
  // else holds either.
  if (address.port() != 0) ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.family() == AF_INET6) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::bind(socket.get(), address.get(), address.size()) != 0) return {};
  if (::listen(socket.get(), SOMAXCONN) != 0) return {};
  return socket;
}

FileDescriptor listen_anywhere(uint16_t port) {
  FileDescriptor socket = listen_on(SocketAddress::from_bytes(std::string(16, '\0'), port));
  // A machine without IPv6 refuses the family, or has the family and not the address.
  if (!socket && (errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL))
    socket = listen_on(SocketAddress::from_bytes(std::string(4, '\0'), port));
  return socket;
}

bool out_of_resources(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS; }

std::string dead_loopback(const SocketAddress& address) {
  const std::string bytes = address.bytes();
  const bool loopback = bytes.size() == 4 ? bytes[0] == 127 : bytes == std::string(15, '\0') + '\1';
  if (!loopback) return "";
  // A datagram socket looks for a route and sends nothing.
  const FileDescriptor socket(::socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket || ::connect(socket.get(), address.get(), address.size()) == 0 ||
      (errno != ENETUNREACH && errno != EADDRNOTAVAIL))
    return "";
  ifaddrs* found = nullptr;
  ::getifaddrs(&found);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(found, &::freeifaddrs);
  for (const ifaddrs* i = found; i != nullptr; i = i->ifa_next)
    if ((i->ifa_flags & IFF_LOOPBACK) != 0 && (i->ifa_flags & IFF_UP) != 0)
      return fmt::format(
          "the loopback interface of this network namespace is up, but without this address (ip addr add {}/{} dev {})",
          address.host(), bytes.size() == 4 ? 8 : 128, i->ifa_name);
  return "the loopback interface of this network namespace is down (ip link set lo up)";
}

FileDescriptor connect_to(const SocketAddress& address, int limit_ms, std::string& problem) {
  FileDescriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int error = socket ? 0 : errno;
  if (socket) limit_segments(socket);
  if (out_of_resources(error))
    throw make_failure(TUTTI_NO_RESOURCES,
                       "bootstrap: no socket for {}: {}; a rank needs some 30 descriptors", address.text(),
                       system_text(error));
  if (socket && ::connect(socket.get(), address.get(), address.size()) != 0) error = errno;
  if (error == EINPROGRESS || error == EINTR) {
    pollfd waiting = {socket.get(), POLLOUT, 0};
    const int ready = Interrupt::poll(waiting, limit_ms);
    socklen_t size = sizeof error;
    if (ready <= 0)
      error = ETIMEDOUT;
    else if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0)
      error = errno;
  }
  // A port of the ephemeral range on which nobody listens may connect to itself.
  if (error == 0 && SocketAddress::local_of(socket.get()) == SocketAddress::peer_of(socket.get())) error = ECONNREFUSED;
  if (error == 0) return socket;
  problem = fmt::format("connect to {}: {}", address.text(), system_text(error));
  return {};
}

}  // namespace tutti::core
