// SPDX-License-Identifier: Apache-2.0
#include "comm/host_reach.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include "bootstrap/failure.hpp"
#include "bootstrap/system_text.hpp"

namespace tutti::core {
namespace {

constexpr size_t name_digits = 32;

// In the abstract namespace: a zero byte, then text without an end.
socklen_t fill(sockaddr_un& address, const std::string& name) {
  const std::string text = "tutti-reach-" + name;
  address = {};
  address.sun_family = AF_UNIX;
  text.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
}

FileDescriptor unix_socket() { return FileDescriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)); }

// Why the door of that name does not open; "": it does.
std::string knock(const std::string& name) {
  if (name.empty()) return "it could not open a unix socket";
  const FileDescriptor visitor = unix_socket();
  if (!visitor) return "this rank cannot open a unix socket: " + system_text(errno);
  sockaddr_un address;
  const socklen_t length = fill(address, name);
  if (connect(visitor.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    if (errno == EAGAIN) return {};  // it is there; only its queue is full
    if (errno != ECONNREFUSED) return "this rank cannot connect to its unix socket: " + system_text(errno);
    return "its unix socket is out of reach: it is in another network namespace, or on another host that has the same key";
  }
  ucred owner{};
  socklen_t room = sizeof owner;
  if (getsockopt(visitor.get(), SOL_SOCKET, SO_PEERCRED, &owner, &room) != 0)
    return "its user is not known: " + system_text(errno);
  return owner.uid == geteuid() ? "" : fmt::format("it runs as user {}, this rank as user {}", owner.uid, geteuid());
}

struct Card {
  std::string door, host;
};
Card card_of(uint32_t rank, const std::string& said) {
  const size_t end = said.find('\n');
  const std::string door = said.substr(0, end);
  constexpr std::string_view digits = "0123456789abcdef";
  if (end == std::string::npos || (!door.empty() && door.size() != name_digits) ||
      door.find_first_not_of(digits) != std::string::npos)
    throw Failure(TUTTI_MISMATCH, fmt::format("rank {} sent {} bytes where the name of its unix socket and its host key were "
                                              "expected: is it another version?",
                                              rank, said.size()));
  return {door, said.substr(end + 1)};
}

}  // namespace

HostReach::HostReach() : door_(unix_socket()) {
  std::random_device random;
  for (size_t i = 0; i < name_digits / 8; ++i) name_ += fmt::format("{:08x}", random());
  sockaddr_un address;
  const socklen_t length = fill(address, name_);
  if (!door_ || bind(door_.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(door_.get(), SOMAXCONN) != 0)
    name_.clear();
}

HostReach::Found HostReach::find(uint32_t rank, const std::string& host, const Gather& gather) const {
  Found found{rank, {}};
  const std::vector<std::string> all = gather(name_ + "\n" + host);
  std::optional<uint32_t> first;
  for (uint32_t r = 0; r < rank; ++r) {
    const Card card = card_of(r, all[r]);
    if (card.host != host) continue;
    const std::string why = knock(card.door);
    if (why.empty()) {
      found.place = r;
      return found;
    }
    if (!first) found.apart = fmt::format("rank {}: {}", *(first = r), why);
  }
  return found;
}

}  // namespace tutti::core
