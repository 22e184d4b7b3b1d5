// SPDX-License-Identifier: Apache-2.0
#include "listeners.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

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
      all.push_back({inode, address, fmt::format("{} ({} port {})", address, tcp ? "TCP" : "UDP", port)});
    }
  }
  return all;
}

}  // namespace tutti::conformance::contract
