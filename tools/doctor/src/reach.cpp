// SPDX-License-Identifier: Apache-2.0
#include "reach.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <random>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "info/src/network.hpp"
#include "tree.hpp"

namespace doctor {
namespace {

using Steady = std::chrono::steady_clock;

// An address as sockets take it; family 0 where the text is none.
struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

Address address_of(const std::string& text, uint16_t port) {
  Address result;
  auto* four = reinterpret_cast<sockaddr_in*>(&result.storage);
  auto* six = reinterpret_cast<sockaddr_in6*>(&result.storage);
  if (inet_pton(AF_INET, text.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(port);
    result.size = sizeof *four;
  } else if (inet_pton(AF_INET6, text.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(port);
    result.size = sizeof *six;
  }
  return result;
}

bool bind_to(int fd, bool six, uint16_t port) {
  const Address any = address_of(six ? "::" : "0.0.0.0", port);
  return bind(fd, reinterpret_cast<const sockaddr*>(&any.storage), any.size) == 0;
}

std::string explain(int code) {
  switch (code) {
    case ECONNREFUSED:
      return "refused (a firewall that rejects, or the address is another host's)";
    case EHOSTUNREACH:
      return "no route, or a firewall that rejects";
    case ENETUNREACH:
      return "no route to that network";
    default:
      return std::strerror(code);
  }
}

// One connection under way.
struct Try {
  Target* target;
  int fd = -1;
  bool connected = false;

  void end(const std::string& problem) {
    target->problem = problem;
    if (fd >= 0) close(fd);
    fd = -1;
  }
  void begin() {
    const Address to = address_of(target->address, target->port);
    if (to.size == 0) return end("not a numeric address");
    fd = socket(to.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || (connect(fd, reinterpret_cast<const sockaddr*>(&to.storage), to.size) != 0 && errno != EINPROGRESS))
      end(explain(errno));
  }
  void go_on() {
    int code = 0;
    socklen_t size = sizeof code;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &size) != 0 || code != 0) return end(explain(code ? code : errno));
    if (!connected) {
      connected = true;
      return;
    }
    uint64_t token = 0;
    const ssize_t got = recv(fd, &token, sizeof token, 0);
    const bool ours = got == sizeof token && token == target->token;
    end(ours ? "" : "somebody else answers: is the address also another host's (a bridge of docker or libvirt)?");
  }
};

}  // namespace

struct Listener::State {
  int fd = -1;
  uint16_t port = 0;
  uint64_t token = std::random_device{}() | uint64_t{std::random_device{}()} << 32;
  std::thread thread;

  void serve() const {
    for (;;) {
      const int peer = accept4(fd, nullptr, nullptr, SOCK_CLOEXEC);
      if (peer < 0 && (errno == ECONNABORTED || errno == EINTR)) continue;
      if (peer < 0) return;  // shut down, or out of descriptors: the others then report silence
      if (send(peer, &token, sizeof token, MSG_NOSIGNAL) < 0) { /* it has gone */
      }
      close(peer);
    }
  }
};

Listener::Listener(const std::string& ports) : state_(std::make_unique<State>()) {
  const size_t dash = ports.find('-');
  const int64_t first = number_of(ports.substr(0, dash)).value_or(0);
  const int64_t last = dash == ports.npos ? first : number_of(ports.substr(dash + 1)).value_or(first);
  bool six = true;
  state_->fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);  // serves IPv4 as well
  if (state_->fd < 0) {
    six = false;
    state_->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  }
  const int off = 0;
  if (six) setsockopt(state_->fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  bool bound = false;
  for (int64_t port = first; !bound && port <= last && port <= UINT16_MAX; ++port)
    bound = bind_to(state_->fd, six, static_cast<uint16_t>(port));
  sockaddr_in6 mine{};
  socklen_t size = sizeof mine;
  if (!bound || listen(state_->fd, SOMAXCONN) != 0 ||
      getsockname(state_->fd, reinterpret_cast<sockaddr*>(&mine), &size) != 0) {
    const std::string reason = std::strerror(errno);
    if (state_->fd >= 0) close(state_->fd);
    throw std::runtime_error(fmt::format("cannot listen on a TCP port {}: {}", ports, reason));
  }
  state_->port = ntohs(mine.sin6_port);  // at the same place in sockaddr_in
  state_->thread = std::thread([state = state_.get()] { state->serve(); });
}

Listener::~Listener() {
  shutdown(state_->fd, SHUT_RDWR);  // ends accept
  state_->thread.join();
  close(state_->fd);
}

uint16_t Listener::port() const { return state_->port; }
uint64_t Listener::token() const { return state_->token; }

void reach(std::vector<Target>& targets, int milliseconds) {
  std::vector<Try> tries;
  for (Target& target : targets) tries.push_back({&target});
  for (Try& one : tries) one.begin();
  const auto deadline = Steady::now() + std::chrono::milliseconds(milliseconds);
  for (;;) {
    std::vector<pollfd> waits;
    std::vector<Try*> open;
    for (Try& one : tries)
      if (one.fd >= 0) {
        waits.push_back({one.fd, static_cast<short>(one.connected ? POLLIN : POLLOUT), 0});
        open.push_back(&one);
      }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Steady::now()).count();
    if (open.empty()) return;
    if (left <= 0) break;
    if (poll(waits.data(), waits.size(), static_cast<int>(left)) < 0 && errno != EINTR) break;
    for (size_t i = 0; i < open.size(); ++i)
      if (waits[i].revents) open[i]->go_on();
  }
  for (Try& one : tries)
    if (one.fd >= 0)
      one.end(fmt::format("no answer within {:g} s (a firewall that drops, or a wrong route)", milliseconds / 1000.0));
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
