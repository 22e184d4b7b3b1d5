// SPDX-License-Identifier: Apache-2.0
#include "comm/host_reach.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <optional>
#include <tutti/base/system_text.hpp>

#include "base/wire.hpp"
#include "bootstrap/authentication.hpp"

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

// A rank's word to the others.
struct UnixAddress {
  std::string socket;  // its name; "": there is none
  uid_t user = 0;
  std::string host;  // its key

  static void fields(auto& wire, auto& peer) {
    wire(Field("unix socket", peer.socket, 0, name_digits), peer.user, Field("host", peer.host));
  }
};

std::string other_user(uid_t user) {
  return user == geteuid() ? "" : fmt::format("it runs as user {}, this rank as user {}", user, geteuid());
}

// Why this rank does not reach that one; "": it does.
std::string obstacle(const UnixAddress& peer) {
  if (peer.socket.empty()) return "it could not open a unix socket";
  const FileDescriptor own = unix_socket();
  if (!own) return "this rank cannot open a unix socket: " + system_text(errno);
  sockaddr_un address;
  const socklen_t length = fill(address, peer.socket);
  if (connect(own.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    if (errno == EAGAIN) return other_user(peer.user);  // it is there; only its queue is full
    if (errno != ECONNREFUSED) return "this rank cannot connect to its unix socket: " + system_text(errno);
    return "its unix socket is out of reach: it is in another network namespace, or on another host that has the same "
           "key";
  }
  ucred owner{};
  socklen_t room = sizeof owner;
  if (getsockopt(own.get(), SOL_SOCKET, SO_PEERCRED, &owner, &room) != 0)
    return "its user is not known: " + system_text(errno);
  return other_user(owner.uid);
}

}  // namespace

HostReach::HostReach() : listener_(unix_socket()) {
  name_ = to_hex(random_bytes(name_digits / 2));
  sockaddr_un address;
  const socklen_t length = fill(address, name_);
  if (!listener_ || bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(listener_.get(), SOMAXCONN) != 0)
    name_.clear();
}

HostReach::Found HostReach::find(uint32_t rank, const std::string& host, const Gather& gather) const {
  Found found{rank, {}};
  const auto peers = decode_all<UnixAddress>(gather(encode(UnixAddress{name_, geteuid(), host})), "word on its host");
  std::optional<uint32_t> first;
  for (uint32_t r = 0; r < rank; ++r) {
    const UnixAddress& peer = peers[r];
    if (peer.host != host) continue;
    const std::string why = obstacle(peer);
    if (why.empty()) {
      found.place = r;
      return found;
    }
    if (!first) found.apart = fmt::format("rank {}: {}", *(first = r), why);
  }
  return found;
}

}  // namespace tutti::core
