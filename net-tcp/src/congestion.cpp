// SPDX-License-Identifier: Apache-2.0
#include "congestion.hpp"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <tutti/sdk/words.hpp>

namespace tutti::tcp {
namespace {

constexpr size_t longest_name = 15;  // of the kernel

bool set(const Socket& socket, std::string_view algorithm) {
  return setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, algorithm.data(),
                    static_cast<socklen_t>(algorithm.size())) == 0;
}

std::string algorithm_of(const Socket& socket) {
  std::array<char, longest_name + 2> name{};
  socklen_t size = name.size() - 1;
  return getsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &size) == 0 ? name.data() : "";
}

std::string offered() {
  std::string names;
  std::getline(std::ifstream("/proc/sys/net/ipv4/tcp_available_congestion_control"), names);
  return names.empty() ? "an algorithm of the kernel" : names;
}

}  // namespace

std::vector<std::string> better_congestion(std::string_view system) {
  if (!system.starts_with("bbr")) return {};
  return {"cubic", "reno"};  // a process without privileges may use Reno everywhere
}

Congestion choose_congestion(const std::string& setting) {
  if (setting == "system") return {};
  const Socket probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (setting == "auto") {
    const std::string system = probe ? algorithm_of(probe) : "";
    for (const std::string& better : better_congestion(system))
      if (set(probe, better)) return {better, system};
    return {};
  }
  if (!probe) throw sdk::system_error("no socket", errno);
  const bool can_be = !setting.empty() && setting.size() <= longest_name;
  if (can_be && set(probe, setting)) return {setting, ""};
  if (can_be && errno == EPERM)
    throw sdk::error(TUTTI_INVALID_ARGUMENT,
                     "TUTTI_TCP_CONGESTION=\"{}\" is not open to this process: an administrator adds it to the sysctl "
                     "net.ipv4.tcp_allowed_congestion_control",
                     setting);
  throw sdk::error(TUTTI_INVALID_ARGUMENT, "TUTTI_TCP_CONGESTION=\"{}\": expected auto, system or one of: {}", setting,
                   offered());
}

void begin_congestion(const Socket& socket, const Congestion& congestion) {
  if (!congestion.near.empty()) set(socket, congestion.near);
}

void settle_congestion(const Socket& socket, const Congestion& congestion, std::chrono::microseconds round_trip) {
  if (!congestion.far.empty() && round_trip > kNear) set(socket, congestion.far);
}

std::chrono::microseconds round_trip_of(const Socket& socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  const bool known = getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_rtt != 0;
  return known ? std::chrono::microseconds(info.tcpi_rtt) : std::chrono::microseconds::max();
}

}  // namespace tutti::tcp
