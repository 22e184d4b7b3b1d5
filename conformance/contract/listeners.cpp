// SPDX-License-Identifier: Apache-2.0
#include "listeners.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

namespace tutti::conformance::contract {
namespace {

std::set<uint64_t> own_sockets() {
  std::set<uint64_t> inodes;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), ignored).string();
    constexpr std::string_view front = "socket:[";
    if (target.starts_with(front)) inodes.insert(std::stoull(target.substr(front.size())));
  }
  return inodes;
}

// "0100007F" or 32 digits: words of the machine's byte order, in the network's order.
std::string address_from(const std::string& digits) {
  uint8_t bytes[16] = {};
  for (size_t word = 0; word * 8 < digits.size(); ++word) {
    const auto value = static_cast<uint32_t>(std::stoul(digits.substr(word * 8, 8), nullptr, 16));
    std::memcpy(bytes + word * 4, &value, 4);
  }
  constexpr uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  const bool four = digits.size() == 8, within = !four && std::memcmp(bytes, mapped, sizeof mapped) == 0;
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(four || within ? AF_INET : AF_INET6, within ? bytes + sizeof mapped : bytes, text, sizeof text);
  return text;
}

}  // namespace

std::vector<Listener> listeners() {
  const std::set<uint64_t> own = own_sockets();
  std::vector<Listener> all;
  for (const char* table : {"tcp", "tcp6", "udp", "udp6"}) {
    const bool tcp = table[0] == 't';
    const std::string waiting = tcp ? "0A" : "07";  // LISTEN; a datagram socket that is connected to nobody
    std::ifstream file(std::string("/proc/self/net/") + table);
    std::string line;
    std::getline(file, line);  // the head
    while (std::getline(file, line)) {
      std::istringstream fields(line);
      std::string slot, local, remote, state, skipped;
      uint64_t inode = 0;
      fields >> slot >> local >> remote >> state;
      for (int i = 0; i < 5; ++i) fields >> skipped;
      fields >> inode;
      const size_t colon = local.find(':');
      if (state != waiting || !own.contains(inode) || colon == std::string::npos) continue;
      const std::string address = address_from(local.substr(0, colon));
      const unsigned long port = std::stoul(local.substr(colon + 1), nullptr, 16);
      all.push_back({inode, address, fmt::format("{} ({} port {})", address, tcp ? "TCP" : "UDP", port),
                     static_cast<uint16_t>(port), tcp});
    }
  }
  return all;
}

std::vector<Listener> unix_listeners() {
  const std::set<uint64_t> own = own_sockets();
  std::vector<Listener> all;
  std::ifstream file("/proc/self/net/unix");
  std::string line;
  std::getline(file, line);  // the head
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string slot, references, protocol, flags, type, state, path;
    uint64_t inode = 0;
    fields >> slot >> references >> protocol >> flags >> type >> state >> inode >> path;
    const bool listens = flags == "00010000";
    if (listens && path.starts_with('@') && own.contains(inode))
      all.push_back({inode, path.substr(1), "the Unix socket " + path});
  }
  return all;
}

Stranger::Stranger(const Listener& at, uint32_t kind, uint64_t seed) {
  sockaddr_storage address{};
  socklen_t length = 0;
  if (at.port == 0) {
    auto& to = reinterpret_cast<sockaddr_un&>(address);
    to.sun_family = AF_UNIX;
    const size_t n = std::min(at.address.size(), sizeof to.sun_path - 1);
    std::memcpy(to.sun_path + 1, at.address.data(), n);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + n);
  } else if (at.address.find(':') == std::string::npos) {
    auto& to = reinterpret_cast<sockaddr_in&>(address);
    to.sin_family = AF_INET;
    to.sin_port = htons(at.port);
    inet_pton(AF_INET, at.address.c_str(), &to.sin_addr);
    length = sizeof to;
  } else {
    auto& to = reinterpret_cast<sockaddr_in6&>(address);
    to.sin6_family = AF_INET6;
    to.sin6_port = htons(at.port);
    inet_pton(AF_INET6, at.address.c_str(), &to.sin6_addr);
    length = sizeof to;
  }
  socket_ = socket(address.ss_family, (at.stream ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (at.port == 0 && socket_ >= 0 && connect(socket_, reinterpret_cast<sockaddr*>(&address), length) != 0 &&
      errno == EPROTOTYPE) {
    close(socket_);
    socket_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  }
  if (socket_ < 0) return;
  connect(socket_, reinterpret_cast<sockaddr*>(&address), length);
  constexpr size_t sizes[kinds] = {0, 0, 1, 16, 100, 4096};
  std::string bytes(sizes[kind % kinds], '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>((seed + i * 2654435761u) >> 13);
  if (!bytes.empty()) (void)!send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (kind % kinds == 1) close(std::exchange(socket_, -1));
}

Stranger::Stranger(Stranger&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}

Stranger::~Stranger() {
  if (socket_ >= 0) close(socket_);
}

}  // namespace tutti::conformance::contract
