// SPDX-License-Identifier: Apache-2.0
#include "acknowledgement.hpp"

#include <fmt/format.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

namespace tutti::tcp {
namespace {

std::string end_of(const Socket& socket, int (*name)(int, sockaddr*, socklen_t*)) {
  Where where;
  auto size = static_cast<socklen_t>(where.capacity());
  if (name(socket.get(), where.data(), &size) != 0) return "";
  where.resize(size);
  return where.address().to_string();
}

}  // namespace

Route route_of(const Socket& socket) { return {end_of(socket, ::getsockname), end_of(socket, ::getpeername)}; }

Unacknowledged unacknowledged_of(const Socket& socket) {
  int bytes = 0;
  tcp_info info{};
  socklen_t size = sizeof info;
  if (ioctl(socket.get(), SIOCOUTQ, &bytes) != 0 || getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
    return {};
  return {static_cast<uint64_t>(bytes), info.tcpi_retransmits, std::chrono::milliseconds(info.tcpi_last_ack_recv)};
}

std::string describe(const Unacknowledged& state, const Route& route) {
  constexpr uint32_t by_chance = 1;
  if (state.bytes == 0 || state.retransmissions <= by_chance) return "";
  return fmt::format(
      "{} bytes are not acknowledged: nothing has come back for {:.1f} s ({} retransmissions in a row). The network "
      "between {} and {} drops them, or {} is gone. If small messages pass, it drops large packets: run tutti-doctor "
      "on these hosts",
      state.bytes, std::chrono::duration<double>(state.silence).count(), state.retransmissions, route.from, route.to,
      route.to);
}

}  // namespace tutti::tcp
