// SPDX-License-Identifier: Apache-2.0
#include "stream.hpp"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <tutti/sdk/words.hpp>

#include "congestion.hpp"

namespace tutti::tcp {

namespace {

void set_option(const Socket& socket, int level, int name, int value) {
  setsockopt(socket.get(), level, name, &value, sizeof value);
}

// The values were checked when the settings were read.
void set_options(const Socket& socket, int family, const Settings& settings) {
  if (settings.buffer_bytes) {
    set_option(socket, SOL_SOCKET, SO_SNDBUF, static_cast<int>(settings.buffer_bytes));
    set_option(socket, SOL_SOCKET, SO_RCVBUF, static_cast<int>(settings.buffer_bytes));
  }
  if (settings.traffic_class) {
    const int value = static_cast<int>(settings.traffic_class);
    if (family == AF_INET6) set_option(socket, IPPROTO_IPV6, IPV6_TCLASS, value);
    if (family == AF_INET) set_option(socket, IPPROTO_IP, IP_TOS, value);
  }
  begin_congestion(socket, settings.congestion);
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  // Only memory bounds the unsent bytes in the kernel, not the system's TCP_NOTSENT_LOWAT.
  set_option(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, -1);
  if (settings.keepalive_s) {  // finds a vanished host on an idle connection after about two periods
    const int period = static_cast<int>(settings.keepalive_s);
    set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, period);
    set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, period / 3));
    set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  }
  if (settings.user_timeout_s)
    set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(settings.user_timeout_s * 1000));
}

Socket open(const Where& where) {
  Socket socket(::socket(where.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) throw sdk::system_error("no socket", errno);
  return socket;
}

}  // namespace

// The listener needs the options, too: the kernel settles the window scale and sends its first answer before accept().
Socket listen(Where& at, const Settings& settings) {
  const bool fixed = settings.first_port != 0;
  for (uint32_t port = settings.first_port; port <= settings.last_port; ++port) {
    at.port(static_cast<uint16_t>(port));
    Socket socket = open(at);
    if (fixed) set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
    if (at.address().is_v6()) set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    set_options(socket, at.protocol().family(), settings);
    auto size = static_cast<socklen_t>(at.size());
    if (::bind(socket.get(), at.data(), size) == 0 && ::listen(socket.get(), SOMAXCONN) == 0 &&
        ::getsockname(socket.get(), at.data(), &size) == 0)
      return socket;
  }
  const int error = errno;
  throw sdk::system_error(fixed ? fmt::format("{} on any port of TUTTI_TCP_PORTS={}-{}", at.address().to_string(),
                                              settings.first_port, settings.last_port)
                                : at.address().to_string(),
                          error);
}

Socket accept(const Socket& listener, const Settings& settings, Where& from) {
  auto size = static_cast<socklen_t>(from.capacity());
  Socket socket(::accept4(listener.get(), from.data(), &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) return socket;
  from.resize(size);
  set_options(socket, from.protocol().family(), settings);
  settle_congestion(socket, settings.congestion, round_trip_of(socket));
  return socket;
}

Socket start_connecting(const Where& to, const Settings& settings) {
  Socket socket = open(to);
  set_options(socket, to.protocol().family(), settings);
  if (::connect(socket.get(), to.data(), static_cast<socklen_t>(to.size())) != 0 && errno != EINPROGRESS)
    throw sdk::Error(TUTTI_SYSTEM, system_text(errno));
  return socket;
}

bool has_connected(const Socket& socket, const Settings& settings) {
  int code = 0;
  socklen_t size = sizeof code;
  getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &code, &size);
  if (code) throw sdk::Error(TUTTI_SYSTEM, system_text(code));
  Where peer;
  size = static_cast<socklen_t>(peer.capacity());
  if (::getpeername(socket.get(), peer.data(), &size) != 0) return false;
  settle_congestion(socket, settings.congestion, round_trip_of(socket));
  return true;
}

}  // namespace tutti::tcp
