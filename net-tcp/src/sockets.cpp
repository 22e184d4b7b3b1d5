// SPDX-License-Identifier: Apache-2.0
#include "sockets.hpp"

#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/ip/v6_only.hpp>
#include <cstring>
#include <tutti/sdk/plugin.hpp>

namespace tutti::tcp {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

tcp::endpoint to_endpoint(const IpAddress& ip, uint16_t port) {
  if (ip.family == 4) {
    asio::ip::address_v4::bytes_type bytes;
    std::memcpy(bytes.data(), ip.bytes.data(), bytes.size());
    return {asio::ip::address_v4(bytes), port};
  }
  asio::ip::address_v6::bytes_type bytes;
  std::memcpy(bytes.data(), ip.bytes.data(), bytes.size());
  return {asio::ip::address_v6(bytes), port};
}

// Asio's own functions make sockets that a program started meanwhile would inherit.
template <typename AsioSocket>
bool open_privately(AsioSocket& socket, const tcp& protocol, boost::system::error_code& error) {
  const int fd = ::socket(protocol.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0)
    error.assign(errno, boost::system::system_category());
  else if (socket.assign(protocol, fd, error))
    ::close(fd);
  return !error;
}

void set_option(int fd, int level, int name, int value) { setsockopt(fd, level, name, &value, sizeof value); }

void set_buffers(int fd, const Settings& settings) {
  if (!settings.buffer_bytes) return;
  set_option(fd, SOL_SOCKET, SO_SNDBUF, static_cast<int>(settings.buffer_bytes));
  set_option(fd, SOL_SOCKET, SO_RCVBUF, static_cast<int>(settings.buffer_bytes));
}

void set_options(Socket& socket, const Settings& settings) {
  boost::system::error_code error;
  socket.non_blocking(true, error);
  if (error) throw sdk::Error(TUTTI_SYSTEM, "cannot make a socket non-blocking: " + error.message());
  const int fd = socket.native_handle();
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_buffers(fd, settings);
  if (settings.keepalive_s) {  // a host that vanished while nothing is sent is noticed after two periods or so
    const int period = static_cast<int>(settings.keepalive_s);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, period);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, period / 3));
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  }
  if (settings.user_timeout_s)
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(settings.user_timeout_s * 1000));
}

}  // namespace

std::optional<Acceptor> listen(asio::io_context& io, const LocalAddress& at, const Settings& settings,
                               std::string& problem) {
  boost::system::error_code error;
  const bool fixed = settings.first_port != 0;
  for (uint32_t port = settings.first_port; port <= settings.last_port; ++port) {
    const tcp::endpoint where = to_endpoint(at.ip, static_cast<uint16_t>(port));
    Acceptor acceptor(io);
    if (!open_privately(acceptor, where.protocol(), error)) break;
    if (fixed) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (at.ip.family == 6) acceptor.set_option(asio::ip::v6_only(true), error);
    set_buffers(acceptor.native_handle(), settings);  // the window scale is settled when a connection is accepted
    if (acceptor.bind(where, error) || acceptor.listen(asio::socket_base::max_listen_connections, error)) continue;
    if (acceptor.non_blocking(true, error)) break;
    return acceptor;
  }
  const std::string ports = fixed ? " on any port of TUTTI_TCP_PORTS=" + std::to_string(settings.first_port) + "-" +
                                        std::to_string(settings.last_port)
                                  : "";
  problem = at.ip.text() + " (" + at.interface + ")" + ports + ": " + error.message();
  return std::nullopt;
}

Socket accept(Acceptor& listener, const Settings& settings, std::string& from, boost::system::error_code& error) {
  Socket socket(listener.get_executor());
  tcp::endpoint whence;
  auto size = static_cast<socklen_t>(whence.capacity());
  const int fd = ::accept4(listener.native_handle(), whence.data(), &size, SOCK_CLOEXEC);
  if (fd < 0) {
    error.assign(errno, boost::system::system_category());
    return socket;
  }
  whence.resize(size);
  if (socket.assign(whence.protocol(), fd, error)) {
    ::close(fd);
    return socket;
  }
  from = whence.address().to_string();
  set_options(socket, settings);
  return socket;
}

Socket start_connecting(asio::io_context& io, const PeerAddress::Listener& to, const Settings& settings) {
  const tcp::endpoint target = to_endpoint(to.ip, to.port);
  Socket socket(io);
  boost::system::error_code error;
  if (!open_privately(socket, target.protocol(), error))
    throw sdk::Error(TUTTI_SYSTEM, "no socket: " + error.message());
  set_options(socket, settings);
  // Asio's own synchronous connect would wait even on a non-blocking socket.
  if (::connect(socket.native_handle(), target.data(), static_cast<socklen_t>(target.size())) != 0 &&
      errno != EINPROGRESS)
    throw sdk::system_error("refused", errno);
  return socket;
}

bool has_connected(Socket& socket) {
  int code = 0;
  socklen_t size = sizeof code;
  getsockopt(socket.native_handle(), SOL_SOCKET, SO_ERROR, &code, &size);
  if (code) throw sdk::Error(TUTTI_PEER_FAILED, std::generic_category().message(code));
  boost::system::error_code error;
  socket.remote_endpoint(error);
  return !error;
}

}  // namespace tutti::tcp
