// SPDX-License-Identifier: Apache-2.0
#include "reach.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <stdexcept>
#include <thread>

#include "info/src/network.hpp"
#include "tree.hpp"

namespace doctor {
namespace {

// An address as sockets take it; size 0 where the text is none.
struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

Address address_of(const std::string& text, int64_t port) {
  Address result;
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  if (text.empty() || getaddrinfo(text.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return result;
  std::memcpy(&result.storage, found->ai_addr, found->ai_addrlen);
  result.size = found->ai_addrlen;
  freeaddrinfo(found);
  return result;
}

std::string explain(int code, int milliseconds) {
  switch (code) {
    case EINPROGRESS:
    case EAGAIN:
    case ETIMEDOUT:
      return fmt::format("no answer within {:g} s (a firewall that drops, or a wrong route)", milliseconds / 1000.0);
    case ECONNREFUSED:
      return "refused (a firewall that rejects, or the address is another host's)";
    case EHOSTUNREACH:
      return "no route, or a firewall that rejects";
    default:
      return std::strerror(code);
  }
}

// The reason why the target is not reached; "": it is.
std::string connect_to(const Target& target, int milliseconds) {
  const Address to = address_of(target.address, target.port);
  if (to.size == 0) return "not a numeric address";
  const int fd = socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::strerror(errno);
  const timeval limit{milliseconds / 1000, milliseconds % 1000 * 1000};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);  // of connect
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  uint64_t token = 0;
  errno = 0;
  const ssize_t got = connect(fd, to.get(), to.size) == 0 ? recv(fd, &token, sizeof token, MSG_WAITALL) : -1;
  const int code = errno;
  close(fd);
  if (got < 0) return explain(code, milliseconds);
  if (got == sizeof token && token == target.token) return "";
  return "somebody else answers: is the address also another host's (a bridge of docker or libvirt)?";
}

}  // namespace

void Listener::serve() const {
  for (;;) {
    const int peer = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
    if (peer < 0 && (errno == ECONNABORTED || errno == EINTR)) continue;
    if (peer < 0) return;  // shut down, or out of descriptors: the others then report silence
    (void)!send(peer, &token_, sizeof token_, MSG_NOSIGNAL);
    close(peer);
  }
}

Listener::Listener(const std::string& ports) {
  const size_t dash = ports.find('-');
  const int64_t first = number_of(ports.substr(0, dash)).value_or(0);
  const int64_t last = dash == ports.npos ? first : number_of(ports.substr(dash + 1)).value_or(first);
  socket_ = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);  // serves IPv4 as well
  const bool six = socket_ >= 0;
  if (!six) socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int off = 0;
  if (six) setsockopt(socket_, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  bool bound = false;
  for (int64_t port = first; !bound && port <= last && port <= UINT16_MAX; ++port)
    if (const Address any = address_of(six ? "::" : "0.0.0.0", port); bind(socket_, any.get(), any.size) == 0)
      bound = true;
  sockaddr_in6 mine{};
  socklen_t size = sizeof mine;
  if (!bound || listen(socket_, SOMAXCONN) != 0 ||
      getsockname(socket_, reinterpret_cast<sockaddr*>(&mine), &size) != 0) {
    const std::string reason = std::strerror(errno);
    if (socket_ >= 0) close(socket_);
    throw std::runtime_error(fmt::format("cannot listen on a TCP port {}: {}", ports, reason));
  }
  port_ = ntohs(mine.sin6_port);  // at the same place in sockaddr_in
  thread_ = std::thread([this] { serve(); });
}

Listener::~Listener() {
  shutdown(socket_, SHUT_RDWR);  // ends accept
  thread_.join();
  close(socket_);
}

void reach(std::vector<Target>& targets, int milliseconds) {
  constexpr size_t at_once = 128;
  for (size_t begin = 0; begin < targets.size(); begin += at_once) {
    std::vector<std::jthread> threads;
    for (size_t i = begin; i < std::min(targets.size(), begin + at_once); ++i)
      threads.emplace_back([&target = targets[i], milliseconds] { target.problem = connect_to(target, milliseconds); });
  }
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses;
  for (const info::Network& network : info::find_networks()) {
    if (network.transport != "tcp") continue;
    for (const info::Rail& rail : network.rails)
      for (const info::RailAddress& address : rail.addresses)
        if (rail.chosen && address.usable && rail.medium != "loopback")
          addresses.push_back(address.text.substr(0, address.text.find('/')));
  }
  return addresses;
}

}  // namespace doctor
